// The whole header as a kernel uses it, under every preset: after each flush no CPU reads through an old translation.

#include "use.h"

#include <stdio.h>
#include <string.h>

#include "machine.h"

// A policy, and what can be told from outside.
struct known {
    const char *text;
    bool is_lazy, skips_lazy, awaits_end, is_always_full;
};

static const struct known POLICIES[] = {
    {"tlbkit", true, true, true, false},
    {"tlbkit:lru=1+lazy=off", false, false, true, false},
    {"tlbkit:pcid=off+lazy=once+set=exact", true, false, true, false},
    {"tlbkit:lazy_refs=shot-down", true, true, false, false},
    {"tlbkit:pcid=15+set=with-tables/2+ceiling=0+local=before", true, true, true, true},
#ifdef TLBKIT_HISTORY
    {"linux-3.4", true, false, true, true},
    {"linux-3.13", true, false, true, false},
    {"linux-3.13-altershift", true, false, true, false},
    {"linux-3.14", true, false, true, false},
    {"linux-4.13", true, false, true, false},
    {"linux-4.14", false, false, true, false},
    {"linux-4.20", true, true, true, false},
    {"linux-6.18", true, true, true, false},
    {"netbsd-5.0", true, false, false, false},
    {"netbsd-10", true, false, false, false},
    {"netbsd-5.0-batched", true, false, false, false},
    {"freebsd-14", false, false, false, false},
    {"asterinas", true, false, false, false},
    {"xnu", false, false, true, true},
#endif
};

// Frames in the order in which they were freed.
static uint64_t freed[PAGES];
static unsigned freed_count;

// Frees a frame, after looking for a CPU that can still reach it.
static void release(void *context, uint64_t frame) {
    CHECK(context == &freed_count);
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        for (unsigned page = 0; page < PAGES; page++)
            if (tlbkit_is_running(&machine, cpu, &space_a))
                CHECK(touch(cpu, page) != frame);
    freed[freed_count++] = frame;
}

static void spaces_and_switches(void) {
    CHECK(tlbkit_space_id(&space_a) != 0 && tlbkit_space_id(&space_a) != tlbkit_space_id(&space_b));
    for (unsigned turn = 0; turn < 4; turn++) {
        switch_to(0, &space_a);
        CHECK(tlbkit_is_running(&machine, 0, &space_a) && !tlbkit_is_running(&machine, 0, &space_b));
        CHECK(touch(0, 1) == 2001);
        switch_to(0, &space_b);
        CHECK(touch(0, 1) == 3001);
    }
}

static void a_range_is_flushed_on_every_cpu(void) {
    for (uint32_t cpu = 0; cpu < CPUS; cpu++) {
        switch_to(cpu, &space_a);
        CHECK(touch(cpu, 3) == 2003);
    }
    uint64_t before = tlbkit_space_generation(&space_a);
    set_page(&space_a, 3, 77);
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA + 3 * 4096, 1, TLBKIT_STRIDE_PAGE4K,
                          TLBKIT_REASON_WRITE_PROTECT));
    CHECK(tlbkit_space_generation(&space_a) == before + 1);
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        CHECK(touch(cpu, 3) == 77);
}

static void a_gather_flushes_before_it_frees(void) {
    uint64_t array[3];
    struct tlbkit_frames frames = {.array = array, .capacity = 3, .release = release, .context = &freed_count};
    struct tlbkit_gather gather;
    freed_count = 0;
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        for (unsigned page = 0; page < PAGES; page++)
            (void)touch(cpu, page);
    OK(tlbkit_gather_begin(&gather, &machine, &space_a, &frames));
#ifdef TLBKIT_HISTORY
    OK(tlbkit_gather_active_pages(&gather, PAGES));
#endif
    for (unsigned page = 4; page < 7; page++) {
        set_page(&space_a, page, NO_FRAME);
        OK(tlbkit_gather_unmap(&gather, 1, USER_VA + page * 4096ull, TLBKIT_STRIDE_PAGE4K, TLBKIT_SCOPE_NON_GLOBAL,
                               TLBKIT_REASON_REMOVE_PTE, 2000 + page));
    }
#ifdef TLBKIT_HISTORY
    if (tlbkit_gather_wants_walk(&gather, 1))
        OK(tlbkit_gather_everything(&gather));
#endif
    CHECK(tlbkit_gather_hold(&gather, 1) == TLBKIT_STATUS_GATHER_FULL);
    CHECK(tlbkit_gather_unmap(&gather, 1, USER_VA, TLBKIT_STRIDE_PAGE4K, TLBKIT_SCOPE_NON_GLOBAL, TLBKIT_REASON_REMOVE_PTE,
                              1) == TLBKIT_STATUS_GATHER_FULL);
    CHECK(tlbkit_gather_unmap_table(&gather, 1, USER_VA, 0, 1) == TLBKIT_STATUS_GATHER_FULL);
    CHECK(freed_count == 0);
    OK(tlbkit_gather_finish(&gather, 1));
    CHECK(freed_count == 3 && freed[0] == 2004 && freed[2] == 2006);
    CHECK(tlbkit_gather_finish(&gather, 1) == TLBKIT_STATUS_NOT_MADE);
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        CHECK(touch(cpu, 4) == NO_FRAME && touch(cpu, 6) == NO_FRAME);
}

