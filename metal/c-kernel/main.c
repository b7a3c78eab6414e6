// A kernel that boots four CPUs, uses every part of tlbkit, and reads through every translation that it has revoked.

#include "kernel.h"

#define STORM_TURNS 50u
#define STORM_PAGE 8u

struct tlbkit_machine machine;
static struct tlbkit_cpu_state states[CPUS];
static struct tlbkit_stats stats[CPUS];
static uint64_t matrix[TLBKIT_MATRIX_WORDS(CPUS)] TLBKIT_ALIGNED(64);
static struct process a, b;
// What the CPUs are to find, and where.
static unsigned wanted_page;
static uint64_t wanted_value;

// What a boot argument chooses: a fault, or another way to end a space that an idle CPU holds.
struct choice {
    const char *argument;
    enum fault fault;
    const char *policy;
    bool interrupts_at_end;
};
static const struct choice choices[] = {
    {"", NO_FAULT, "tlbkit:stats=on", false},
    {"no-ipi", FAULT_NO_IPI, "tlbkit:stats=on", false},
    {"no-invlpg", FAULT_NO_INVLPG, "tlbkit:stats=on", false},
    {"nested", FAULT_NESTED, "tlbkit:stats=on", false},
    {"counted", NO_FAULT, "tlbkit:lazy_refs=counted+stats=on", false},
    {"shot-down", NO_FAULT, "tlbkit:lazy_refs=shot-down+stats=on", true},
};
static const struct choice *chosen;

static void bring_up(void) {
    irqs_off();
    OK(tlbkit_bring_up(&machine, this_cpu()));
    irqs_on();
}

static void run(struct process *process) {
    irqs_off();
    OK(tlbkit_switch_to(&machine, this_cpu(), &process->space));
    irqs_on();
}

static void run_a(void) { run(&a); }
static void run_b(void) { run(&b); }

static void go_idle(void) {
    irqs_off();
    OK(tlbkit_enter_lazy(&machine, this_cpu()));
    irqs_on();
}

static void find_user(void) { CHECK(user_read(wanted_page) == wanted_value); }
static void find_kernel(void) { CHECK(kernel_read(wanted_page) == wanted_value); }

static void want(unsigned page, uint64_t value) {
    wanted_page = page;
    wanted_value = value;
}

static uint64_t user_address(unsigned page) { return USER_AREA + page * PAGE; }

// Puts another frame behind a page of `a` and flushes it everywhere; the old frame is freed by the flush.
static void remap(unsigned page, uint64_t value, enum tlbkit_reason reason) {
    uint64_t array[1];
    struct tlbkit_frames frames = {.array = array, .capacity = 1, .release = frame_free};
    struct tlbkit_gather gather;
    OK(tlbkit_gather_begin(&gather, &machine, &a.space, &frames));
    uint64_t old = user_map(&a, page, frame_of(value));
    OK(tlbkit_gather_unmap(&gather, this_cpu(), user_address(page), TLBKIT_STRIDE_PAGE4K, TLBKIT_SCOPE_NON_GLOBAL, reason,
                           old));
    OK(tlbkit_gather_finish(&gather, this_cpu()));
}

static void machine_make(void) {
    CHECK(tlbkit_header_fits());
    struct tlbkit_setup setup = {
        .ops = hardware_table(),
        .policy = chosen->policy,
        .cpus = states,
        .cpu_count = CPUS,
        .matrix = matrix,
        .matrix_words = sizeof matrix / sizeof *matrix,
        .kernel_root = kernel_root(),
        .stats = stats,
    };
    tlbkit_set_panic_hook(misuse_hook);
    OK(tlbkit_machine_init(&machine, &setup));
}

static void alternate(void) {
    for (unsigned turn = 0; turn < 8; turn++) {
        run_a();
        CHECK(user_read(0) == 100);
        run_b();
        CHECK(user_read(0) == 200);
    }
}

static void test_switch(void) {
    process_make(&a);
    process_make(&b);
    user_map(&a, 0, frame_of(100));
    user_map(&b, 0, frame_of(200));
    on_all(alternate);
    line_begin("switch");
    line_number("generation", tlbkit_space_generation(&a.space));
    line_end();
}

// CPUs that this one has told for a reason.
static uint64_t told_for(enum tlbkit_reason reason) {
    uint64_t told;
    OK(tlbkit_count(&machine, this_cpu(), reason, TLBKIT_PLACE_REMOTE, &told));
    return told;
}

static void test_shootdown(void) {
    unsigned before = interrupts[1] + interrupts[2] + interrupts[3];
    want(0, 100);
    on_all(run_a);
    on_all(find_user);
    remap(0, 101, TLBKIT_REASON_MIGRATE);
    want(0, 101);
    on_all(find_user);
    uint64_t told = told_for(TLBKIT_REASON_MIGRATE);
    // More than one each where a CPU was late, as on a busy host, and was asked again.
    CHECK(told == CPUS - 1 && interrupts[1] + interrupts[2] + interrupts[3] - before >= CPUS - 1);
    line_begin("shootdown");
    line_number("told", told);
    line_end();
}

