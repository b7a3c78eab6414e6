// What the library needs of a CPU; and the faults that a boot argument can put in.

#include "hardware.h"

#define PATIENCE_ROUNDS 2000u

enum fault fault;
static uint32_t features_of[CPUS];

static uint32_t features(uint32_t cpu) { return features_of[cpu]; }

void hardware_start(void) { features_of[this_cpu()] = instructions_start(); }

static void no_invlpg(uint32_t cpu, uint64_t va) { (void)cpu, (void)va; }

static void send_ipi(uint32_t cpu, uint32_t to) {
    (void)cpu;
    if (fault != FAULT_NO_IPI)
        interrupt(to);
}

static void send_ipi_to_others(uint32_t cpu) {
    (void)cpu;
    if (fault != FAULT_NO_IPI)
        interrupt_others();
}

static void relax_while_waiting(uint32_t cpu) {
    if (fault == FAULT_NESTED)
        (void)!tlbkit_flush_kernel_range(&machine, cpu, KERNEL_WINDOW, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_ENTER);
    relax();
}

// A CPU that was asked again and again, and does not answer: say which, and stop.
static void unanswered(uint32_t cpu, uint32_t missing) {
    line_begin("late");
    line_number("cpu", cpu);
    line_number("missing", missing);
    line_end();
    leave(FAILED);
}

static void last_lazy_reference(uint32_t cpu, struct tlbkit_space *space) {
    (void)cpu;
    unreferenced = space;
}

void misuse_hook(const struct tlbkit_misuse *misuse) {
    line_begin("misuse");
    line_number("cpu", this_cpu());
    line_text("file", misuse->file, misuse->file_bytes);
    line_number("line", misuse->line);
    line_text("what", misuse->message, misuse->message_bytes);
    line_end();
    leave(HOOKED);
}

const struct tlbkit_hardware_ops *hardware_table(void) {
    static struct tlbkit_hardware_ops ops = {
        .features = features,
        .send_ipi = send_ipi,
        .send_ipi_to_others = send_ipi_to_others,
        .relax = relax_while_waiting,
        .this_cpu = this_cpu,
        .unanswered = unanswered,
        .patience_rounds = PATIENCE_ROUNDS,
        .last_lazy_reference = last_lazy_reference,
    };
    instructions_fill(&ops);
    if (fault == FAULT_NO_INVLPG)
        ops.invlpg = no_invlpg;
    return &ops;
}
