// Starting the CPUs, their interrupts, and giving them work.

#include "kernel.h"

#define VECTORS 256
#define PAGE_FAULT 14
#define SHOOTDOWN 0xf0
#define SPURIOUS 0xff
#define CODE_SELECTOR 8
#define INTERRUPT_GATE 0x8e00u
#define DESCRIPTORS_BYTES 32
#define LEGACY_MASK_0 0x21
#define LEGACY_MASK_1 0xa1

#define APIC (DIRECT_MAP + 0xfee00000ull)
#define APIC_ID 0x20
#define APIC_EOI 0xb0
#define APIC_SPURIOUS 0xf0
#define APIC_ENABLED 0x100
#define APIC_COMMAND 0x300
#define APIC_COMMAND_TO 0x310
#define COMMAND_PENDING 0x1000u
#define COMMAND_FIXED 0x4000u
#define COMMAND_OTHERS 0xc0000u
#define COMMAND_INIT 0x4500u
#define COMMAND_START_AT_0X8000 0x4608u
#define GS_BASE 0xc0000101u

struct frame {
    uint64_t ip, cs, flags, sp, ss;
};

struct gate {
    uint16_t low, selector, attributes, middle;
    uint32_t high, reserved;
};

// One for each CPU, found by its GS base.
static struct cpu {
    uint32_t index, apic_id;
    bool is_up;
    void (*work)(void);
} __attribute__((aligned(64))) cpus[CPUS];

static struct gate gates[VECTORS];
unsigned interrupts[CPUS], interrupts_sent;

extern volatile uint32_t cpus_started;
extern char descriptors[], first_steps_at[], first_steps_bytes[], probe_access[], probe_failed[];

static uint32_t apic_read(uint32_t at) { return *(volatile uint32_t *)(APIC + at); }
static void apic_write(uint32_t at, uint32_t value) { *(volatile uint32_t *)(APIC + at) = value; }

uint32_t this_cpu(void) {
    uint32_t index;
    __asm__ volatile("mov %%gs:0, %0" : "=r"(index));
    return index;
}

static void command(uint32_t apic_id, uint32_t what) {
    // The two halves of a command must not be torn by a handler that sends another.
    bool were_on = irqs_are_on();
    irqs_off();
    while (apic_read(APIC_COMMAND) & COMMAND_PENDING)
        relax();
    apic_write(APIC_COMMAND_TO, apic_id << 24);
    apic_write(APIC_COMMAND, what);
    if (were_on)
        irqs_on();
}

void interrupt(uint32_t cpu) {
    __atomic_fetch_add(&interrupts_sent, 1, __ATOMIC_RELAXED);
    command(cpus[cpu].apic_id, COMMAND_FIXED | SHOOTDOWN);
}

void interrupt_others(void) {
    __atomic_fetch_add(&interrupts_sent, CPUS - 1, __ATOMIC_RELAXED);
    command(0, COMMAND_OTHERS | COMMAND_FIXED | SHOOTDOWN);
}

__attribute__((interrupt)) static void on_shootdown(struct frame *frame) {
    (void)frame;
    interrupts[this_cpu()]++;
    CHECK(tlbkit_answer(&machine, this_cpu()) == TLBKIT_STATUS_OK);
    apic_write(APIC_EOI, 0);
}

__attribute__((interrupt)) static void on_spurious(struct frame *frame) { (void)frame; }

__attribute__((interrupt)) static void on_page_fault(struct frame *frame, uint64_t error) {
    (void)error;
    CHECK(frame->ip == (uint64_t)probe_access);
    frame->ip = (uint64_t)probe_failed;
}

__attribute__((interrupt)) static void on_other(struct frame *frame) {
    (void)frame;
    CHECK(!"an exception that nobody expects");
}

static void set_gate(unsigned vector, uint64_t handler) {
    gates[vector] = (struct gate){(uint16_t)handler, CODE_SELECTOR,           INTERRUPT_GATE, (uint16_t)(handler >> 16),
                                  (uint32_t)(handler >> 32), 0};
}

