// What tracepoints are told: each event once, on the CPU where it happens, and nothing in an archive without them.

#include "machine.h"
#include "use.h"

enum { MOST = 32 };

static struct seen {
    uint32_t cpu, event;
    uint64_t value;
} seen[MOST];
static unsigned seen_count;

static void note(uint32_t cpu, uint32_t event, uint64_t value) {
    CHECK(seen_count < MOST);
    seen[seen_count++] = (struct seen){cpu, event, value};
}

// The next event is this one; what was seen is forgotten when all of it has been asked for.
static void expect(unsigned index, uint32_t cpu, uint32_t event, uint64_t value) {
#ifdef TLBKIT_EVENTS
    CHECK(index < seen_count);
    CHECK(seen[index].cpu == cpu && seen[index].event == event && seen[index].value == value);
#else
    (void)index, (void)cpu, (void)event, (void)value;
    CHECK(seen_count == 0);
#endif
}

static void no_more(unsigned count) {
#ifdef TLBKIT_EVENTS
    CHECK(seen_count == count);
#else
    (void)count;
#endif
    seen_count = 0;
}

static void flush(uint32_t flags) {
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K | flags, TLBKIT_REASON_REMOVE_PTE));
}

static void a_switch_says_what_it_kept(void) {
    switch_to(0, &space_a);
    expect(0, 0, TLBKIT_EVENT_SWITCH_FLUSHED, 0), no_more(1);
    switch_to(0, &space_b);
    expect(0, 0, TLBKIT_EVENT_SWITCH_FLUSHED, 0), no_more(1);
    switch_to(0, &space_a);
    expect(0, 0, TLBKIT_EVENT_SWITCH_KEPT, 0), no_more(1);
    switch_to(0, &space_a);
    no_more(0);
}

static void a_flush_says_when_it_begins_and_ends(void) {
    switch_to(1, &space_a);
    no_more(1);
    flush(0);
    expect(0, 0, TLBKIT_EVENT_FLUSH_BEGIN, 1);
    expect(1, 1, TLBKIT_EVENT_ANSWER_BEGIN, 0);
    expect(2, 1, TLBKIT_EVENT_ANSWER_END, 0);
    expect(3, 0, TLBKIT_EVENT_FLUSH_LOCAL_DONE, 0);
    expect(4, 0, TLBKIT_EVENT_FLUSH_END, 0), no_more(5);
    flush(TLBKIT_FLUSH_EVERYTHING);
    expect(0, 0, TLBKIT_EVENT_FLUSH_BEGIN, UINT32_MAX), no_more(5);
}

// Issues a flush that CPU 1 has not been interrupted for yet.
static void issue(struct tlbkit_gather *gather) {
    is_delivery_held = true;
    OK(tlbkit_gather_begin(gather, &machine, &space_a, NULL));
    OK(tlbkit_gather_range(gather, 0, USER_VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_SCOPE_NON_GLOBAL, TLBKIT_REASON_REMOVE_PTE));
    OK(tlbkit_gather_issue(gather, 0));
    expect(0, 0, TLBKIT_EVENT_FLUSH_BEGIN, 1);
    expect(1, 0, TLBKIT_EVENT_FLUSH_LOCAL_DONE, 0);
    expect(2, 0, TLBKIT_EVENT_FLUSH_ISSUED, 0), no_more(3);
}

static void end(struct tlbkit_gather *gather, uint32_t found) {
    is_delivery_held = false;
    deliver();
    expect(0, 1, TLBKIT_EVENT_ANSWER_BEGIN, 0);
    expect(1, 1, found, 0);
    expect(2, 1, TLBKIT_EVENT_ANSWER_END, 0), no_more(3);
    OK(tlbkit_gather_wait(gather, 0));
    expect(0, 0, TLBKIT_EVENT_FLUSH_END, 0), no_more(1);
}

static void an_answer_says_that_it_had_nothing_to_do(void) {
    struct tlbkit_gather gather;
    issue(&gather);
    switch_to(1, &space_b);
    no_more(1);
    end(&gather, TLBKIT_EVENT_WRONG_SPACE);
    switch_to(1, &space_a);
    no_more(1);
    issue(&gather);
    switch_to(1, &space_b);
    switch_to(1, &space_a);
    no_more(2);
    end(&gather, TLBKIT_EVENT_ALREADY_CURRENT);
}

static void who_was_lazy_says_what_it_left(void) {
    go_idle(1);
    no_more(0);
    flush(TLBKIT_FLUSH_TABLES_FREED);
    expect(1, 1, TLBKIT_EVENT_ANSWER_BEGIN, 0);
    expect(2, 1, TLBKIT_EVENT_LAZY_LEFT, (uintptr_t)&space_a);
    no_more(6);
}

void tell_everything(void) {
    struct tlbkit_hardware_ops telling = hardware;
    telling.event = note;
    table = &telling;
    preset = "events";
    machine_begin("tlbkit");
    seen_count = 0;
    a_switch_says_what_it_kept();
    a_flush_says_when_it_begins_and_ends();
    an_answer_says_that_it_had_nothing_to_do();
    who_was_lazy_says_what_it_left();
    table = &hardware;
}
