// Calls in another CPU's name, and CPUs that do not answer: what `this_cpu`, `late` and `unanswered` are for.

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "machine.h"
#include "use.h"

#define WRONG(call) CHECK((call) == TLBKIT_STATUS_WRONG_CPU)

static unsigned released, given_up;

static uint32_t this_cpu(void) { return here; }

static void release(void *context, uint64_t frame) { (void)context, (void)frame, released++; }

static void begin(const struct tlbkit_hardware_ops *ops) {
    table = ops;
    machine_begin(NULL);
    switch_to(0, &space_a);
    switch_to(1, &space_a);
}

// A machine whose kernel can tell on which CPU it runs.
static void begin_telling(struct tlbkit_hardware_ops *ops) {
    *ops = hardware;
    ops->this_cpu = this_cpu;
    begin(ops);
}

static void every_call_in_another_cpus_name_is_refused(void) {
    static struct tlbkit_hardware_ops ops;
    begin_telling(&ops);
    uint64_t array[1];
    const struct tlbkit_frames frames = {.array = array, .capacity = 1, .release = release};
    const uint32_t k4 = TLBKIT_STRIDE_PAGE4K, local = TLBKIT_SCOPE_NON_GLOBAL, why = TLBKIT_REASON_FORK;
    struct tlbkit_gather gather;
    bool may_free = true;
    here = 1;
    OK(tlbkit_gather_begin(&gather, &machine, &space_a, &frames));
    irqs_on[0] = false;
    WRONG(tlbkit_bring_up(&machine, 0));
    WRONG(tlbkit_offline(&machine, 0));
    WRONG(tlbkit_switch_to(&machine, 0, &space_b));
    WRONG(tlbkit_enter_lazy(&machine, 0));
    WRONG(tlbkit_load_kernel(&machine, 0));
    WRONG(tlbkit_enter_kernel(&machine, 0));
    WRONG(tlbkit_exit_to_user(&machine, 0));
    WRONG(tlbkit_answer(&machine, 0));
    irqs_on[0] = true;
    CHECK(!tlbkit_is_running(&machine, 0, &space_a));
    WRONG(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, k4, why));
    WRONG(tlbkit_flush_this_cpu(&machine, 0, USER_VA, 1, k4));
    WRONG(tlbkit_flush_kernel_range(&machine, 0, KERNEL_VA, 1, k4, why));
    WRONG(tlbkit_gather_range(&gather, 0, USER_VA, 1, k4, local, why));
    WRONG(tlbkit_gather_unmap(&gather, 0, USER_VA, k4, local, why, 7));
    WRONG(tlbkit_gather_unmap_table(&gather, 0, USER_VA, 0, 7));
    WRONG(tlbkit_gather_finish(&gather, 0));
    WRONG(tlbkit_space_destroy(&machine, 0, &space_b, &may_free));
    WRONG(tlbkit_space_destroy_later(&machine, 0, &space_b, &may_free));
    WRONG(tlbkit_flush_range_alone(&machine, 0, &space_a, USER_VA, 1, k4));
    WRONG(tlbkit_flush_kernel_this_cpu(&machine, 0, KERNEL_VA, 1, k4));
    WRONG(tlbkit_flush_loaded_this_cpu(&machine, 0));
    WRONG(tlbkit_flush_all_this_cpu(&machine, 0));
    WRONG(tlbkit_drain(&machine, 0, &space_a));
    WRONG(tlbkit_gather_issue(&gather, 0));
    CHECK(tlbkit_loaded(&machine, 0) == 0);
    here = 0;
    struct tlbkit_gather issued;
    bool is_done;
    OK(tlbkit_gather_begin(&issued, &machine, &space_a, NULL));
    OK(tlbkit_gather_issue(&issued, 0));
    here = 1;
    WRONG(tlbkit_gather_is_done(&issued, 0, &is_done));
    WRONG(tlbkit_gather_wait(&issued, 0));
    WRONG(tlbkit_gather_poll(&issued, 0));
    here = 0;
    OK(tlbkit_gather_wait(&issued, 0));
    here = 1;
    struct tlbkit_batch batch;
    OK(tlbkit_batch_begin(&batch, &machine, &frames));
    WRONG(tlbkit_batch_revoke(&batch, 0, &space_a));
    WRONG(tlbkit_batch_unmap(&batch, 0, &space_a, 7));
    WRONG(tlbkit_batch_unmap_table(&batch, 0, &space_a, 7));
    WRONG(tlbkit_batch_flush(&batch, 0, why));
    WRONG(tlbkit_batch_finish(&batch, 0, why));
    here = 0;
    OK(tlbkit_batch_finish(&batch, 0, why)); /* nothing was named, and no frame was taken */
    CHECK(released == 0);
    CHECK(tlbkit_is_running(&machine, 0, &space_a)); /* nothing was changed */
    OK(tlbkit_gather_unmap(&gather, 0, USER_VA, k4, local, why, 7));
    OK(tlbkit_gather_finish(&gather, 0));
    CHECK(released == 1);
}

