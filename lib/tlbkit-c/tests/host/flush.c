// Flushes with flags, on one CPU alone, and what a kernel is told: each call does what its comment says, and no less.

#include "machine.h"
#include "use.h"

enum { PAGE = 4096, FOREIGN = 55 };

static void all_run_a(const char *policy) {
    preset = policy;
    machine_begin(policy);
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        switch_to(cpu, &space_a);
}

static void everything_goes_if_it_is_said(void) {
    all_run_a("tlbkit");
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        CHECK(touch(cpu, 6) == 2006);
    set_page(&space_a, 6, FOREIGN);
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_FORK));
    CHECK(touch(0, 6) == 2006 && touch(3, 6) == 2006);
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K | TLBKIT_FLUSH_EVERYTHING,
                          TLBKIT_REASON_FORK));
    CHECK(touch(0, 6) == FOREIGN && touch(3, 6) == FOREIGN);
    CHECK(touch_kernel(0, 6) == 1006);
    set_page(NULL, 6, FOREIGN);
    OK(tlbkit_flush_kernel_range(&machine, 1, KERNEL_VA, 1, TLBKIT_STRIDE_PAGE4K | TLBKIT_FLUSH_EVERYTHING,
                                 TLBKIT_REASON_KERNEL_REMOVE));
    CHECK(touch_kernel(0, 6) == FOREIGN);
}

enum { MOST = 4 };
static uint64_t dropped[MOST];
static unsigned drops;

static void note_invlpg(uint32_t cpu, uint64_t va) {
    CHECK(drops < MOST);
    dropped[drops++] = va;
    hardware.invlpg(cpu, va);
}

// Two pages of each size: the second begins where the first ends, in every call that has a stride.
static void the_stride_says_how_far_apart_pages_are(void) {
    static struct tlbkit_hardware_ops noting;
    static const uint32_t strides[] = {TLBKIT_STRIDE_PAGE4K, TLBKIT_STRIDE_PAGE2M, TLBKIT_STRIDE_PAGE1G};
    const uint64_t user = 1ull << 30, kernel = KERNEL_VA;
    noting = hardware, noting.invlpg = note_invlpg;
    table = &noting;
    preset = "strides";
    for (unsigned i = 0; i < sizeof strides / sizeof *strides; i++) {
        const uint32_t stride = strides[i];
        const uint64_t bytes = 1ull << (stride == TLBKIT_STRIDE_PAGE4K ? 12 : stride == TLBKIT_STRIDE_PAGE2M ? 21 : 30);
        for (unsigned call = 0; call < 5; call++) {
            const bool is_of_kernel = call >= 3;
            const uint64_t va = is_of_kernel ? kernel : user;
            machine_begin(NULL);
            switch_to(0, &space_a);
            drops = 0;
            if (call == 0)
                OK(tlbkit_flush_range(&machine, 0, &space_a, va, 2, stride, TLBKIT_REASON_FORK));
            else if (call == 1)
                OK(tlbkit_flush_range_alone(&machine, 0, &space_a, va, 2, stride));
            else if (call == 2)
                OK(tlbkit_flush_this_cpu(&machine, 0, va, 2, stride));
            else if (call == 3)
                OK(tlbkit_flush_kernel_this_cpu(&machine, 0, va, 2, stride));
            else {
                irqs_on[1] = irqs_on[2] = irqs_on[3] = false;
                OK(tlbkit_offline(&machine, 1));
                OK(tlbkit_offline(&machine, 2));
                OK(tlbkit_offline(&machine, 3));
                OK(tlbkit_flush_kernel_range(&machine, 0, va, 2, stride, TLBKIT_REASON_KERNEL_REMOVE));
            }
            CHECK(drops == 2 && dropped[0] == va && dropped[1] == va + bytes);
        }
    }
    table = &hardware;
}

static const struct tlbkit_space *told_of;
static void note_left(uint32_t cpu, struct tlbkit_space *space) {
    CHECK(!irqs_on[cpu]);
    told_of = space;
}

