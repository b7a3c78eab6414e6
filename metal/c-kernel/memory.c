// Frames, and page tables of four levels in which one table of entries matters.

#include "kernel.h"

#define KERNEL_BASE 0xffffffff80000000ull
#define FRAMES 512
#define WORDS (PAGE / 8)
#define PRESENT_WRITE 0x3ull
#define GLOBAL 0x100ull
#define FRAME_MASK 0x000ffffffffff000ull

extern uint64_t boot_tables[];

static uint64_t frames[FRAMES][WORDS] __attribute__((aligned(4096)));
static uint64_t free_frames[FRAMES];
static unsigned free_count;
static bool frames_lock;
static uint64_t kernel_table[WORDS] __attribute__((aligned(4096)));
volatile uint64_t *const kernel_entries = kernel_table;

static uint64_t physical(const void *at) { return (uint64_t)at - KERNEL_BASE; }
static uint64_t *direct(uint64_t frame) { return (uint64_t *)(DIRECT_MAP + frame); }

static void lock(void) {
    while (__atomic_exchange_n(&frames_lock, true, __ATOMIC_ACQUIRE))
        relax();
}
static void unlock(void) { __atomic_store_n(&frames_lock, false, __ATOMIC_RELEASE); }

static void fill(uint64_t frame, uint64_t value) {
    for (unsigned i = 0; i < WORDS; i++)
        ((volatile uint64_t *)direct(frame))[i] = value;
}

uint64_t frame_of(uint64_t value) {
    lock();
    CHECK(free_count != 0);
    uint64_t frame = free_frames[--free_count];
    unlock();
    fill(frame, value);
    return frame;
}

void frame_free(void *count, uint64_t frame) {
    fill(frame, POISON);
    lock();
    free_frames[free_count++] = frame;
    unlock();
    if (count)
        ++*(unsigned *)count;
}

static uint64_t *table_below(uint64_t *entry) {
    if (!(*entry & PRESENT_WRITE))
        *entry = frame_of(0) | PRESENT_WRITE;
    return direct(*entry & FRAME_MASK);
}

// The entry of the lowest but one level that leads to the table of `va`.
static uint64_t *entry_above(uint64_t *root, uint64_t va) {
    uint64_t *second = table_below(&root[va >> 39 & 511]);
    uint64_t *third = table_below(&second[va >> 30 & 511]);
    return &third[va >> 21 & 511];
}

void memory_start(void) {
    for (unsigned i = 0; i < FRAMES; i++)
        free_frames[free_count++] = physical(frames[i]);
    uint64_t *root = direct(kernel_root());
    *entry_above(root, KERNEL_WINDOW) = physical(kernel_table) | PRESENT_WRITE;
    // The CPUs run high now; what `tlbkit_bring_up` flushes is this.
    root[0] = 0;
}

uint64_t kernel_root(void) { return (uint64_t)boot_tables; }

void process_make(struct process *process) {
    process->root = frame_of(0);
    uint64_t *root = direct(process->root);
    for (unsigned i = WORDS / 2; i < WORDS; i++)
        root[i] = direct(kernel_root())[i];
    process->entries = table_below(entry_above(root, USER_AREA));
    for (unsigned page = 0; page < AREA_PAGES; page++)
        user_map(process, page, 0);
    OK(tlbkit_space_init(&process->space, &machine, process->root, process->set, 1));
}

void process_free(struct process *process) {
    uint64_t *second = table_below(&direct(process->root)[0]), *third = table_below(&second[0]);
    for (unsigned page = 0; page < AREA_PAGES; page++)
        if (process->entries[page])
            frame_free(NULL, user_map(process, page, 0));
    uint64_t lowest = third[USER_AREA >> 21 & 511] & FRAME_MASK;
    frame_free(NULL, lowest);
    frame_free(NULL, second[0] & FRAME_MASK);
    frame_free(NULL, direct(process->root)[0] & FRAME_MASK);
    frame_free(NULL, process->root);
}

static uint64_t exchange(volatile uint64_t *entry, uint64_t value) {
    return __atomic_exchange_n(entry, value, __ATOMIC_SEQ_CST) & FRAME_MASK;
}

uint64_t user_map(struct process *process, unsigned page, uint64_t frame) {
    return exchange(&process->entries[page], frame ? frame | PRESENT_WRITE : 0);
}

uint64_t kernel_map(unsigned page, uint64_t frame) {
    return exchange(&kernel_entries[page], frame ? frame | PRESENT_WRITE | GLOBAL : 0);
}

static uint64_t read(uint64_t va) {
    uint64_t value;
    return probe((const uint64_t *)va, &value) ? value : 0;
}

uint64_t user_read(unsigned page) { return read(USER_AREA + page * PAGE); }
uint64_t kernel_read(unsigned page) { return read(KERNEL_WINDOW + page * PAGE); }