static void go_elsewhere(uint32_t cpu) {
    (void)cpu;
    here = 2;
    is_delivery_held = false;
    while_waiting = NULL;
    deliver();
}

// The task goes to another CPU while `call` waits, and is back when the next call is made.
#define WRONG_FOR_WHO_MIGRATES(call)                                                                                   \
    do {                                                                                                               \
        is_delivery_held = true, while_waiting = go_elsewhere;                                                         \
        WRONG(call);                                                                                                   \
        here = 0;                                                                                                      \
    } while (0)

static void issue_undelivered(struct tlbkit_gather *gather, const struct tlbkit_frames *frames) {
    is_delivery_held = true;
    OK(tlbkit_gather_begin(gather, &machine, &space_a, frames));
    OK(tlbkit_gather_unmap(gather, 0, USER_VA, TLBKIT_STRIDE_PAGE4K, TLBKIT_SCOPE_NON_GLOBAL, TLBKIT_REASON_REMOVE_PTE, 7));
    OK(tlbkit_gather_issue(gather, 0));
}

static void a_task_that_migrates_in_a_wait_is_told_and_nothing_is_freed(void) {
    static struct tlbkit_hardware_ops ops;
    uint64_t array[1];
    const struct tlbkit_frames frames = {.array = array, .capacity = 1, .release = release};
    const uint32_t k4 = TLBKIT_STRIDE_PAGE4K;
    struct tlbkit_gather gather;
    here = released = 0;
    begin_telling(&ops);
    OK(tlbkit_gather_begin(&gather, &machine, &space_a, &frames));
    OK(tlbkit_gather_unmap(&gather, 0, USER_VA, k4, TLBKIT_SCOPE_NON_GLOBAL, TLBKIT_REASON_REMOVE_PTE, 7));
    WRONG_FOR_WHO_MIGRATES(tlbkit_gather_finish(&gather, 0));
    CHECK(released == 0);
    WRONG_FOR_WHO_MIGRATES(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, k4, TLBKIT_REASON_FORK));
    WRONG_FOR_WHO_MIGRATES(tlbkit_flush_kernel_range(&machine, 0, KERNEL_VA, 1, k4, TLBKIT_REASON_FORK));
    struct tlbkit_batch batch;
    OK(tlbkit_batch_begin(&batch, &machine, &frames));
    OK(tlbkit_batch_unmap(&batch, 0, &space_a, 7));
    WRONG_FOR_WHO_MIGRATES(tlbkit_batch_flush(&batch, 0, TLBKIT_REASON_MIGRATE));
    OK(tlbkit_batch_unmap(&batch, 0, &space_a, 7));
    WRONG_FOR_WHO_MIGRATES(tlbkit_batch_finish(&batch, 0, TLBKIT_REASON_MIGRATE));
    issue_undelivered(&gather, &frames);
    WRONG_FOR_WHO_MIGRATES(tlbkit_gather_wait(&gather, 0));
    CHECK(released == 0);
    issue_undelivered(&gather, &frames);
    WRONG_FOR_WHO_MIGRATES(tlbkit_gather_poll(&gather, 0));
    CHECK(tlbkit_gather_wait(&gather, 0) == TLBKIT_STATUS_NOT_MADE && released == 0);
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, k4, TLBKIT_REASON_FORK));
}

// Only where the CPUs that hold the space are waited for.
static void a_task_that_migrates_while_it_ends_a_space_may_free_nothing(void) {
    static struct tlbkit_hardware_ops ops;
    bool may_free = true;
    here = 0;
    ops = hardware, ops.this_cpu = this_cpu;
    table = &ops;
    machine_begin("tlbkit:lazy_refs=shot-down");
    switch_to(1, &space_b);
    here = 1;
    go_idle(1);
    here = 0;
    WRONG_FOR_WHO_MIGRATES(tlbkit_space_destroy(&machine, 0, &space_b, &may_free));
    CHECK(!may_free);
}

static bool is_leaving;

static void send_and_leave(uint32_t cpu, uint32_t to) {
    hardware.send_ipi(cpu, to);
    if (is_leaving)
        here = 2;
}