static void name_and_hold(struct tlbkit_gather *gather, const struct tlbkit_frames *frames, unsigned page) {
    OK(tlbkit_gather_begin(gather, &machine, &space_a, frames));
    set_page(&space_a, page, NO_FRAME);
    OK(tlbkit_gather_range(gather, 1, USER_VA + page * 4096ull, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_SCOPE_NON_GLOBAL,
                           TLBKIT_REASON_REMOVE_PTE));
    OK(tlbkit_gather_hold(gather, 2000 + page));
}

static void deliver_at_last(uint32_t cpu) {
    (void)cpu;
    is_delivery_held = false, while_waiting = NULL;
    deliver();
}

static void an_issued_gather_frees_when_it_was_waited_for(void) {
    enum { ISSUED = 6 }; /* more than there are mailboxes */
    uint64_t array[ISSUED];
    struct tlbkit_gather gathers[ISSUED];
    bool is_done;
    freed_count = 0;
    for (unsigned page = 0; page < ISSUED; page++) {
        set_page(&space_a, page, 2000 + page);
        OK(tlbkit_flush_range(&machine, 1, &space_a, USER_VA + page * 4096ull, 1, TLBKIT_STRIDE_PAGE4K,
                              TLBKIT_REASON_WRITE_PROTECT));
    }
    for (unsigned page = 0; page < ISSUED; page++)
        for (uint32_t cpu = 0; cpu < CPUS; cpu++)
            CHECK(touch(cpu, page) == 2000 + page);
    is_delivery_held = true;
    irqs_on[1] = false; /* as under a spin lock */
    for (unsigned page = 0; page < ISSUED; page++) {
        struct tlbkit_frames frames = {.array = array + page, .capacity = 1, .release = release, .context = &freed_count};
        name_and_hold(&gathers[page], &frames, page);
        OK(tlbkit_gather_issue(&gathers[page], 1));
        CHECK(touch(1, page) == NO_FRAME && touch(0, page) == 2000 + page);
        OK(tlbkit_gather_is_done(&gathers[page], 1, &is_done));
        CHECK(!is_done);
    }
    CHECK(tlbkit_gather_wait(&gathers[0], 1) == TLBKIT_STATUS_IRQS_OFF);
    CHECK(tlbkit_gather_hold(&gathers[0], 1) == TLBKIT_STATUS_NOT_MADE);
    CHECK(tlbkit_gather_finish(&gathers[0], 1) == TLBKIT_STATUS_NOT_MADE);
    irqs_on[1] = true;
    is_delivery_held = false;
    deliver();
    OK(tlbkit_gather_is_done(&gathers[0], 1, &is_done));
    CHECK(is_done && freed_count == 0);
    irqs_on[1] = false;
    OK(tlbkit_gather_wait(&gathers[0], 1)); /* nobody is waited for */
    irqs_on[1] = true;
    CHECK(freed_count == 1 && freed[0] == 2000);
    OK(tlbkit_gather_wait(&gathers[1], 2)); /* the task has gone to another CPU */
    for (unsigned page = ISSUED - 1; page > 1; page--)
        OK(tlbkit_gather_wait(&gathers[page], 1));
    CHECK(freed_count == ISSUED);
    for (uint32_t cpu = 1; cpu < 3; cpu++) { /* the answers come in the wait */
        struct tlbkit_frames frames = {.array = array, .capacity = 1, .release = release, .context = &freed_count};
        set_page(&space_a, cpu, 2000 + cpu);
        CHECK(touch(0, cpu) == 2000 + cpu);
        is_delivery_held = true;
        name_and_hold(&gathers[0], &frames, cpu);
        OK(tlbkit_gather_issue(&gathers[0], 1));
        CHECK(touch(0, cpu) == 2000 + cpu);
        while_waiting = deliver_at_last;
        OK(tlbkit_gather_wait(&gathers[0], cpu)); /* on the CPU that issued it, and on another */
        CHECK(while_waiting == NULL);
    }
    CHECK(freed_count == ISSUED + 2);
    struct tlbkit_frames polled = {.array = array, .capacity = 1, .release = release, .context = &freed_count};
    set_page(&space_a, 3, 2003);
    CHECK(touch(0, 3) == 2003);
    is_delivery_held = true;
    irqs_on[1] = false; /* as in a kernel whose interrupts stay off */
    name_and_hold(&gathers[0], &polled, 3);
    OK(tlbkit_gather_issue(&gathers[0], 1));
    while_waiting = deliver_at_last;
    OK(tlbkit_gather_poll(&gathers[0], 1));
    CHECK(while_waiting == NULL && freed_count == ISSUED + 2);
    OK(tlbkit_gather_wait(&gathers[0], 1));
    irqs_on[1] = true;
    CHECK(freed_count == ISSUED + 3);
    CHECK(tlbkit_gather_wait(&gathers[0], 1) == TLBKIT_STATUS_NOT_MADE);
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        for (unsigned page = 0; page < ISSUED; page++)
            CHECK(touch(cpu, page) == NO_FRAME);
    for (unsigned page = 0; page < ISSUED; page++) {
        set_page(&space_a, page, 2000 + page);
        OK(tlbkit_flush_range(&machine, 1, &space_a, USER_VA + page * 4096ull, 1, TLBKIT_STRIDE_PAGE4K,
                              TLBKIT_REASON_WRITE_PROTECT));
    }
}