// A lazy CPU may walk what is freed: it is told, leaves, and says so.
static void freed_tables_reach_lazy_cpus(void) {
    struct tlbkit_hardware_ops telling = hardware;
    telling.lazy_left = note_left;
    table = &telling;
    const uint32_t flags[] = {0, TLBKIT_FLUSH_TABLES_FREED, TLBKIT_FLUSH_TABLES_FREED | TLBKIT_FLUSH_EVERYTHING};
    for (unsigned n = 0; n < 3; n++) {
        const unsigned with_tables = n > 0;
        all_run_a("tlbkit");
        go_idle(2);
        told_of = NULL;
        interrupts[2] = 0;
        irqs_on[2] = false;
        CHECK(tlbkit_loaded(&machine, 2) >> 12 == root_of(&space_a) >> 12);
        irqs_on[2] = true;
        OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1,
                              TLBKIT_STRIDE_PAGE4K | flags[n], TLBKIT_REASON_FREE_TABLE));
        CHECK(interrupts[2] == with_tables);
        CHECK(told_of == (with_tables ? &space_a : NULL));
        irqs_on[2] = false;
        CHECK(tlbkit_loaded(&machine, 2) == (with_tables ? root_of(NULL) : root_of(&space_a) + 1));
        irqs_on[2] = true;
    }
    table = &hardware;
}

// With interrupts off nobody can be told: it says that a lazy CPU must be, if a table is freed, and only then.
static void freed_tables_are_not_flushed_alone(void) {
    const uint32_t page = TLBKIT_STRIDE_PAGE4K, table_too = page | TLBKIT_FLUSH_TABLES_FREED;
    preset = "tables alone";
    machine_begin(NULL);
    switch_to(0, &space_a);
    switch_to(2, &space_a);
    go_idle(2);
    irqs_on[0] = false;
    OK(tlbkit_flush_range_alone(&machine, 0, &space_a, USER_VA, 1, page));
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, page, TLBKIT_REASON_FREE_TABLE));
    CHECK(tlbkit_flush_range_alone(&machine, 0, &space_a, USER_VA, 1, table_too) == TLBKIT_STATUS_IRQS_OFF);
    CHECK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, table_too, TLBKIT_REASON_FREE_TABLE) ==
          TLBKIT_STATUS_IRQS_OFF);
    irqs_on[0] = true;
}

// Kernel tables that are freed: paths to them go, so it is not page by page.
static void freed_kernel_tables_drop_all(void) {
    all_run_a("tlbkit");
    CHECK(touch(1, 2) == 2002);
    set_page(&space_a, 2, FOREIGN);
    OK(tlbkit_flush_kernel_range(&machine, 0, KERNEL_VA, 1, TLBKIT_STRIDE_PAGE4K | TLBKIT_FLUSH_TABLES_FREED,
                                 TLBKIT_REASON_KERNEL_REMOVE));
    CHECK(touch(1, 2) == FOREIGN);
}

static void a_span_is_five_hundred_and_twelve_gib(void) {
    all_run_a("tlbkit");
    CHECK(touch(1, 2) == 2002);
    set_page(&space_a, 2, FOREIGN);
    OK(tlbkit_flush_range(&machine, 0, &space_a, 0, 1, TLBKIT_STRIDE_SPAN512G | TLBKIT_FLUSH_TABLES_FREED,
                          TLBKIT_REASON_FREE_TABLE));
    CHECK(touch(1, 2) == FOREIGN);
    CHECK(tlbkit_flush_range(&machine, 0, &space_a, 0, 1, 38, TLBKIT_REASON_FORK) == TLBKIT_STATUS_BAD_VALUE);
}

/** More pages than 32 bits count: what a fork names that gives its whole half. */
static void a_count_of_more_than_32_bits_is_not_cut(void) {
    all_run_a("tlbkit");
    CHECK(touch(1, 2) == 2002);
    set_page(&space_a, 2, FOREIGN);
    OK(tlbkit_flush_range(&machine, 0, &space_a, 0, UINT64_C(1) << 35, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_FORK));
    CHECK(touch(1, 2) == FOREIGN);
}

static enum tlbkit_status patch(uint32_t page) {
    return tlbkit_flush_range(&machine, 0, &space_a, USER_VA + page * PAGE, 1, TLBKIT_STRIDE_PAGE4K,
                              TLBKIT_REASON_WRITE_PROTECT);
}

