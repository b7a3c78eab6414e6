// Wrong use: each mistake has its status, changes nothing, and what no status can tell ends in the hook.

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "machine.h"
#include "use.h"

#define IS(status, call) CHECK((call) == TLBKIT_STATUS_##status)

static struct tlbkit_setup good_setup(void) {
    static struct tlbkit_cpu_state cpus[2];
    static uint64_t matrix[TLBKIT_MATRIX_WORDS(2)];
    return (struct tlbkit_setup){
        .ops = &hardware, .cpus = cpus, .cpu_count = 2, .matrix = matrix, .matrix_words = TLBKIT_MATRIX_WORDS(2)};
}

static void the_header_counts_words_as_the_archive_does(void) {
    for (uint32_t cpus = 1; cpus <= 8192; cpus++) {
        CHECK(TLBKIT_SET_WORDS(cpus) == tlbkit_set_words(cpus));
        /* A row of it is for what older kernels did. */
        size_t words = TLBKIT_MATRIX_WORDS((size_t)cpus);
        CHECK(words >= tlbkit_matrix_words(cpus) && words <= tlbkit_matrix_words(cpus) + TLBKIT_SET_WORDS(cpus));
    }
}

static void a_bad_setup_is_refused(void) {
    struct tlbkit_machine fresh;
    struct tlbkit_setup setup = good_setup();
    memset(&fresh, 0, sizeof fresh);
    IS(NULL_POINTER, tlbkit_machine_init(NULL, &setup));
    IS(NULL_POINTER, tlbkit_machine_init(&fresh, NULL));
    IS(MISALIGNED, tlbkit_machine_init((struct tlbkit_machine *)((char *)&fresh + 8), &setup));
    setup.cpus = (struct tlbkit_cpu_state *)((char *)setup.cpus + 32);
    IS(MISALIGNED, tlbkit_machine_init(&fresh, &setup));
    setup = good_setup(), setup.ops = NULL;
    IS(NULL_POINTER, tlbkit_machine_init(&fresh, &setup));
    setup = good_setup(), setup.matrix = NULL;
    IS(NULL_POINTER, tlbkit_machine_init(&fresh, &setup));
    setup = good_setup(), setup.cpu_count = 0;
    IS(BAD_VALUE, tlbkit_machine_init(&fresh, &setup));
    memset(setup.matrix, 0x5a, sizeof(uint64_t));
    setup = good_setup(), setup.kernel_root = 0x1018;
    IS(BAD_VALUE, tlbkit_machine_init(&fresh, &setup));
    setup = good_setup(), setup.kernel_root = 0xffff800000001000; /* a virtual address */
    IS(BAD_VALUE, tlbkit_machine_init(&fresh, &setup));
    setup.stats = (struct tlbkit_stats *)((char *)setup.cpus + 4), setup.kernel_root = 0x1000;
    IS(MISALIGNED, tlbkit_machine_init(&fresh, &setup));
    CHECK(setup.matrix[0] == 0x5a5a5a5a5a5a5a5a); /* nothing was changed */
    setup = good_setup(), setup.matrix_words = tlbkit_matrix_words(2) - 1;
    IS(TOO_SMALL, tlbkit_machine_init(&fresh, &setup));
    struct tlbkit_hardware_ops holes;
#define HOLE(function)                                          \
    holes = hardware, holes.function = NULL;                    \
    setup = good_setup(), setup.ops = &holes;                   \
    IS(NO_FUNCTION, tlbkit_machine_init(&fresh, &setup))
    HOLE(features);
    HOLE(write_cr3);
    HOLE(invlpg);
    HOLE(toggle_pge);
    HOLE(send_ipi);
    HOLE(send_ipi_to_others);
    HOLE(relax);
    HOLE(irqs_enabled);
    HOLE(irqs_save);
    HOLE(irqs_restore);
    HOLE(last_lazy_reference);
#undef HOLE
    struct tlbkit_machine other;
    setup.policy = "tlbkit:lazy_refs=shot-down"; /* needs it not */
    OK(tlbkit_machine_init(&other, &setup));
    setup = good_setup(), setup.policy = "tlbkit:lru=16";
    IS(BAD_VALUE, tlbkit_machine_init(&fresh, &setup));
    IS(NOT_MADE, tlbkit_bring_up(&fresh, 0));
}

