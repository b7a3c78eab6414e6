// CPUs that get no interrupt: a host flushes those that it has taken away, isolated ones flush when they enter the kernel,
// and INVLPGB reaches all. CPUs that are not waited for until they have flushed. A machine without a host and INVLPGB
// behaves as ever.

#include <string.h>

#include "machine.h"
#include "use.h"

enum { FOREIGN = 77, MOST_PAGES = 4 };

#if defined(TLBKIT_GUEST) || defined(TLBKIT_ISOLATED)
// The values of the event that counts CPUs which are not interrupted.
static uint64_t spared;

static void note_spared(uint32_t cpu, uint32_t event, uint64_t value) {
    CHECK(cpu == 0 || event != TLBKIT_EVENT_SPARED);
    spared += event == TLBKIT_EVENT_SPARED ? value : 0;
}

// So many have been since this was asked, if the archive tells.
static bool have_been_spared(uint64_t value) {
#ifndef TLBKIT_EVENTS
    value = 0;
#endif
    const bool is_it = spared == value;
    spared = 0;
    return is_it;
}
#endif

#if defined(TLBKIT_GUEST) || defined(TLBKIT_BROADCAST) || defined(TLBKIT_EARLY) || defined(TLBKIT_REUSE) || \
    defined(TLBKIT_DIRECTORIES)
static void all_run_a(const struct tlbkit_hardware_ops *ops) {
    table = ops;
    preset = "tlbkit";
    machine_begin(preset);
    for (uint32_t cpu = 0; cpu < CPUS; cpu++) {
        switch_to(cpu, &space_a);
        CHECK(touch(cpu, 2) == 2002 && touch(cpu, 3) == 2003);
        interrupts[cpu] = 0;
    }
}

static void give_back(unsigned page) {
    set_page(&space_a, page, FOREIGN);
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA + page * 4096ull, 1, TLBKIT_STRIDE_PAGE4K,
                          TLBKIT_REASON_REMOVE_PTE));
}

static unsigned all_interrupts(void) {
    unsigned sum = 0;
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        sum += interrupts[cpu];
    return sum;
}
#endif

#ifdef TLBKIT_GUEST
static uint64_t away, marked;

static uint64_t flush_by_host(uint32_t cpu, uint32_t first, uint64_t cpus, uint64_t start, uint32_t pages,
                              uint64_t bytes) {
    (void)start, (void)bytes;
    CHECK(cpu < CPUS && first == 0 && pages == 0);
    marked |= cpus & away;
    return cpus & ~away;
}

// The host runs the CPU again.
static void resume(uint32_t cpu) {
    away &= ~(1ull << cpu);
    if (marked >> cpu & 1)
        hardware.invpcid(cpu, 2, 0, 0);
    marked &= ~(1ull << cpu);
}

static void a_host_flushes_what_it_has_taken_away(void) {
    static struct tlbkit_hardware_ops guest;
    guest = hardware, guest.flush_by_host = flush_by_host, guest.host_flush = TLBKIT_HOST_FLUSH_TRANSLATIONS;
    guest.event = note_spared;
    all_run_a(&guest);
    away = 1 << 2, marked = 0;
    give_back(2);
    CHECK(interrupts[1] == 1 && interrupts[2] == 0 && interrupts[3] == 1 && marked == 1 << 2);
    CHECK(have_been_spared(1ull << 32));
    CHECK(touch(1, 2) == FOREIGN && touch(3, 2) == FOREIGN);
    resume(2);
    CHECK(touch(2, 2) == FOREIGN);
    // This host drops no paths, so a CPU is interrupted where tables are freed.
    away = 1 << 2;
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K | TLBKIT_FLUSH_TABLES_FREED,
                          TLBKIT_REASON_FREE_TABLE));
    CHECK(interrupts[2] == 1 && marked == 0);
    away = 0;
    guest.flush_by_host = NULL;
    struct tlbkit_machine other;
    static struct tlbkit_cpu_state state[1];
    static uint64_t words[TLBKIT_MATRIX_WORDS(1)];
    struct tlbkit_setup setup = {
        .ops = &guest, .cpus = state, .cpu_count = 1, .matrix = words,
        .matrix_words = sizeof words / sizeof *words, .kernel_root = root_of(NULL),
    };
    CHECK(tlbkit_machine_init(&other, &setup) == TLBKIT_STATUS_NO_FUNCTION);
    guest.flush_by_host = flush_by_host, guest.host_flush = 3;
    CHECK(tlbkit_machine_init(&other, &setup) == TLBKIT_STATUS_BAD_VALUE);
}
#endif