static void a_full_flush_needs_no_page_named(void) {
    struct tlbkit_gather gather;
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        (void)touch(cpu, 7);
    set_page(&space_a, 7, NO_FRAME);
    OK(tlbkit_gather_begin(&gather, &machine, &space_a, NULL));
    OK(tlbkit_gather_everything(&gather));
    OK(tlbkit_gather_finish(&gather, 1));
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        CHECK(touch(cpu, 7) == NO_FRAME);
}

// A frame that is held while nothing is named comes out flushed all the same; so does a table that was taken out whole.
static void nothing_comes_out_unflushed(void) {
    uint64_t array[1];
    struct tlbkit_frames frames = {.array = array, .capacity = 1, .release = release, .context = &freed_count};
    struct tlbkit_gather gather;
    for (unsigned page = 1; page < 3; page++) {
        freed_count = 0;
        for (uint32_t cpu = 0; cpu < CPUS; cpu++)
            CHECK(touch(cpu, page) == 2000 + page);
        OK(tlbkit_gather_begin(&gather, &machine, &space_a, &frames));
        set_page(&space_a, page, NO_FRAME);
        if (page == 1)
            OK(tlbkit_gather_hold(&gather, 2000 + page));
        else
            OK(tlbkit_gather_unmap_table(&gather, 0, USER_VA, 512, 2000 + page));
        OK(tlbkit_gather_finish(&gather, 0));
        CHECK(freed_count == 1 && freed[0] == 2000 + page);
        for (uint32_t cpu = 0; cpu < CPUS; cpu++)
            CHECK(touch(cpu, page) == NO_FRAME);
    }
}