static void a_bad_policy_is_refused(void) {
    IS(NULL_POINTER, tlbkit_policy_check(NULL));
    IS(OK, tlbkit_policy_check("tlbkit"));
    IS(OK, tlbkit_policy_check("tlbkit:lazy=off+lru=2"));
    IS(NO_SUCH_PRESET, tlbkit_policy_check("linux-6.1"));
    IS(NO_SUCH_PRESET, tlbkit_policy_check("linux-6.180"));
    IS(NO_SUCH_PRESET, tlbkit_policy_check(""));
    IS(NO_SUCH_PRESET, tlbkit_policy_check("tlbkit\xff"));
    IS(NO_SUCH_KEY, tlbkit_policy_check("tlbkit:colour=red"));
    IS(NO_SUCH_KEY, tlbkit_policy_check("tlbkit:lazy"));
    IS(BAD_VALUE, tlbkit_policy_check("tlbkit:set=3"));
#ifdef TLBKIT_HISTORY
    IS(OK, tlbkit_policy_check("xnu:stats=on"));
#else
    IS(NEEDS_HISTORY, tlbkit_policy_check("xnu"));
    IS(NEEDS_HISTORY, tlbkit_policy_check("tlbkit:stats=on"));
#endif
}

static void a_bad_space_is_refused(void) {
    struct tlbkit_space fresh;
    uint64_t set[1];
    memset(&fresh, 0x5a, sizeof fresh);
    irqs_on[0] = false;
    IS(NOT_MADE, tlbkit_switch_to(&machine, 0, &fresh));
    IS(NULL_POINTER, tlbkit_switch_to(&machine, 0, NULL));
    IS(MISALIGNED, tlbkit_switch_to(&machine, 0, (struct tlbkit_space *)((char *)&fresh + 8)));
    irqs_on[0] = true;
    IS(NULL_POINTER, tlbkit_space_init(NULL, &machine, 0x1000, set, 1));
    IS(NULL_POINTER, tlbkit_space_init(&fresh, NULL, 0x1000, set, 1));
    IS(NULL_POINTER, tlbkit_space_init(&fresh, &machine, 0x1000, NULL, 1));
    IS(TOO_SMALL, tlbkit_space_init(&fresh, &machine, 0x1000, set, 0));
    IS(BAD_VALUE, tlbkit_space_init(&fresh, &machine, 0x1001, set, 1));
    IS(BAD_VALUE, tlbkit_space_init(&fresh, &machine, 0xffff800000001000, set, 1)); /* a virtual address */
    CHECK(tlbkit_space_id(&fresh) == 0 && tlbkit_space_generation(NULL) == 0);
    bool may_free;
    IS(NOT_MADE, tlbkit_space_destroy(&machine, 0, &fresh, &may_free));
    IS(NULL_POINTER, tlbkit_space_destroy(&machine, 0, &space_a, NULL));
}

static void a_bad_cpu_is_refused(void) {
    IS(NO_SUCH_CPU, tlbkit_bring_up(&machine, CPUS));
    IS(NO_SUCH_CPU, tlbkit_answer(&machine, UINT32_MAX));
    IS(NO_SUCH_CPU, tlbkit_declare_stopped(&machine, CPUS));
    IS(NULL_POINTER, tlbkit_answer(NULL, 0));
    IS(MISALIGNED, tlbkit_answer((struct tlbkit_machine *)((char *)&machine + 4), 0));
    IS(NULL_POINTER, tlbkit_missing(&machine, 0, NULL, NULL));
    CHECK(!tlbkit_is_running(&machine, CPUS, &space_a) && !tlbkit_is_running(NULL, 0, &space_a));
}