#ifdef TLBKIT_ISOLATED
static void an_isolated_cpu_flushes_when_it_enters_the_kernel(void) {
    static struct tlbkit_hardware_ops telling;
    telling = hardware, telling.event = note_spared;
    table = &telling;
    preset = "tlbkit";
    machine_begin(preset);
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        CHECK(touch_kernel(cpu, 5) == 1005);
    irqs_on[1] = false;
    OK(tlbkit_defer_kernel_flushes(&machine, 1));
    irqs_on[1] = true;
    set_page(NULL, 5, FOREIGN);
    OK(tlbkit_flush_kernel_range(&machine, 0, KERNEL_VA + 5 * 4096ull, 1, TLBKIT_STRIDE_PAGE4K,
                                 TLBKIT_REASON_KERNEL_REMOVE));
    CHECK(interrupts[1] == 0 && interrupts[2] == 1 && touch_kernel(2, 5) == FOREIGN && have_been_spared(1));
    CHECK(touch_kernel(1, 5) == 1005); // its program cannot use it
    irqs_on[1] = false;
    CHECK(tlbkit_do_deferred_flushes(&machine, 1));
    CHECK(touch_kernel(1, 5) == FOREIGN);
    CHECK(!tlbkit_do_deferred_flushes(&machine, 1));
    irqs_on[1] = true;
}
#endif

#ifdef TLBKIT_BROADCAST
static unsigned broadcasts, syncs;

// What the instruction does with these registers, on every CPU.
static void invlpgb(uint32_t cpu, uint64_t rax, uint32_t ecx, uint32_t edx) {
    const uint32_t pages = (ecx & 0xffff) + 1, pcid = edx >> 16;
    CHECK(cpu < CPUS && rax & 4 && pages <= MOST_PAGES && (edx & 0xffff) == 0);
    broadcasts++;
    for (uint32_t to = 0; to < CPUS; to++) {
        if ((rax & 3) == 3)
            for (uint32_t page = 0; page < pages; page++)
                hardware.invpcid(to, 0, pcid, (rax & ~0xfffull) + page * 4096ull);
        else
            hardware.invpcid(to, rax & 2 ? 1 : rax & 8 ? 2 : 3, pcid, 0);
    }
}

static void tlbsync(uint32_t cpu) {
    CHECK(cpu < CPUS);
    syncs++;
}