// One page of each space, one flush; an unmap that comes before it and finds the page gone flushes what is owed.
static void a_batch_serves_many_spaces(void) {
    uint64_t array[2];
    struct tlbkit_frames frames = {.array = array, .capacity = 2, .release = release, .context = &freed_count};
    struct tlbkit_batch batch;
    struct tlbkit_gather gather;
    freed_count = 0;
    set_page(&space_a, 7, 2007);
    OK(tlbkit_flush_range(&machine, 1, &space_a, USER_VA + 7 * 4096, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_ENTER));
    for (uint32_t cpu = 0; cpu < CPUS; cpu++) {
        switch_to(cpu, cpu == 2 ? &space_b : &space_a);
        CHECK(touch(cpu, 7) == (cpu == 2 ? 3007 : 2007));
    }
    OK(tlbkit_batch_begin(&batch, &machine, &frames));
    irqs_on[1] = false; // under the lock of a page table
    set_page(&space_a, 7, NO_FRAME);
    OK(tlbkit_batch_unmap(&batch, 1, &space_a, 2007));
    set_page(&space_b, 7, NO_FRAME);
    OK(tlbkit_batch_revoke(&batch, 1, &space_b));
    OK(tlbkit_batch_hold(&batch, 3007));
    irqs_on[1] = true;
    CHECK(tlbkit_batch_hold(&batch, 1) == TLBKIT_STATUS_GATHER_FULL);
    CHECK(tlbkit_batch_unmap(&batch, 1, &space_a, 1) == TLBKIT_STATUS_GATHER_FULL);
    CHECK(tlbkit_batch_unmap_table(&batch, 1, &space_a, 1) == TLBKIT_STATUS_GATHER_FULL);
    CHECK(touch(0, 7) == 2007);
    OK(tlbkit_gather_begin(&gather, &machine, &space_a, NULL));
    OK(tlbkit_gather_finish(&gather, 3));
    CHECK(touch(0, 7) == NO_FRAME && touch(3, 7) == NO_FRAME && touch(2, 7) == 3007);
    OK(tlbkit_drain(&machine, 3, &space_b));
    CHECK(touch(2, 7) == NO_FRAME && freed_count == 0);
    OK(tlbkit_batch_flush(&batch, 1, TLBKIT_REASON_MIGRATE));
    CHECK(freed_count == 2 && freed[0] == 2007 && freed[1] == 3007);
    // It is open and empty: it has room again, and frees nothing twice.
    OK(tlbkit_batch_flush(&batch, 1, TLBKIT_REASON_MIGRATE));
    CHECK(freed_count == 2);
    OK(tlbkit_batch_unmap(&batch, 1, &space_b, 4007));
    OK(tlbkit_batch_hold(&batch, 5007));
    CHECK(tlbkit_batch_hold(&batch, 1) == TLBKIT_STATUS_GATHER_FULL);
    OK(tlbkit_batch_finish(&batch, 1, TLBKIT_REASON_MIGRATE));
    CHECK(freed_count == 4 && freed[2] == 4007 && freed[3] == 5007);
    CHECK(tlbkit_batch_flush(&batch, 1, TLBKIT_REASON_MIGRATE) == TLBKIT_STATUS_NOT_MADE);
    CHECK(tlbkit_batch_finish(&batch, 1, TLBKIT_REASON_MIGRATE) == TLBKIT_STATUS_NOT_MADE);
    CHECK(tlbkit_batch_revoke(&batch, 1, &space_a) == TLBKIT_STATUS_NOT_MADE);
    switch_to(2, &space_a);
}

static void one_cpu_is_flushed(void) {
    for (uint32_t cpu = 0; cpu < 2; cpu++)
        CHECK(touch(cpu, 6) == NO_FRAME);
    set_page(&space_a, 5, 55);
    CHECK(touch(0, 5) == 55 && touch(1, 5) == 55);
    set_page(&space_a, 5, 56);
    irqs_on[0] = false;
    OK(tlbkit_flush_this_cpu(&machine, 0, USER_VA + 5 * 4096, 1, TLBKIT_STRIDE_PAGE4K));
    irqs_on[0] = true;
    CHECK(touch(0, 5) == 56 && touch(1, 5) == 55);
    CHECK(tlbkit_flush_this_cpu(&machine, 0, USER_VA, 0, TLBKIT_STRIDE_PAGE4K) == TLBKIT_STATUS_BAD_VALUE);
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA + 5 * 4096, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_FORK));
}

static void a_lazy_cpu_finds_the_change_when_it_comes_back(const struct known *policy) {
    CHECK(touch(2, 0) == 2000);
    go_idle(2);
    CHECK(!tlbkit_is_running(&machine, 2, &space_a));
    unsigned before = interrupts[2];
    set_page(&space_a, 0, 88);
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_MIGRATE));
    if (policy->skips_lazy)
        CHECK(interrupts[2] == before);
    struct tlbkit_gather gather;
    OK(tlbkit_gather_begin(&gather, &machine, &space_a, NULL));
    OK(tlbkit_gather_tables_freed(&gather));
    OK(tlbkit_gather_finish(&gather, 0));
    if (policy->is_lazy)
        CHECK(interrupts[2] == before + 1);
    switch_to(2, &space_a);
    CHECK(touch(2, 0) == 88);
}