static void test_range(void) {
    for (unsigned page = 1; page < 4; page++)
        user_map(&a, page, frame_of(100 + page));
    want(2, 102);
    on_all(find_user);
    uint64_t old = user_map(&a, 2, frame_of(112));
    OK(tlbkit_flush_range(&machine, 0, &a.space, user_address(1), 3, TLBKIT_STRIDE_PAGE4K,
                          TLBKIT_REASON_WRITE_PROTECT));
    frame_free(NULL, old);
    want(2, 112);
    on_all(find_user);
    line_begin("range");
    line_end();
}

static void test_gather(void) {
    uint64_t array[3];
    unsigned freed = 0;
    struct tlbkit_frames frames = {.array = array, .capacity = 3, .release = frame_free, .context = &freed};
    struct tlbkit_gather gather;
    OK(tlbkit_gather_begin(&gather, &machine, &a.space, &frames));
    for (unsigned page = 1; page < 4; page++) {
        uint64_t old = user_map(&a, page, 0);
        OK(tlbkit_gather_unmap(&gather, 0, user_address(page), TLBKIT_STRIDE_PAGE4K, TLBKIT_SCOPE_NON_GLOBAL,
                               TLBKIT_REASON_REMOVE_PTE, old));
    }
    CHECK(freed == 0);
    OK(tlbkit_gather_finish(&gather, 0));
    CHECK(freed == 3);
    for (unsigned page = 1; page < 4; page++) {
        want(page, 0);
        on_all(find_user);
    }
    line_begin("gather");
    line_number("freed", freed);
    line_end();
}

// All CPUs at once: each moves its own page to another frame, and reads the pages of all. Whoever frees a frame poisons
// it, so a translation that outlives its flush shows.
static void storm(void) {
    unsigned own = STORM_PAGE + this_cpu();
    for (unsigned turn = 1; turn <= STORM_TURNS; turn++) {
        remap(own, (uint64_t)own << 32 | turn, TLBKIT_REASON_COPY_ON_WRITE);
        CHECK(user_read(own) == ((uint64_t)own << 32 | turn));
        for (unsigned page = STORM_PAGE; page < STORM_PAGE + CPUS; page++)
            CHECK(user_read(page) >> 32 == page);
    }
}

static void test_storm(void) {
    for (unsigned page = STORM_PAGE; page < STORM_PAGE + CPUS; page++)
        user_map(&a, page, frame_of((uint64_t)page << 32));
    uint64_t before = tlbkit_space_generation(&a.space);
    on_all(storm);
    CHECK(tlbkit_space_generation(&a.space) - before == CPUS * STORM_TURNS);
    line_begin("storm");
    line_number("flushes", CPUS * STORM_TURNS);
    line_number("interrupts", interrupts_sent);
    line_end();
}

static void test_lazy(void) {
    want(0, 101);
    on_cpu(2, find_user);
    on_cpu(2, go_idle);
    unsigned before = interrupts[2], others_before = interrupts[1];
    remap(0, 103, TLBKIT_REASON_ENTER);
    CHECK(interrupts[2] == before && interrupts[1] != others_before);
    want(0, 103);
    on_cpu(2, run_a);
    on_cpu(2, find_user);
    line_begin("lazy");
    line_number("interrupts", interrupts[2] - before);
    line_end();
}

static void test_kernel_range(void) {
    kernel_map(5, frame_of(500));
    on_cpu(3, run_b);
    want(5, 500);
    on_all(find_kernel);
    uint64_t old = kernel_map(5, frame_of(501));
    OK(tlbkit_flush_kernel_range(&machine, 0, KERNEL_WINDOW + 5 * PAGE, 1, TLBKIT_STRIDE_PAGE4K,
                                 TLBKIT_REASON_KERNEL_REMOVE));
    frame_free(NULL, old);
    want(5, 501);
    on_all(find_kernel);
    line_begin("kernel range");
    line_end();
}

static void take_out(void) {
    irqs_off();
    OK(tlbkit_offline(&machine, this_cpu()));
    irqs_on();
}

static void test_offline(void) {
    on_cpu(3, run_a);
    want(0, 103);
    on_cpu(3, find_user);
    on_cpu(3, take_out);
    // It is in the set of the space still; nobody asks it, nor sends the command that interrupts all others.
    uint64_t before = told_for(TLBKIT_REASON_ENTER);
    remap(0, 104, TLBKIT_REASON_ENTER);
    CHECK(told_for(TLBKIT_REASON_ENTER) - before == CPUS - 2);
    on_cpu(3, bring_up);
    on_cpu(3, run_a);
    want(0, 104);
    on_cpu(3, find_user);
    line_begin("offline");
    line_end();
}