static void invlpgb_reaches_all_cpus(void) {
    static struct tlbkit_hardware_ops amd;
    amd = hardware, amd.invlpgb = invlpgb, amd.tlbsync = tlbsync, amd.broadcast_pages = MOST_PAGES;
    all_run_a(&amd);
    uint32_t pcid = 0;
    OK(tlbkit_share_pcid(&machine, 0, &space_a, &pcid));
    CHECK(pcid >= 16 && pcid < 2048);
    for (uint32_t cpu = 0; cpu < CPUS; cpu++) {
        CHECK(touch(cpu, 2) == 2002);
        interrupts[cpu] = 0;
    }
    broadcasts = syncs = 0;
    give_back(2);
    CHECK(all_interrupts() == 0 && broadcasts == 1 && syncs == 1);
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        CHECK(touch(cpu, 2) == FOREIGN && touch(cpu, 3) == 2003);
    // More pages than one instruction takes.
    set_page(&space_a, 6, FOREIGN);
    OK(tlbkit_flush_range(&machine, 1, &space_a, USER_VA, 7, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_REMOVE_PTE));
    CHECK(all_interrupts() == 0 && broadcasts == 3 && syncs == 2 && touch(3, 6) == FOREIGN);
    // Kernel addresses.
    CHECK(touch_kernel(3, 1) == 1001);
    set_page(NULL, 1, FOREIGN);
    OK(tlbkit_flush_kernel_range(&machine, 1, KERNEL_VA + 4096, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_KERNEL_REMOVE));
    CHECK(all_interrupts() == 0 && touch_kernel(3, 1) == FOREIGN);
    CHECK(tlbkit_share_pcid(&machine, 0, &space_a, NULL) == TLBKIT_STATUS_NULL_POINTER);
    // Code that walks tables without a lock holds interrupts back, and no instruction.
    struct tlbkit_gather gather;
    OK(tlbkit_gather_begin(&gather, &machine, &space_a, NULL));
    OK(tlbkit_gather_interrupt_walkers(&gather));
    OK(tlbkit_gather_range(&gather, 0, USER_VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_SCOPE_NON_GLOBAL,
                           TLBKIT_REASON_REMOVE_PTE));
    OK(tlbkit_gather_finish(&gather, 0));
    CHECK(all_interrupts() == CPUS - 1);

    struct tlbkit_machine other;
    static struct tlbkit_cpu_state state[1];
    static uint64_t words[TLBKIT_MATRIX_WORDS(1)];
    struct tlbkit_setup setup = {
        .ops = &amd, .cpus = state, .cpu_count = 1, .matrix = words,
        .matrix_words = sizeof words / sizeof *words, .kernel_root = root_of(NULL),
    };
    amd.tlbsync = NULL;
    CHECK(tlbkit_machine_init(&other, &setup) == TLBKIT_STATUS_NO_FUNCTION);
    amd.tlbsync = tlbsync, amd.broadcast_pages = 1 << 17;
    CHECK(tlbkit_machine_init(&other, &setup) == TLBKIT_STATUS_BAD_VALUE);
}

static void a_machine_without_it_says_so(void) {
    all_run_a(&hardware);
    uint32_t pcid = 1;
    OK(tlbkit_share_pcid(&machine, 0, &space_a, &pcid));
    CHECK(pcid == 0);
    give_back(2);
    CHECK(all_interrupts() == CPUS - 1);
}
#endif

#ifdef TLBKIT_EARLY
static unsigned early_flushes;

// As an NMI that comes between the acknowledgement and the flush.
static void invlpg_after_the_answer(uint32_t cpu, uint64_t va) {
    if (cpu != 0) {
        CHECK(!tlbkit_is_running(&machine, cpu, &space_a));
        early_flushes++;
    }
    hardware.invlpg(cpu, va);
}

static void an_early_answer_is_told_to_handlers(void) {
    static struct tlbkit_hardware_ops early;
    early = hardware, early.invlpg = invlpg_after_the_answer;
    all_run_a(&early);
    early_flushes = 0;
    give_back(2);
    CHECK(early_flushes == CPUS - 1);
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        CHECK(tlbkit_is_running(&machine, cpu, &space_a) && touch(cpu, 2) == FOREIGN);
}
#endif

#ifdef TLBKIT_REUSE
static struct tlbkit_grace_periods periods;
static struct tlbkit_passed passed[CPUS];
static uint64_t released;

static void note_released(void *context, uint64_t frame) {
    (void)context;
    released = released * 10000 + frame;
}

static void pass(uint32_t cpu) {
    CHECK(tlbkit_pass(&periods, cpu) == TLBKIT_STATUS_IRQS_ON);
    irqs_on[cpu] = false;
    OK(tlbkit_pass(&periods, cpu));
    irqs_on[cpu] = true;
}

// Takes a page away, and defers its flush.
static void take(struct tlbkit_batch *batch, uint64_t *array, unsigned page) {
    const struct tlbkit_frames frames = {.array = array, .capacity = 2, .release = note_released};
    OK(tlbkit_batch_begin(batch, &machine, &frames));
    set_page(&space_a, page, FOREIGN);
    OK(tlbkit_batch_unmap(batch, 0, &space_a, 2000 + page));
    OK(tlbkit_batch_defer(batch, 0, &periods));
}