static void kernel_addresses_are_flushed_in_every_space(void) {
    switch_to(3, &space_b);
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        CHECK(touch_kernel(cpu, 2) == 1002);
    set_page(NULL, 2, 99);
    OK(tlbkit_flush_kernel_range(&machine, 0, KERNEL_VA + 2 * 4096, 1, TLBKIT_STRIDE_PAGE4K,
                                 TLBKIT_REASON_KERNEL_REMOVE));
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        CHECK(touch_kernel(cpu, 2) == 99);
}

static void a_cpu_can_leave_and_come_back(void) {
    irqs_on[3] = false;
    OK(tlbkit_offline(&machine, 3));
    CHECK(tlbkit_enter_lazy(&machine, 3) == TLBKIT_STATUS_CPU_OFFLINE);
    OK(tlbkit_answer(&machine, 3)); /* an interrupt that comes late */
    unsigned before = interrupts[3];
    set_page(&space_b, 0, 55);
    OK(tlbkit_flush_range(&machine, 0, &space_b, USER_VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_ENTER));
    CHECK(interrupts[3] == before);
    OK(tlbkit_bring_up(&machine, 3));
    irqs_on[3] = true;
    switch_to(3, &space_b);
    CHECK(touch(3, 0) == 55);
    OK(tlbkit_declare_stopped(&machine, 3));
    set_page(&space_b, 0, 56);
    OK(tlbkit_flush_range(&machine, 0, &space_b, USER_VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_ENTER));
    CHECK(interrupts[3] == before);
    irqs_on[3] = false;
    OK(tlbkit_bring_up(&machine, 3));
    irqs_on[3] = true;
}

static void a_space_ends(const struct known *policy) {
    for (uint32_t cpu = 0; cpu < CPUS; cpu++) {
        irqs_on[cpu] = false;
        OK(tlbkit_load_kernel(&machine, cpu));
        irqs_on[cpu] = true;
    }
    switch_to(1, &space_b);
    bool may_free = false;
    CHECK(tlbkit_space_destroy(&machine, 1, &space_b, &may_free) == TLBKIT_STATUS_SPACE_RUNS_HERE);
    go_idle(1);
    bool is_awaited = policy->awaits_end && policy->is_lazy;
    irqs_on[0] = false;
    if (policy->awaits_end)
        OK(tlbkit_space_destroy_later(&machine, 0, &space_b, &may_free));
    else
        CHECK(tlbkit_space_destroy_later(&machine, 0, &space_b, &may_free) == TLBKIT_STATUS_SHOT_DOWN);
    irqs_on[0] = true;
    if (!policy->awaits_end)
        OK(tlbkit_space_destroy(&machine, 0, &space_b, &may_free));
    CHECK(may_free == !is_awaited && last_left == NULL);
    irqs_on[1] = false;
    OK(tlbkit_load_kernel(&machine, 1));
    CHECK(last_left == (is_awaited ? &space_b : NULL));
    CHECK(tlbkit_switch_to(&machine, 1, &space_b) == TLBKIT_STATUS_NOT_MADE);
    irqs_on[1] = true;
}

#ifdef TLBKIT_HISTORY
static void nothing_is_counted(void) {
    uint64_t local = 7;
    struct tlbkit_size_count size = {7, 7};
    CHECK(tlbkit_count(&machine, 0, TLBKIT_REASON_FORK, TLBKIT_PLACE_LOCAL, &local) == TLBKIT_STATUS_NOT_COUNTED);
    CHECK(tlbkit_count_size(&machine, 0, 1, &size) == TLBKIT_STATUS_NOT_COUNTED);
}

static void counters_count(const struct known *policy) {
    uint64_t local = 7, remote = 7, kernel = 7;
    struct tlbkit_size_count size = {7, 7};
    OK(tlbkit_count(&machine, 0, TLBKIT_REASON_WRITE_PROTECT, TLBKIT_PLACE_LOCAL, &local));
    OK(tlbkit_count(&machine, 0, TLBKIT_REASON_WRITE_PROTECT, TLBKIT_PLACE_REMOTE, &remote));
    OK(tlbkit_count(&machine, 0, TLBKIT_REASON_KERNEL_REMOVE, TLBKIT_PLACE_KERNEL, &kernel));
    CHECK(local == 1 && remote == CPUS - 1 && kernel == 1);
    OK(tlbkit_count_size(&machine, 0, policy->is_always_full ? 0 : 1, &size));
    CHECK(size.samples != 0 && size.cycles != 0);
    OK(tlbkit_count_size(&machine, 0, 512, &size));
    CHECK(tlbkit_count_size(&machine, 0, 513, &size) == TLBKIT_STATUS_BAD_VALUE);
}
#endif

