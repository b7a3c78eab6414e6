// Instructions for the library's table of functions, where the archive does not bring them (its feature `x86`).

#ifndef TLBKIT_X86

#include "hardware.h"

#define CR4_PGE (1ull << 7)
#define CR4_PCIDE (1ull << 17)

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

static uint32_t features_present(void) {
    uint32_t basic[4], more[4];
    cpuid(1, basic);
    cpuid(7, more);
    return (basic[2] >> 17 & 1 ? TLBKIT_FEATURE_PCID : 0) | (more[1] >> 10 & 1 ? TLBKIT_FEATURE_INVPCID : 0);
}

// CR3's tag is 0 here, as the manual wants it when tags are switched on.
uint32_t instructions_start(void) {
    uint32_t present = features_present();
    if (present & TLBKIT_FEATURE_PCID)
        write_cr4(read_cr4() | CR4_PCIDE);
    return present;
}

static void write_cr3(uint32_t cpu, uint64_t value) {
    (void)cpu;
    __asm__ volatile("mov %0, %%cr3" ::"r"(value) : "memory");
}

static void invlpg(uint32_t cpu, uint64_t va) {
    (void)cpu;
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
    (void)cpu;
    return ticks();
}

void instructions_fill(struct tlbkit_hardware_ops *ops) {
    ops->write_cr3 = write_cr3;
    ops->invlpg = invlpg;
    ops->invpcid = invpcid;
    ops->toggle_pge = toggle_pge;
    ops->irqs_enabled = irqs_enabled;
    ops->irqs_save = irqs_save;
    ops->irqs_restore = irqs_restore;
    ops->now_cycles = now_cycles;
}

#endif
