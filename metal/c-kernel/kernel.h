// What the files of this kernel share. It exists to show, and to prove in an emulator, how a C kernel uses tlbkit.

#pragma once

#include "tlbkit.h"

#define CPUS 4
#define PAGE 4096ull
#define DIRECT_MAP 0xffff800000000000ull
#define KERNEL_WINDOW 0xffffc00000000000ull
#define USER_AREA 0x400000ull
// Pages of the user area and of the kernel window.
#define AREA_PAGES 16

// output.c: one JSON object a line over the serial port, and the end.
enum outcome { PASSED = 0x10, FAILED = 0x11, HOOKED = 0x12 };
void line_begin(const char *test);
void line_number(const char *key, uint64_t value);
void line_text(const char *key, const char *text, size_t bytes);
void line_end(void);
_Noreturn void leave(enum outcome outcome);
_Noreturn void fail(const char *file, uint32_t line, const char *what);
#define CHECK(condition) ((condition) ? (void)0 : fail(__FILE__, __LINE__, #condition))
#define OK(call) CHECK((call) == TLBKIT_STATUS_OK)

// cpus.c: the CPUs, their interrupts, and work for them.
extern unsigned interrupts[CPUS], interrupts_sent;
void cpus_start(void);
uint32_t this_cpu(void);
void interrupt(uint32_t cpu);
void interrupt_others(void);
// Runs `work` on CPU `cpu`, or on all at the same time, and waits for the end. CPU 0 calls them.
void on_cpu(uint32_t cpu, void (*work)(void));
void on_all(void (*work)(void));

static inline bool irqs_are_on(void) {
    uint64_t flags;
    __asm__ volatile("pushfq; pop %0" : "=r"(flags)::"memory");
    return flags >> 9 & 1;
}
static inline void irqs_off(void) { __asm__ volatile("cli" ::: "memory"); }
static inline void irqs_on(void) { __asm__ volatile("sti" ::: "memory"); }
// The processor's time-stamp counter.
static inline uint64_t ticks(void) {
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}
static inline void relax(void) { __asm__ volatile("pause" ::: "memory"); }

// memory.c: frames and page tables.
#define POISON 0xdeaddeaddeaddeadull
struct process {
    struct tlbkit_space space;
    uint64_t set[1];
    uint64_t root;
    // The entries of the user area.
    volatile uint64_t *entries;
};
extern volatile uint64_t *const kernel_entries;
void memory_start(void);
uint64_t kernel_root(void);
// A frame that holds `value`.
uint64_t frame_of(uint64_t value);
// Poisons a frame and takes it back; as the `release` of a gather.
void frame_free(void *count, uint64_t frame);
void process_make(struct process *process);
// Frees the tables and frames of an ended process.
void process_free(struct process *process);
// Puts `frame` (0 for none) into an entry and returns the frame that was there.
uint64_t user_map(struct process *process, unsigned page, uint64_t frame);
uint64_t kernel_map(unsigned page, uint64_t frame);
bool probe(const uint64_t *at, uint64_t *value);
uint64_t user_read(unsigned page);
uint64_t kernel_read(unsigned page);

// hardware.c: what the library needs of a CPU, with the instructions of instructions.c or of the archive.
enum fault { NO_FAULT, FAULT_NO_IPI, FAULT_NO_INVLPG, FAULT_NESTED };
extern enum fault fault;
const struct tlbkit_hardware_ops *hardware_table(void);
void hardware_start(void);
void misuse_hook(const struct tlbkit_misuse *misuse);

// main.c
extern struct tlbkit_machine machine;
// The space of which the last lazy reference was given back last.
extern struct tlbkit_space *volatile unreferenced;