static void everything_under(const struct known *policy, const char *text) {
    preset = text;
    machine_begin(text);
    spaces_and_switches();
    a_range_is_flushed_on_every_cpu();
    a_gather_flushes_before_it_frees();
    a_full_flush_needs_no_page_named();
    nothing_comes_out_unflushed();
    a_batch_serves_many_spaces();
    one_cpu_is_flushed();
    a_lazy_cpu_finds_the_change_when_it_comes_back(policy);
    kernel_addresses_are_flushed_in_every_space();
    a_cpu_can_leave_and_come_back();
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        switch_to(cpu, &space_a);
    if (strncmp(preset, "tlbkit", 6) == 0) /* some older kernels flush when a page is named */
        an_issued_gather_frees_when_it_was_waited_for();
}

static void the_user_half_is_owed_a_flush(void) {
    preset = "tlbkit:pti=on";
    for (uint32_t how = TLBKIT_USER_FLUSH_INVPCID; how <= TLBKIT_USER_FLUSH_DEFERRED_CR3; how++) {
        machine_begin(preset);
        OK(tlbkit_set_user_flush(&machine, how));
        switch_to(0, &space_a);
        irqs_on[0] = false;
        OK(tlbkit_exit_to_user(&machine, 0));
        OK(tlbkit_enter_kernel(&machine, 0));
        irqs_on[0] = true;
        unsigned before = invpcids;
        OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_COPY_ON_WRITE));
        CHECK(invpcids - before == (how == TLBKIT_USER_FLUSH_INVPCID));
    }
}

static void the_ceiling_can_be_set(void) {
    machine_begin(NULL);
    preset = "ceiling";
    switch_to(0, &space_a);
    CHECK(touch(0, 7) == 2007);
    set_page(&space_a, 7, 66);
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 2, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_FORK));
    CHECK(touch(0, 7) == 2007);
    OK(tlbkit_set_ceiling(&machine, 1));
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 2, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_FORK));
    CHECK(touch(0, 7) == 66);
}

static uint32_t missing_seen;

static void see_missing(void *context, uint32_t missing) { *(uint32_t *)context |= 1u << missing; }

static void look_for_missing(uint32_t cpu) { OK(tlbkit_missing(&machine, cpu, see_missing, &missing_seen)); }

static void a_lost_interrupt_is_sent_again(void) {
    machine_begin(NULL);
    preset = "late";
    switch_to(0, &space_a);
    switch_to(1, &space_a);
    is_delivery_held = true;
    late_choice = TLBKIT_LATE_ASK_AGAIN;
    while_waiting = look_for_missing;
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_ENTER));
    CHECK(late_calls == 1 && interrupts[1] == 1 && missing_seen == 2);
}

static void a_cpu_without_tags_toggles_pge(void) {
    machine_begin(NULL);
    preset = "no tags";
    features_of_all = 0;
    irqs_on[0] = false;
    toggles = 0;
    OK(tlbkit_bring_up(&machine, 0));
    irqs_on[0] = true;
    CHECK(toggles == 1);
    spaces_and_switches();
}

void use_everything(void) {
    for (unsigned i = 0; i < sizeof POLICIES / sizeof *POLICIES; i++) {
        const struct known *policy = &POLICIES[i];
        everything_under(policy, policy->text);
#ifdef TLBKIT_HISTORY
        char text[96];
        snprintf(text, sizeof text, "%s%cstats=off", policy->text, strchr(policy->text, ':') ? '+' : ':');
        everything_under(policy, text);
        nothing_is_counted();
        a_space_ends(policy);
        snprintf(text, sizeof text, "%s%cstats=on", policy->text, strchr(policy->text, ':') ? '+' : ':');
        everything_under(policy, text);
        counters_count(policy);
#endif
        a_space_ends(policy);
    }
    the_user_half_is_owed_a_flush();
    the_ceiling_can_be_set();
    a_lost_interrupt_is_sent_again();
    a_cpu_without_tags_toggles_pge();
}