static void interrupts_in_the_wrong_state_are_refused(void) {
    IS(IRQS_ON, tlbkit_bring_up(&machine, 0));
    IS(IRQS_ON, tlbkit_switch_to(&machine, 0, &space_a));
    IS(IRQS_ON, tlbkit_enter_lazy(&machine, 0));
    IS(IRQS_ON, tlbkit_load_kernel(&machine, 0));
    IS(IRQS_ON, tlbkit_offline(&machine, 0));
    IS(IRQS_ON, tlbkit_answer(&machine, 0));
    IS(IRQS_ON, tlbkit_enter_kernel(&machine, 0));
    IS(IRQS_ON, tlbkit_exit_to_user(&machine, 0));
    struct tlbkit_gather gather;
    bool may_free;
    IS(OK, tlbkit_gather_begin(&gather, &machine, &space_a, NULL));
    irqs_on[0] = false;
    IS(IRQS_OFF, tlbkit_flush_kernel_range(&machine, 0, KERNEL_VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_FORK));
    IS(IRQS_OFF, tlbkit_space_destroy(&machine, 0, &space_a, &may_free));
    IS(IRQS_OFF, tlbkit_gather_finish(&gather, 0));
    irqs_on[0] = true;
    IS(OK, tlbkit_gather_finish(&gather, 0));
}

// A machine of more CPUs than a word has bits, on which nothing happens.
static uint32_t no_features(uint32_t cpu) { return (void)cpu, 0; }
static void nothing(uint32_t cpu) { (void)cpu; }
static void nothing_with(uint32_t cpu, uint64_t value) { (void)cpu, (void)value; }
static void no_ipi(uint32_t cpu, uint32_t to) { CHECK(cpu == to); }
static bool are_off(uint32_t cpu) { return (void)cpu, false; }
static uint64_t save_nothing(uint32_t cpu) { return (void)cpu, 0; }
static void nobody_left(uint32_t cpu, struct tlbkit_space *space) { (void)cpu, (void)space; }

static void a_cpu_with_a_high_number_is_waited_for_too(void) {
    enum { HIGH = 64 };
    static struct tlbkit_machine wide;
    static struct tlbkit_cpu_state cpus[HIGH + 1];
    static uint64_t matrix[TLBKIT_MATRIX_WORDS(HIGH + 1)];
    static const struct tlbkit_hardware_ops ops = {
        .features = no_features, .write_cr3 = nothing_with, .invlpg = nothing_with, .toggle_pge = nothing,
        .send_ipi = no_ipi, .send_ipi_to_others = nothing, .relax = nothing, .irqs_enabled = are_off,
        .irqs_save = save_nothing, .irqs_restore = nothing_with, .last_lazy_reference = nobody_left};
    const struct tlbkit_setup setup = {.ops = &ops, .cpus = cpus, .cpu_count = HIGH + 1, .matrix = matrix,
                                       .matrix_words = TLBKIT_MATRIX_WORDS(HIGH + 1), .kernel_root = 0x1000};
    const uint32_t k4 = TLBKIT_STRIDE_PAGE4K, why = TLBKIT_REASON_KERNEL_REMOVE;
    OK(tlbkit_machine_init(&wide, &setup));
    OK(tlbkit_bring_up(&wide, 0));
    OK(tlbkit_flush_kernel_range(&wide, 0, KERNEL_VA, 1, k4, why)); /* nobody else is online */
    OK(tlbkit_bring_up(&wide, HIGH));
    IS(IRQS_OFF, tlbkit_flush_kernel_range(&wide, 0, KERNEL_VA, 1, k4, why));
    OK(tlbkit_offline(&wide, 0));
    OK(tlbkit_flush_kernel_range(&wide, HIGH, KERNEL_VA, 1, k4, why));
}