static void interrupts_may_be_off_if_nobody_must_be_told(void) {
    preset = "alone";
    machine_begin(NULL);
    switch_to(0, &space_a);
    switch_to(1, &space_a);
    switch_to(1, &space_b); /* in the set, and needs no interrupt */
    CHECK(touch(0, 1) == 2001);
    set_page(&space_a, 1, FOREIGN);
    irqs_on[0] = false;
    OK(patch(1));
    CHECK(touch(0, 1) == FOREIGN && interrupts[1] == 0);
    irqs_on[1] = true;
    switch_to(1, &space_a);
    CHECK(touch(1, 1) == FOREIGN && touch(0, 3) == 2003);
    set_page(&space_a, 3, FOREIGN);
    CHECK(patch(3) == TLBKIT_STATUS_IRQS_OFF);
    CHECK(tlbkit_flush_range_alone(&machine, 0, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K) == TLBKIT_STATUS_IRQS_OFF);
    CHECK(touch(0, 3) == FOREIGN && interrupts[1] == 0);
    irqs_on[0] = true;
    CHECK(tlbkit_flush_range_alone(&machine, 0, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K) == TLBKIT_STATUS_IRQS_OFF);
    OK(patch(3));
    CHECK(interrupts[1] == 1);
}

// A gather too, while one CPU is online, as at boot: there is nobody to wait for.
static void interrupts_may_be_off_while_one_cpu_is_online(void) {
    preset = "one online";
    machine_begin(NULL);
    switch_to(0, &space_a);
    for (uint32_t cpu = 1; cpu < CPUS; cpu++) {
        irqs_on[cpu] = false;
        OK(tlbkit_offline(&machine, cpu));
    }
    CHECK(touch(0, 1) == 2001);
    set_page(&space_a, 1, FOREIGN);
    irqs_on[0] = false;
    struct tlbkit_gather gather;
    OK(tlbkit_gather_begin(&gather, &machine, &space_a, NULL));
    OK(tlbkit_gather_range(&gather, 0, USER_VA + PAGE, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_SCOPE_NON_GLOBAL, TLBKIT_REASON_FORK));
    OK(tlbkit_bring_up(&machine, 1));
    CHECK(tlbkit_gather_finish(&gather, 0) == TLBKIT_STATUS_IRQS_OFF);
    OK(tlbkit_offline(&machine, 1));
    OK(tlbkit_gather_finish(&gather, 0));
    CHECK(touch(0, 1) == FOREIGN);
    irqs_on[0] = true;
}

// On one CPU alone, with and without isolation: others keep what they hold.
static void one_cpu_drops(const char *policy) {
    all_run_a(policy);
    bool is_isolated = policy != NULL;
    CHECK(touch(0, 1) == 2001 && touch(1, 1) == 2001 && touch_kernel(0, 2) == 1002 && touch_kernel(1, 2) == 1002);
    set_page(&space_a, 1, FOREIGN);
    set_page(NULL, 2, FOREIGN);
    OK(tlbkit_flush_loaded_this_cpu(&machine, 0));
    CHECK(touch(0, 1) == FOREIGN && touch(1, 1) == 2001 && touch_kernel(0, 2) == 1002);
    OK(tlbkit_flush_kernel_this_cpu(&machine, 0, KERNEL_VA + 2 * PAGE, 1, TLBKIT_STRIDE_PAGE4K));
    CHECK(touch_kernel(0, 2) == FOREIGN && touch_kernel(1, 2) == 1002);
    unsigned before = invpcids;
    OK(tlbkit_flush_all_this_cpu(&machine, 1));
    CHECK(invpcids == before + 1 && touch(1, 1) == FOREIGN && touch_kernel(1, 2) == FOREIGN);
    if (!is_isolated)
        return;
    /* Kernel pages are not global: what other slots hold of them is stale. The next switch to one flushes it. */
    switch_to(0, &space_b);
    switch_to(0, &space_a);
    CHECK(touch(0, 4) == 2004);
    switch_to(0, &space_b);
    OK(tlbkit_flush_kernel_this_cpu(&machine, 0, KERNEL_VA, 1, TLBKIT_STRIDE_PAGE4K));
    set_page(&space_a, 4, FOREIGN);
    switch_to(0, &space_a);
    CHECK(touch(0, 4) == FOREIGN);
}

void flush_everything(void) {
    everything_goes_if_it_is_said();
    the_stride_says_how_far_apart_pages_are();
    freed_tables_reach_lazy_cpus();
    freed_tables_are_not_flushed_alone();
    freed_kernel_tables_drop_all();
    a_span_is_five_hundred_and_twelve_gib();
    a_count_of_more_than_32_bits_is_not_cut();
    interrupts_may_be_off_if_nobody_must_be_told();
    interrupts_may_be_off_while_one_cpu_is_online();
    one_cpu_drops(NULL);
    one_cpu_drops("tlbkit:pti=on");
}