// One more is issued than there are mailboxes: whoever looks whether that one is over asks first, and flushes again.
static void a_task_that_migrates_in_a_look_is_told_and_nothing_is_freed(void) {
    enum { ISSUED = 5 };
    static struct tlbkit_hardware_ops ops;
    uint64_t array[ISSUED];
    struct tlbkit_gather gathers[ISSUED];
    bool is_done;
    here = released = 0;
    begin_telling(&ops);
    ops.send_ipi = send_and_leave;
    begin(&ops);
    for (unsigned n = 0; n < ISSUED; n++) {
        const struct tlbkit_frames frames = {.array = array + n, .capacity = 1, .release = release};
        issue_undelivered(&gathers[n], &frames);
    }
    is_delivery_held = false;
    deliver();
    is_leaving = true;
    WRONG(tlbkit_gather_is_done(&gathers[ISSUED - 1], 0, &is_done));
    is_leaving = false, here = 0;
    CHECK(tlbkit_gather_wait(&gathers[ISSUED - 1], 0) == TLBKIT_STATUS_NOT_MADE && released == 0);
    for (unsigned n = 0; n < ISSUED - 1; n++)
        OK(tlbkit_gather_wait(&gathers[n], 0));
    CHECK(released == ISSUED - 1);
}

static void a_task_that_migrates_while_it_issues_is_told_and_nothing_is_freed(void) {
    static struct tlbkit_hardware_ops ops;
    uint64_t array[1];
    const struct tlbkit_frames frames = {.array = array, .capacity = 1, .release = release};
    struct tlbkit_gather gather;
    here = released = 0;
    begin_telling(&ops);
    ops.send_ipi = send_and_leave;
    begin(&ops);
    OK(tlbkit_gather_begin(&gather, &machine, &space_a, &frames));
    OK(tlbkit_gather_unmap(&gather, 0, USER_VA, TLBKIT_STRIDE_PAGE4K, TLBKIT_SCOPE_NON_GLOBAL, TLBKIT_REASON_REMOVE_PTE, 7));
    is_leaving = true;
    WRONG(tlbkit_gather_issue(&gather, 0));
    is_leaving = false, here = 0;
    CHECK(tlbkit_gather_wait(&gather, 0) == TLBKIT_STATUS_NOT_MADE && released == 0);
    CHECK(tlbkit_gather_finish(&gather, 0) == TLBKIT_STATUS_NOT_MADE && released == 0);
}

static bool is_moving;

// The task goes to CPU 1 before its interrupts are off.
static uint64_t save_elsewhere(uint32_t cpu) {
    if (is_moving)
        here = 1, is_moving = false;
    return hardware.irqs_save(cpu);
}

static void a_task_that_migrates_before_it_flushes_is_told_though_it_waits_for_nobody(void) {
    static struct tlbkit_hardware_ops ops;
    const uint32_t k4 = TLBKIT_STRIDE_PAGE4K;
    here = 0;
    begin_telling(&ops);
    ops.irqs_save = save_elsewhere;
    table = &ops;
    machine_begin(NULL);
    switch_to(0, &space_a);
#define WRONG_FOR_WHO_MOVES(call)                                                                                      \
    do {                                                                                                               \
        is_moving = true;                                                                                              \
        WRONG(call);                                                                                                   \
        here = 0;                                                                                                      \
    } while (0)
    WRONG_FOR_WHO_MOVES(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, k4, TLBKIT_REASON_FORK));
    irqs_on[0] = false;
    WRONG_FOR_WHO_MOVES(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, k4, TLBKIT_REASON_FORK));
    WRONG_FOR_WHO_MOVES(tlbkit_flush_range_alone(&machine, 0, &space_a, USER_VA, 1, k4));
    irqs_on[0] = true;
    WRONG_FOR_WHO_MOVES(tlbkit_flush_this_cpu(&machine, 0, USER_VA, 1, k4));
    WRONG_FOR_WHO_MOVES(tlbkit_flush_kernel_this_cpu(&machine, 0, KERNEL_VA, 1, k4));
    WRONG_FOR_WHO_MOVES(tlbkit_flush_loaded_this_cpu(&machine, 0));
    WRONG_FOR_WHO_MOVES(tlbkit_flush_all_this_cpu(&machine, 0));
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, k4, TLBKIT_REASON_FORK));
}

// Interrupts that are sent while this is positive are lost.
static int to_lose;
static void (*real_send_ipi)(uint32_t cpu, uint32_t to);

static void send_or_lose(uint32_t cpu, uint32_t to) {
    if (to_lose > 0)
        to_lose--;
    else
        real_send_ipi(cpu, to);
}