static void what_is_deferred_comes_back_when_it_is_needed(void) {
    static uint64_t arrays[4][2];
    struct tlbkit_batch first, second, third;
    all_run_a(&hardware);
    CHECK(tlbkit_grace_periods_init(&periods, &machine, passed, CPUS - 1) == TLBKIT_STATUS_TOO_SMALL);
    CHECK(tlbkit_grace_periods_init(&periods, &machine, NULL, CPUS) == TLBKIT_STATUS_NULL_POINTER);
    memset(passed, 0x5a, sizeof passed); // what is in a kernel's memory before
    OK(tlbkit_grace_periods_init(&periods, &machine, passed, CPUS));
    released = 0;
    take(&first, arrays[0], 2);
    CHECK(all_interrupts() == 0 && released == 0 && touch(1, 2) == 2002);
    pass(1);
    CHECK(touch(1, 2) == FOREIGN);
    take(&second, arrays[1], 3);
    // CPU 1 has passed for the first one alone.
    OK(tlbkit_deferred_fold(&first, 0, &second));
    CHECK(tlbkit_deferred_flush(&second, 0, &periods, TLBKIT_REASON_MIGRATE) == TLBKIT_STATUS_NOT_MADE);
    take(&third, arrays[2], 4);
    CHECK(tlbkit_deferred_fold(&first, 0, &third) == TLBKIT_STATUS_GATHER_FULL);
    CHECK(tlbkit_deferred_fold(&first, 0, &first) == TLBKIT_STATUS_BAD_VALUE);
    CHECK(tlbkit_batch_flush(&first, 0, TLBKIT_REASON_MIGRATE) == TLBKIT_STATUS_NOT_MADE);
    pass(2);
    irqs_on[0] = false;
    CHECK(tlbkit_deferred_flush(&first, 0, &periods, TLBKIT_REASON_MIGRATE) == TLBKIT_STATUS_IRQS_OFF);
    irqs_on[0] = true;
    CHECK(tlbkit_deferred_flush(&first, 0, &periods, 99) == TLBKIT_STATUS_BAD_VALUE);
    OK(tlbkit_deferred_flush(&first, 0, &periods, TLBKIT_REASON_MIGRATE));
    CHECK(interrupts[1] == 1 && interrupts[2] == 0 && interrupts[3] == 1 && released == 20022003);
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        CHECK(touch(cpu, 2) == FOREIGN && touch(cpu, 3) == FOREIGN);
    // All have passed when the last one is needed.
    for (uint32_t cpu = 1; cpu < CPUS; cpu++)
        pass(cpu);
    OK(tlbkit_deferred_flush(&third, 0, &periods, TLBKIT_REASON_MIGRATE));
    CHECK(all_interrupts() == 2 && released == 200220032004);
    // A page-table page is walked, and not deferred.
    const struct tlbkit_frames frames = {.array = arrays[3], .capacity = 2, .release = note_released};
    OK(tlbkit_batch_begin(&first, &machine, &frames));
    OK(tlbkit_batch_unmap_table(&first, 0, &space_a, 2005));
    CHECK(tlbkit_batch_defer(&first, 0, &periods) == TLBKIT_STATUS_BAD_VALUE);
    OK(tlbkit_batch_finish(&first, 0, TLBKIT_REASON_FREE_TABLE));
    CHECK(tlbkit_batch_defer(&first, 0, &periods) == TLBKIT_STATUS_NOT_MADE);
}
#endif

#ifdef TLBKIT_DIRECTORIES
static bool is_converted;

static uint64_t root_here(uint32_t cpu, const struct tlbkit_space *space) {
    return is_converted && space == &space_a ? own_root_of(cpu, space) : root_of(space);
}

static void give_back_within(unsigned page, const struct tlbkit_reach *reach) {
    struct tlbkit_gather gather;
    set_page(&space_a, page, FOREIGN);
    OK(tlbkit_gather_begin(&gather, &machine, &space_a, NULL));
    OK(tlbkit_gather_range(&gather, 0, USER_VA + page * 4096ull, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_SCOPE_NON_GLOBAL,
                           TLBKIT_REASON_REMOVE_PTE));
    CHECK(tlbkit_gather_finish_within(&gather, 0, NULL) == TLBKIT_STATUS_NULL_POINTER);
    OK(tlbkit_gather_finish_within(&gather, 0, reach));
    CHECK(tlbkit_gather_finish_within(&gather, 0, reach) == TLBKIT_STATUS_NOT_MADE);
}