static void bad_numbers_are_refused(void) {
    const uint32_t k4 = TLBKIT_STRIDE_PAGE4K, why = TLBKIT_REASON_FORK;
#ifdef TLBKIT_HISTORY
    uint64_t count;
#endif
    IS(BAD_VALUE, tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 0, k4, why));
    IS(BAD_VALUE, tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, 13, why));
    IS(BAD_VALUE, tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, k4, TLBKIT_REASON_DESTROY + 1));
    IS(BAD_VALUE, tlbkit_flush_kernel_range(&machine, 0, -4096ull, 2, k4, why));
    IS(OK, tlbkit_flush_kernel_range(&machine, 0, -4096ull, 1, k4, why));
    IS(BAD_VALUE, tlbkit_flush_kernel_range(&machine, 0, 0, UINT64_MAX, k4, why));
    IS(BAD_VALUE, tlbkit_set_user_flush(&machine, 2));
#ifdef TLBKIT_HISTORY
    IS(BAD_VALUE, tlbkit_count(&machine, 0, 12, TLBKIT_PLACE_LOCAL, &count));
    IS(BAD_VALUE, tlbkit_count(&machine, 0, 0, 3, &count));
#endif
    struct tlbkit_gather gather;
    IS(OK, tlbkit_gather_begin(&gather, &machine, NULL, NULL));
    IS(BAD_VALUE, tlbkit_gather_range(&gather, 0, KERNEL_VA, 1, k4, 2, why));
    IS(NULL_POINTER, tlbkit_gather_hold(&gather, 1)); /* begun without frames: another gather would not help */
    IS(OK, tlbkit_gather_finish(&gather, 0));
}

static void a_bad_gather_is_refused(void) {
    struct tlbkit_gather gather;
    uint64_t array[1];
    memset(&gather, 0, sizeof gather);
    IS(NOT_MADE, tlbkit_gather_hold(&gather, 1));
    IS(NOT_MADE, tlbkit_gather_finish(&gather, 0));
    IS(NOT_MADE, tlbkit_gather_everything(&gather));
    bool is_done;
    IS(NOT_MADE, tlbkit_gather_issue(&gather, 0));
    IS(NOT_MADE, tlbkit_gather_is_done(&gather, 0, &is_done));
    IS(NOT_MADE, tlbkit_gather_wait(&gather, 0));
    IS(NOT_MADE, tlbkit_gather_poll(&gather, 0));
    IS(NULL_POINTER, tlbkit_gather_issue(NULL, 0));
    IS(NULL_POINTER, tlbkit_gather_tables_freed(NULL));
#ifdef TLBKIT_HISTORY
    CHECK(!tlbkit_gather_wants_walk(&gather, 0));
#endif
    struct tlbkit_frames nobody_frees = {.array = array, .capacity = 1};
    IS(NULL_POINTER, tlbkit_gather_begin(&gather, &machine, &space_a, &nobody_frees));
    IS(NOT_MADE, tlbkit_gather_finish(&gather, 0));
}

static unsigned given_back;
static void give_back(void *context, uint64_t frame) { (void)context, (void)frame, given_back++; }

// Nobody frees what nobody flushed: such frames are lost, whether the gather or batch was issued or not.
static void a_gather_that_is_forgotten_keeps_its_frames(void) {
    struct tlbkit_gather forgotten[2];
    struct tlbkit_batch batch;
    uint64_t array[3];
    given_back = 0;
    for (unsigned i = 0; i < 2; i++) {
        struct tlbkit_frames frames = {.array = array + i, .capacity = 1, .release = give_back};
        IS(OK, tlbkit_gather_begin(&forgotten[i], &machine, &space_a, &frames));
        IS(OK, tlbkit_gather_unmap(&forgotten[i], 0, USER_VA, TLBKIT_STRIDE_PAGE4K, TLBKIT_SCOPE_NON_GLOBAL,
                                   TLBKIT_REASON_REMOVE_PTE, 7));
    }
    IS(OK, tlbkit_gather_issue(&forgotten[1], 0));
    struct tlbkit_frames frames = {.array = array + 2, .capacity = 1, .release = give_back};
    IS(OK, tlbkit_batch_begin(&batch, &machine, &frames));
    IS(OK, tlbkit_batch_unmap(&batch, 0, &space_a, 7));
    IS(OK, tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K | TLBKIT_FLUSH_EVERYTHING,
                              TLBKIT_REASON_FORK));
    CHECK(given_back == 0);
}

