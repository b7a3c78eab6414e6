// What the library needs of a CPU, by instructions; and the faults that a boot argument can put in.

#include "kernel.h"

#define CR4_PGE (1ull << 7)
#define CR4_PCIDE (1ull << 17)
#define PATIENCE 2000u

enum fault fault;

static uint64_t read_cr4(void) {
    uint64_t value;
    __asm__ volatile("mov %%cr4, %0" : "=r"(value)::"memory");
    return value;
}
static void write_cr4(uint64_t value) { __asm__ volatile("mov %0, %%cr4" ::"r"(value) : "memory"); }

static void cpuid(uint32_t leaf, uint32_t registers[4]) {
    __asm__ volatile("cpuid"
                     : "=a"(registers[0]), "=b"(registers[1]), "=c"(registers[2]), "=d"(registers[3])
                     : "a"(leaf), "c"(0));
}

static uint32_t features(uint32_t cpu) {
    uint32_t basic[4], more[4];
    (void)cpu;
    cpuid(1, basic);
    cpuid(7, more);
    return (basic[2] >> 17 & 1 ? TLBKIT_FEATURE_PCID : 0) | (more[1] >> 10 & 1 ? TLBKIT_FEATURE_INVPCID : 0);
}

// CR3's tag is 0 here, as the manual wants it when tags are switched on.
void hardware_start(void) {
    if (features(0) & TLBKIT_FEATURE_PCID)
        write_cr4(read_cr4() | CR4_PCIDE);
}

static void write_cr3(uint32_t cpu, uint64_t value) {
    (void)cpu;
    __asm__ volatile("mov %0, %%cr3" ::"r"(value) : "memory");
}

static void invlpg(uint32_t cpu, uint64_t va) {
    (void)cpu;
    if (fault != FAULT_NO_INVLPG)
        __asm__ volatile("invlpg (%0)" ::"r"(va) : "memory");
}

static void invpcid(uint32_t cpu, uint32_t kind, uint32_t pcid, uint64_t va) {
    struct {
        uint64_t pcid, va;
    } descriptor = {pcid, va};
    (void)cpu;
    __asm__ volatile("invpcid %0, %1" ::"m"(descriptor), "r"((uint64_t)kind) : "memory");
}

static void toggle_pge(uint32_t cpu) {
    (void)cpu;
    uint64_t value = read_cr4();
    write_cr4(value & ~CR4_PGE);
    write_cr4(value | CR4_PGE);
}

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

static bool irqs_enabled(uint32_t cpu) { return (void)cpu, irqs_are_on(); }

static uint64_t irqs_save(uint32_t cpu) {
    (void)cpu;
    uint64_t were_on = irqs_are_on();
    irqs_off();
    return were_on;
}

static void irqs_restore(uint32_t cpu, uint64_t were_on) {
    (void)cpu;
    if (were_on)
        irqs_on();
}

static uint64_t now_cycles(uint32_t cpu) {
    uint32_t low, high;
    (void)cpu;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

// A CPU whose interrupt was lost for good: say which, and stop.
static uint32_t late(uint32_t cpu, uint32_t missing) {
    static unsigned times;
    if (__atomic_add_fetch(&times, 1, __ATOMIC_RELAXED) < PATIENCE)
        return TLBKIT_LATE_WAIT;
    line_begin("late");
    line_number("cpu", cpu);
    line_number("missing", missing);
    line_end();
    leave(FAILED);
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

const struct tlbkit_hardware_ops hardware = {
    .features = features,
    .write_cr3 = write_cr3,
    .invlpg = invlpg,
    .invpcid = invpcid,
    .toggle_pge = toggle_pge,
    .send_ipi = send_ipi,
    .send_ipi_to_others = send_ipi_to_others,
    .relax = relax_while_waiting,
    .irqs_enabled = irqs_enabled,
    .irqs_save = irqs_save,
    .irqs_restore = irqs_restore,
    .now_cycles = now_cycles,
    .late = late,
};
