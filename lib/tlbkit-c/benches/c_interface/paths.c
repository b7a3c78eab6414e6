// `c_interface PATH N` walks one path N times. main.rs knows the number of each path and the function that is counted.

#include <stdlib.h>

#include "machine.h"

#define IN_TURN "tlbkit:pcid=6+set=kept"
#define WITHOUT_TAGS "tlbkit:pcid=off+set=kept"

enum { VA = 0x70000000, OTHER_CPU = 15 };

__attribute__((noinline)) void counted_flush(unsigned space, uint32_t cpu, uint32_t pages, uint32_t stride);
void counted_flush(unsigned space, uint32_t cpu, uint32_t pages, uint32_t stride) {
    must(tlbkit_flush_range(&machine, cpu, &spaces[space], VA, pages, stride, TLBKIT_REASON_WRITE_PROTECT));
}

static void flush(unsigned space, uint32_t cpu, uint32_t pages) { counted_flush(space, cpu, pages, TLBKIT_STRIDE_PAGE4K); }

__attribute__((noinline)) void counted_gather(void (*name)(struct tlbkit_gather *gather));
void counted_gather(void (*name)(struct tlbkit_gather *gather)) {
    struct tlbkit_gather gather;
    must(tlbkit_gather_begin(&gather, &machine, &spaces[0], NULL));
    name(&gather);
    must(tlbkit_gather_finish(&gather, 0));
}

static void name_page(struct tlbkit_gather *gather) {
    must(tlbkit_gather_range(gather, 0, VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_SCOPE_NON_GLOBAL, TLBKIT_REASON_REMOVE_PTE));
}

static void name_table(struct tlbkit_gather *gather) {
    name_page(gather);
    must(tlbkit_gather_tables_freed(gather));
}

// Switches of CPU 0 among the first `count` spaces.
static void ring(unsigned long n, unsigned count) {
    for (unsigned long i = 0; i < n; i++)
        switch_to(0, (i + 1) % count);
}

static void to_and_fro(unsigned long n, unsigned other) {
    ring(6, 6);
    for (unsigned long i = 0; i < n; i++)
        switch_to(0, i % 2 ? 0 : other);
}

static void with_others(uint32_t count, unsigned long n, uint32_t flags) {
    for (uint32_t cpu = 1; cpu <= count; cpu++)
        switch_to(cpu, 0);
    for (unsigned long i = 0; i < n; i++)
        counted_flush(0, 0, 1, TLBKIT_STRIDE_PAGE4K | flags);
}

static void with_lazy(uint32_t count, unsigned long n) {
    for (uint32_t cpu = 1; cpu <= count; cpu++) {
        switch_to(cpu, 0);
        go_idle(cpu);
    }
    for (unsigned long i = 0; i < n; i++)
        flush(0, 0, 1);
}

static void idle(unsigned long n, bool is_stale) {
    for (unsigned long i = 0; i < n; i++) {
        go_idle(0);
        if (is_stale)
            flush(0, OTHER_CPU, 1);
        switch_to(0, 0);
    }
}

static void stale(unsigned long n) {
    for (unsigned long i = 0; i < n; i++) {
        flush((i + 1) % 2, OTHER_CPU, 1);
        switch_to(0, (i + 1) % 2);
    }
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    unsigned path = (unsigned)atoi(argv[1]);
    unsigned long n = strtoul(argv[2], NULL, 10);
    machine_begin(path == 7 || path == 8 ? WITHOUT_TAGS : IN_TURN);
    __asm__ volatile("int3"); // from here on it is stepped
    switch (path) {
    case 0: ring(n, 1); break;
    case 1: to_and_fro(n, 1); break;
    case 2: to_and_fro(n, 5); break;
    case 3: stale(n); break;
    case 4: ring(n, 8); break;
    case 5: idle(n, false); break;
    case 6: idle(n, true); break;
    case 7: ring(n, 2); break;
    case 8: idle(n, false); break;
    case 9: with_others(0, n, 0); break;
    case 10:
        for (unsigned long i = 0; i < n; i++)
            flush(0, 0, 33);
        break;
    case 11: with_others(1, n, 0); break;
    case 12: with_others(3, n, 0); break;
    case 13: with_others(4, n, 0); break;
    case 14: with_lazy(3, n); break;
    case 15: with_lazy(4, n); break;
    case 16:
        for (unsigned long i = 0; i < n; i++)
            counted_gather(name_page);
        break;
    case 17:
        for (unsigned long i = 0; i < n; i++)
            counted_gather(name_table);
        break;
    case 18: with_others(2, n, TLBKIT_FLUSH_TABLES_FREED); break;
    default: return 2;
    }
    return 0;
}