struct table_pointer {
    uint16_t limit;
    uint64_t base;
} __attribute__((packed));

static void cpu_prepare(uint32_t index) {
    // The descriptors of boot, by an address that stays mapped.
    struct table_pointer segments = {DESCRIPTORS_BYTES - 1, DIRECT_MAP + (uint64_t)descriptors};
    struct table_pointer handlers = {sizeof gates - 1, (uint64_t)gates};
    uint64_t base = (uint64_t)&cpus[index];
    __asm__ volatile("lgdt %0; lidt %1" ::"m"(segments), "m"(handlers));
    __asm__ volatile("wrmsr" ::"c"(GS_BASE), "a"((uint32_t)base), "d"((uint32_t)(base >> 32)));
    apic_write(APIC_SPURIOUS, APIC_ENABLED | SPURIOUS);
    cpus[index].index = index;
    cpus[index].apic_id = apic_read(APIC_ID) >> 24;
    hardware_start();
    __atomic_store_n(&cpus[index].is_up, true, __ATOMIC_RELEASE);
}

static bool all_are_up(void) {
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        if (!__atomic_load_n(&cpus[cpu].is_up, __ATOMIC_ACQUIRE))
            return false;
    return true;
}

static void mask_legacy_interrupts(void) {
    __asm__ volatile("outb %0, %1; outb %0, %2" ::"a"((uint8_t)0xff), "Nd"((uint16_t)LEGACY_MASK_0),
                     "Nd"((uint16_t)LEGACY_MASK_1));
}

// Waits about as many microseconds: each write to the old diagnostics port takes one, or longer.
static void wait_us(unsigned time_us) {
    while (time_us--)
        __asm__ volatile("outb %%al, $0x80" ::"a"(0));
}

void cpus_start(void) {
    for (unsigned vector = 0; vector < VECTORS; vector++)
        set_gate(vector, (uint64_t)on_other);
    set_gate(PAGE_FAULT, (uint64_t)on_page_fault);
    set_gate(SHOOTDOWN, (uint64_t)on_shootdown);
    set_gate(SPURIOUS, (uint64_t)on_spurious);
    for (size_t i = 0; i < (size_t)first_steps_bytes; i++)
        ((volatile char *)(DIRECT_MAP + 0x8000))[i] = ((char *)(DIRECT_MAP + (uint64_t)first_steps_at))[i];
    mask_legacy_interrupts();
    cpu_prepare(0);
    command(0, COMMAND_OTHERS | COMMAND_INIT);
    wait_us(10000);
    command(0, COMMAND_OTHERS | COMMAND_START_AT_0X8000);
    for (unsigned tries = 0; tries < 1000 && !all_are_up(); tries++)
        wait_us(10000);
    CHECK(cpus_started == CPUS && all_are_up());
}

// The other CPUs: whatever CPU 0 gives them.
_Noreturn void cpu_main(uint32_t index);
_Noreturn void cpu_main(uint32_t index) {
    cpu_prepare(index);
    for (;;) {
        void (*work)(void) = __atomic_load_n(&cpus[index].work, __ATOMIC_ACQUIRE);
        if (work) {
            work();
            __atomic_store_n(&cpus[index].work, NULL, __ATOMIC_RELEASE);
        }
        relax();
    }
}

static void start_work(uint32_t cpu, void (*work)(void)) { __atomic_store_n(&cpus[cpu].work, work, __ATOMIC_RELEASE); }

static void await_work(uint32_t cpu) {
    while (__atomic_load_n(&cpus[cpu].work, __ATOMIC_ACQUIRE))
        relax();
}

void on_cpu(uint32_t cpu, void (*work)(void)) {
    if (cpu == 0)
        return work();
    start_work(cpu, work);
    await_work(cpu);
}

void on_all(void (*work)(void)) {
    for (uint32_t cpu = 1; cpu < CPUS; cpu++)
        start_work(cpu, work);
    work();
    for (uint32_t cpu = 1; cpu < CPUS; cpu++)
        await_work(cpu);
}