struct tlbkit_space *volatile unreferenced;

static void deep_idle(void) {
    irqs_off();
    OK(tlbkit_load_kernel(&machine, this_cpu()));
    irqs_on();
}

// CPU 0 interrupts nobody, though it may not be interrupted itself; what CPU 1 says when it leaves frees the tables.
static void end_quietly(struct process *process) {
    bool may_free = true;
    unreferenced = NULL;
    irqs_off();
    OK(tlbkit_space_destroy_later(&machine, 0, &process->space, &may_free));
    irqs_on();
    CHECK(!may_free && !unreferenced);
    on_cpu(1, deep_idle);
    CHECK(unreferenced == &process->space);
}

// A process runs on CPU 1 and ends while that CPU holds it lazily.
static void end_of(struct process *process) {
    bool may_free = false;
    on_cpu(1, run_b);
    want(0, 200);
    on_cpu(1, find_user);
    on_cpu(1, go_idle);
    if (chosen->interrupts_at_end) {
        OK(tlbkit_space_destroy(&machine, 0, &process->space, &may_free));
        CHECK(may_free);
        on_cpu(1, deep_idle);
    } else {
        end_quietly(process);
    }
    process_free(process);
}

enum { ENDS = 100 };

static void test_destroy(void) {
    unsigned before = interrupts_sent;
    uint64_t began = ticks();
    for (unsigned turn = 1; turn <= ENDS; turn++) {
        end_of(&b);
        if (turn == ENDS)
            break;
        process_make(&b);
        user_map(&b, 0, frame_of(200));
    }
    uint64_t took = ticks() - began;
    // More where a CPU was late, as on a busy host, and was asked again.
    CHECK(chosen->interrupts_at_end ? interrupts_sent - before >= ENDS : interrupts_sent == before);
    want(0, 0);
    on_cpu(1, find_user);
    line_begin("destroy");
    line_number("ends", ENDS);
    line_number("interrupts", interrupts_sent - before);
    line_number("ticks", took);
    line_end();
}

static void test_counters(void) {
    uint64_t local = 0;
    struct tlbkit_size_count one;
    for (uint32_t cpu = 0; cpu < CPUS; cpu++) {
        uint64_t count;
        OK(tlbkit_count(&machine, cpu, TLBKIT_REASON_COPY_ON_WRITE, TLBKIT_PLACE_LOCAL, &count));
        // A CPU that came up again has kept its counters.
        CHECK(count == STORM_TURNS);
        local += count;
    }
    OK(tlbkit_count_size(&machine, 1, 1, &one));
    CHECK(one.samples == STORM_TURNS);
    line_begin("counters");
    line_number("flushes", local);
    line_end();
}

static void test_misuse(void) {
    CHECK(tlbkit_switch_to(&machine, 0, &a.space) == TLBKIT_STATUS_IRQS_ON);
    CHECK(tlbkit_bring_up(&machine, CPUS) == TLBKIT_STATUS_NO_SUCH_CPU);
    irqs_off();
    CHECK(tlbkit_switch_to(&machine, 0, &b.space) == TLBKIT_STATUS_NOT_MADE);
    CHECK(tlbkit_flush_range(&machine, 0, &a.space, 0, 1, TLBKIT_STRIDE_PAGE4K, 0) == TLBKIT_STATUS_IRQS_OFF);
    irqs_on();
    line_begin("misuse");
    line_end();
}

// What the loader hands over, as far as the boot argument.
struct start_info {
    uint32_t magic, version, flags, module_count;
    uint64_t modules, argument;
};

static const struct choice *choice_of(const char *argument) {
    for (unsigned i = 0; i < sizeof choices / sizeof *choices; i++) {
        const char *name = choices[i].argument;
        size_t at = 0;
        while (name[at] && name[at] == argument[at])
            at++;
        if (name[at] == argument[at])
            return &choices[i];
    }
    fail(argument, 0, "the boot argument is none of: no-ipi, no-invlpg, nested, counted, shot-down");
}

_Noreturn void kernel_main(uint32_t start_info_at);
_Noreturn void kernel_main(uint32_t start_info_at) {
    cpus_start();
    const struct start_info *info = (const struct start_info *)(DIRECT_MAP + start_info_at);
    chosen = choice_of(info->argument ? (const char *)(DIRECT_MAP + info->argument) : "");
    fault = chosen->fault;
    memory_start();
    machine_make();
    on_all(bring_up);
    test_switch();
    test_shootdown();
    test_range();
    test_gather();
    test_storm();
    test_lazy();
    test_kernel_range();
    test_offline();
    test_destroy();
    test_counters();
    test_misuse();
    line_begin("all");
    line_number("cpus", CPUS);
    line_end();
    leave(PASSED);
}
