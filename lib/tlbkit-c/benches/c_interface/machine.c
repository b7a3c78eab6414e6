// The machine of machine.h. A function of the hardware is one instruction and its return.

#include "machine.h"

#include <stdlib.h>

struct tlbkit_machine machine;
struct tlbkit_space spaces[SPACES];

static struct tlbkit_cpu_state states[CPUS];
static uint64_t matrix[TLBKIT_MATRIX_WORDS(CPUS)] TLBKIT_ALIGNED(64), sets[SPACES][TLBKIT_SET_WORDS(CPUS)];
static bool are_irqs_on = true;

void must(enum tlbkit_status status) {
    if (status != TLBKIT_STATUS_OK)
        abort();
}

// Another CPU's answer is not part of what is counted: the count is off while this function runs.
__attribute__((noinline)) void finish_elsewhere(uint32_t cpu);
void finish_elsewhere(uint32_t cpu) {
    bool before = are_irqs_on;
    are_irqs_on = false;
    must(tlbkit_answer(&machine, cpu));
    are_irqs_on = before;
}

static uint32_t features(uint32_t cpu) { return (void)cpu, TLBKIT_FEATURE_PCID | TLBKIT_FEATURE_INVPCID; }
static void last_lazy_reference(uint32_t cpu, struct tlbkit_space *space) { (void)cpu, (void)space; }

#if !defined(TLBKIT_LINKED) || !defined(TLBKIT_X86)
static inline void one_instruction(uint64_t value) { __asm__ volatile("nop" ::"r"(value) : "memory"); }
#endif

static void send_to_others(uint32_t cpu) {
    for (uint32_t to = 0; to < CPUS; to++)
        if (to != cpu)
            finish_elsewhere(to);
}

#ifdef TLBKIT_LINKED
void tlbkit_k_send_ipi(uint32_t cpu, uint32_t to) { (void)cpu, finish_elsewhere(to); }
void tlbkit_k_send_ipi_to_others(uint32_t cpu) { send_to_others(cpu); }
#ifndef TLBKIT_X86
void tlbkit_k_write_cr3(uint64_t value) { one_instruction(value); }
void tlbkit_k_invlpg(uint64_t va) { one_instruction(va); }
void tlbkit_k_invpcid(uint32_t kind, uint32_t pcid, uint64_t va) { (void)kind, (void)pcid, one_instruction(va); }
void tlbkit_k_toggle_pge(void) { one_instruction(0); }
void tlbkit_k_relax(void) { one_instruction(0); }
bool tlbkit_k_irqs_enabled(void) { return are_irqs_on; }
uint64_t tlbkit_k_irqs_save(void) {
    uint64_t before = are_irqs_on;
    are_irqs_on = false;
    return before;
}
void tlbkit_k_irqs_restore(uint64_t saved) { are_irqs_on = saved; }
#endif
static const struct tlbkit_hardware_ops hardware = {
    .features = features,
    .last_lazy_reference = last_lazy_reference,
};
#else
static void write_cr3(uint32_t cpu, uint64_t value) { (void)cpu, one_instruction(value); }
static void invlpg(uint32_t cpu, uint64_t va) { (void)cpu, one_instruction(va); }
static void invpcid(uint32_t cpu, uint32_t kind, uint32_t pcid, uint64_t va) {
    (void)cpu, (void)kind, (void)pcid, one_instruction(va);
}
static void toggle_pge(uint32_t cpu) { one_instruction(cpu); }
static void relax(uint32_t cpu) { one_instruction(cpu); }
static bool irqs_enabled(uint32_t cpu) { return (void)cpu, are_irqs_on; }
static uint64_t irqs_save(uint32_t cpu) {
    uint64_t before = are_irqs_on;
    (void)cpu;
    are_irqs_on = false;
    return before;
}
static void irqs_restore(uint32_t cpu, uint64_t saved) { (void)cpu, are_irqs_on = saved; }
static void send_ipi(uint32_t cpu, uint32_t to) { (void)cpu, finish_elsewhere(to); }
static const struct tlbkit_hardware_ops hardware = {
    .features = features,
    .write_cr3 = write_cr3,
    .invlpg = invlpg,
    .invpcid = invpcid,
    .toggle_pge = toggle_pge,
    .send_ipi = send_ipi,
    .send_ipi_to_others = send_to_others,
    .relax = relax,
    .irqs_enabled = irqs_enabled,
    .irqs_save = irqs_save,
    .irqs_restore = irqs_restore,
    .last_lazy_reference = last_lazy_reference,
};
#endif

// What a kernel's own function is that makes the call: these are counted where compilers are compared.
__attribute__((noinline)) void counted_switch(uint32_t cpu, const struct tlbkit_space *space);
void counted_switch(uint32_t cpu, const struct tlbkit_space *space) { must(tlbkit_switch_to(&machine, cpu, space)); }

__attribute__((noinline)) void counted_lazy(uint32_t cpu);
void counted_lazy(uint32_t cpu) { must(tlbkit_enter_lazy(&machine, cpu)); }

void switch_to(uint32_t cpu, unsigned space) {
    are_irqs_on = false;
    counted_switch(cpu, &spaces[space]);
    are_irqs_on = true;
}

void machine_begin(const char *policy) {
    const struct tlbkit_setup setup = {
        .ops = &hardware,
        .policy = policy,
        .cpus = states,
        .cpu_count = CPUS,
        .matrix = matrix,
        .matrix_words = sizeof matrix / sizeof *matrix,
        .kernel_root = 0x1000,
    };
    must(tlbkit_machine_init(&machine, &setup));
    are_irqs_on = false;
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        must(tlbkit_bring_up(&machine, cpu));
    are_irqs_on = true;
    for (unsigned n = 0; n < SPACES; n++)
        must(tlbkit_space_init(&spaces[n], &machine, 0x100000 + n * 0x2000ull, sets[n], TLBKIT_SET_WORDS(CPUS)));
    switch_to(0, 0);
}

void go_idle(uint32_t cpu) {
    are_irqs_on = false;
    counted_lazy(cpu);
    are_irqs_on = true;
}