// Exits with a code of its own if the library says what and where.
static const char *expected;
static void hook(const struct tlbkit_misuse *misuse) {
    bool says_what = strncmp(misuse->message, expected, strlen(expected)) == 0;
    says_what = says_what && strlen(misuse->message) == misuse->message_bytes;
    bool says_where = strstr(misuse->file, ".rs") && strlen(misuse->file) == misuse->file_bytes && misuse->line != 0;
    _exit(says_what && says_where ? 42 : 43);
}

static void flush_again(uint32_t cpu) {
    while_waiting = NULL;
    (void)!tlbkit_flush_range(&machine, cpu, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_FORK);
}

static void a_flush_inside_a_wait_reaches_the_hook(void) {
    int status;
    switch_to(0, &space_a);
    switch_to(1, &space_a);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        expected = "a flush inside the wait of another";
        tlbkit_set_panic_hook(hook);
        is_delivery_held = true;
        while_waiting = flush_again;
        (void)!tlbkit_flush_range(&machine, 0, &space_a, USER_VA, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_FORK);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

static void a_space_that_another_cpu_runs_reaches_the_hook(void) {
    int status;
    switch_to(0, &space_b);
    switch_to(1, &space_a);
    for (unsigned later = 0; later < 2; later++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            bool may_free;
            expected = "destroying a space that runs on another CPU";
            tlbkit_set_panic_hook(hook);
            (void)!(later ? tlbkit_space_destroy_later : tlbkit_space_destroy)(&machine, 0, &space_a, &may_free);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    }
}

static void a_cpu_with_an_instruction_that_the_table_lacks_reaches_the_hook(void) {
    static struct tlbkit_hardware_ops without;
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        without = hardware, without.invpcid = NULL;
        table = &without;
        expected = "a CPU has INVPCID and the table of functions does not";
        tlbkit_set_panic_hook(hook);
        machine_begin(NULL);
        (void)!tlbkit_flush_all_this_cpu(&machine, 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

static void every_status_has_its_text(void) {
    const char *unknown = tlbkit_status_text(TLBKIT_STATUS_SHOT_DOWN + 1);
    CHECK(strcmp(unknown, "no status of tlbkit") == 0);
    CHECK(strcmp(tlbkit_status_text(TLBKIT_STATUS_OK), "ok") == 0);
    for (uint32_t status = 0; status <= TLBKIT_STATUS_SHOT_DOWN; status++)
        for (uint32_t other = 0; other <= status; other++)
            CHECK((strcmp(tlbkit_status_text(status), tlbkit_status_text(other)) == 0) == (status == other));
    CHECK(strcmp(tlbkit_status_text(TLBKIT_STATUS_SHOT_DOWN), unknown) != 0);
}

void misuse_everything(void) {
    preset = "misuse";
    the_header_counts_words_as_the_archive_does();
    a_bad_setup_is_refused();
    a_bad_policy_is_refused();
    machine_begin(NULL);
    a_bad_space_is_refused();
    a_bad_cpu_is_refused();
    interrupts_in_the_wrong_state_are_refused();
    a_cpu_with_a_high_number_is_waited_for_too();
    bad_numbers_are_refused();
    a_bad_gather_is_refused();
    a_gather_that_is_forgotten_keeps_its_frames();
    a_flush_inside_a_wait_reaches_the_hook();
    a_space_that_another_cpu_runs_reaches_the_hook();
    a_cpu_with_an_instruction_that_the_table_lacks_reaches_the_hook();
    every_status_has_its_text();
}