static void a_flush_interrupts_those_that_have_hooked_the_table(void) {
    static struct tlbkit_hardware_ops own;
    static struct tlbkit_sharers sharers;
    struct tlbkit_reach reach;
    own = hardware, own.root_here = root_here;
    is_converted = false;
    all_run_a(&own);
    is_converted = true;
    OK(tlbkit_reload_roots(&machine, 0, &space_a));
    CHECK(interrupts[0] == 0 && interrupts[1] == 1 && interrupts[2] == 1 && interrupts[3] == 1);
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        CHECK(touch(cpu, 2) == NO_FRAME);
    for (uint32_t cpu = 0; cpu < 2; cpu++) {
        bool may_include = true;
        OK(tlbkit_sharers_may_include(&sharers, cpu, &may_include));
        CHECK(!may_include);
        OK(tlbkit_sharers_hook(&machine, cpu, &sharers));
        OK(tlbkit_sharers_may_include(&sharers, cpu, &may_include));
        CHECK(may_include);
        has_hooked[cpu] = true;
        CHECK(touch(cpu, 2) == 2002 && touch(cpu, 3) == 2003);
    }
    OK(tlbkit_reach_begin(&reach));
    give_back_within(4, &reach);
    CHECK(all_interrupts() == 3);
    OK(tlbkit_reach_add(&reach, &sharers));
    give_back_within(2, &reach);
    CHECK(interrupts[1] == 2 && all_interrupts() == 4 && touch(0, 2) == FOREIGN && touch(1, 2) == FOREIGN);
    OK(tlbkit_reach_everybody(&reach));
    give_back_within(3, &reach);
    CHECK(all_interrupts() == 7 && touch(0, 3) == FOREIGN && touch(1, 3) == FOREIGN);
    // A table that is free again has no sharers.
    OK(tlbkit_sharers_clear(&sharers));
    OK(tlbkit_reach_begin(&reach));
    OK(tlbkit_reach_add(&reach, &sharers));
    give_back_within(5, &reach);
    CHECK(all_interrupts() == 7);
    CHECK(tlbkit_reload_root_here(&machine, 1, &space_a) == TLBKIT_STATUS_IRQS_ON);
    irqs_on[1] = false;
    CHECK(tlbkit_reload_root_here(&machine, 1, &space_b) == TLBKIT_STATUS_BAD_VALUE);
    CHECK(tlbkit_reload_roots(&machine, 1, &space_a) == TLBKIT_STATUS_IRQS_OFF);
    is_converted = false; // stands for another root
    OK(tlbkit_reload_root_here(&machine, 1, &space_a));
    irqs_on[1] = true;
    has_hooked[0] = has_hooked[1] = false;
    CHECK(touch(1, 6) == 2006 && touch(0, 6) == NO_FRAME);
    CHECK(tlbkit_sharers_hook(&machine, 0, NULL) == TLBKIT_STATUS_NULL_POINTER);
    CHECK(tlbkit_sharers_clear(NULL) == TLBKIT_STATUS_NULL_POINTER);
    CHECK(tlbkit_reach_add(&reach, NULL) == TLBKIT_STATUS_NULL_POINTER);
    CHECK(tlbkit_reach_begin(NULL) == TLBKIT_STATUS_NULL_POINTER);
    CHECK(tlbkit_reach_everybody(NULL) == TLBKIT_STATUS_NULL_POINTER);
}
#endif

void spare_everything(void) {
#ifdef TLBKIT_GUEST
    a_host_flushes_what_it_has_taken_away();
#endif
#ifdef TLBKIT_ISOLATED
    an_isolated_cpu_flushes_when_it_enters_the_kernel();
#endif
#ifdef TLBKIT_BROADCAST
    invlpgb_reaches_all_cpus();
    a_machine_without_it_says_so();
#endif
#ifdef TLBKIT_EARLY
    an_early_answer_is_told_to_handlers();
#endif
#ifdef TLBKIT_REUSE
    what_is_deferred_comes_back_when_it_is_needed();
#endif
#ifdef TLBKIT_DIRECTORIES
    a_flush_interrupts_those_that_have_hooked_the_table();
#endif
    table = &hardware;
}
