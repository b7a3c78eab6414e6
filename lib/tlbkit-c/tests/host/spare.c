// CPUs that get no interrupt: a host flushes those that it has taken away, isolated ones flush when they enter the kernel,
// and INVLPGB reaches all. CPUs that are not waited for until they have flushed. A machine without a host and INVLPGB
// behaves as ever.

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

#if defined(TLBKIT_GUEST) || defined(TLBKIT_BROADCAST) || defined(TLBKIT_EARLY)
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
    table = &hardware;
}