// No `late`, no `unanswered`: the library's own ways.
static void begin_with_defaults(struct tlbkit_hardware_ops *ops, uint32_t rounds) {
    *ops = hardware;
    real_send_ipi = ops->send_ipi;
    ops->send_ipi = send_or_lose;
    ops->late = NULL;
    ops->patience_turns = 100;
    ops->patience_rounds = rounds;
    begin(ops);
}

static void a_lost_interrupt_is_survived_by_default(void) {
    static struct tlbkit_hardware_ops ops;
    begin_with_defaults(&ops, 0);
    touch(1, 0);
    set_page(&space_a, 0, NO_FRAME);
    to_lose = 3;
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_REMOVE_PTE));
    CHECK(to_lose == 0 && touch(1, 0) == NO_FRAME);
}

static void hook(const struct tlbkit_misuse *misuse) {
    bool is_named = strcmp(misuse->message, "a flush is not answered by CPU 1") == 0;
    _exit(is_named && strlen(misuse->message) == misuse->message_bytes ? 42 : 43);
}

// In a process of its own, since the hook does not return: a flush of which `interrupts` are lost.
static void the_hook_names_cpu_1_when_so_many_are_lost(int interrupts) {
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        tlbkit_set_panic_hook(hook);
        to_lose = interrupts;
        (void)!tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_FORK);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

static void a_cpu_that_never_answers_is_named_to_the_hook(void) {
    static struct tlbkit_hardware_ops ops;
    begin_with_defaults(&ops, 5);
    the_hook_names_cpu_1_when_so_many_are_lost(1000);
}

static uint32_t only_wait(uint32_t cpu, uint32_t missing) { return (void)cpu, (void)missing, TLBKIT_LATE_WAIT; }

static void who_only_waits_for_a_lost_interrupt_is_told_in_the_hook(void) {
    static struct tlbkit_hardware_ops ops;
    begin_with_defaults(&ops, 5);
    ops.late = only_wait;
    begin(&ops);
    the_hook_names_cpu_1_when_so_many_are_lost(1);
}

static uint32_t to_ask_again;
static unsigned sent[CPUS], asked_about;

static void count_and_send(uint32_t cpu, uint32_t to) {
    sent[to]++;
    real_send_ipi(cpu, to);
}

static uint32_t choose(uint32_t cpu, uint32_t missing) {
    CHECK(cpu == 0 && (missing == 1 || missing == 2));
    asked_about++;
    return missing == to_ask_again ? TLBKIT_LATE_ASK_AGAIN : TLBKIT_LATE_WAIT;
}

static void deliver_after_both(uint32_t cpu) {
    if (cpu != 0 || asked_about < 2)
        return;
    is_delivery_held = false, while_waiting = NULL;
    deliver();
}

static void each_late_cpu_is_decided_for_itself(void) {
    static struct tlbkit_hardware_ops ops;
    for (to_ask_again = 1; to_ask_again <= 2; to_ask_again++) {
        ops = hardware;
        real_send_ipi = ops.send_ipi;
        ops.send_ipi = count_and_send, ops.late = choose, ops.patience_turns = 100;
        begin(&ops);
        switch_to(2, &space_a);
        memset(sent, 0, sizeof sent), asked_about = 0;
        is_delivery_held = true, while_waiting = deliver_after_both;
        OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_FORK));
        CHECK(asked_about == 2 && sent[to_ask_again] == 2 && sent[3 - to_ask_again] == 1);
    }
}

static void give_up(uint32_t cpu, uint32_t missing) {
    CHECK(cpu == 0 && missing == 1);
    given_up++;
    to_lose = 0;
}

static void a_kernel_may_be_told_who_never_answers(void) {
    static struct tlbkit_hardware_ops ops;
    begin_with_defaults(&ops, 5);
    ops.unanswered = give_up;
    begin(&ops);
    to_lose = 1000;
    OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_FORK));
    CHECK(given_up == 1 && to_lose == 0);
}

void misplace_everything(void) {
    preset = "misplaced";
    every_call_in_another_cpus_name_is_refused();
    a_task_that_migrates_in_a_wait_is_told_and_nothing_is_freed();
    a_task_that_migrates_while_it_ends_a_space_may_free_nothing();
    a_task_that_migrates_in_a_look_is_told_and_nothing_is_freed();
    a_task_that_migrates_before_it_flushes_is_told_though_it_waits_for_nobody();
    a_task_that_migrates_while_it_issues_is_told_and_nothing_is_freed();
    a_lost_interrupt_is_survived_by_default();
    each_late_cpu_is_decided_for_itself();
    a_cpu_that_never_answers_is_named_to_the_hook();
    who_only_waits_for_a_lost_interrupt_is_told_in_the_hook();
    a_kernel_may_be_told_who_never_answers();
    table = &hardware;
}
