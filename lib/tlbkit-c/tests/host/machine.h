// A machine of four CPUs in one thread: a TLB that never evicts, page tables of eight pages, and interrupts that arrive
// at once or when the test says so. It is what a C kernel supplies, with instructions replaced by arrays.

#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "tlbkit.h"

#define CPUS 4
#define PAGES 8
#define USER_VA 0x400000ull
#define KERNEL_VA 0xffff800000000000ull
#define NO_FRAME 0

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, preset, #condition); \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)
#define OK(call) CHECK((call) == TLBKIT_STATUS_OK)

// The policy that runs now, for messages.
extern const char *preset;

extern const struct tlbkit_hardware_ops hardware;
// What `machine_begin` gives the machine: `hardware`, unless the test wants another.
extern const struct tlbkit_hardware_ops *table;
extern struct tlbkit_machine machine;
extern struct tlbkit_space space_a, space_b;
extern uint64_t set_a[1], set_b[1];

// What the test decides.
extern bool irqs_on[CPUS];
// The CPU that executes, for a table that has a `this_cpu`.
extern uint32_t here;
extern bool is_delivery_held;
extern uint32_t late_choice;
extern uint32_t features_of_all;
extern void (*while_waiting)(uint32_t cpu);

// What the test sees.
extern unsigned interrupts[CPUS], late_calls, invpcids, toggles;
extern struct tlbkit_space *last_left;

// Begins anew with `policy` (NULL for the library's own): machine, CPUs, two spaces with every page mapped.
void machine_begin(const char *policy);
// Roots of the page tables: 0 is the kernel's.
uint64_t root_of(const struct tlbkit_space *space);
// That of CPU `cpu` alone, through which it walks to the pages once it has hooked their table.
uint64_t own_root_of(uint32_t cpu, const struct tlbkit_space *space);
extern bool has_hooked[CPUS];
// Changes a page-table entry, and nothing else.
void set_page(const struct tlbkit_space *space, unsigned page, uint64_t frame);
// What CPU `cpu` reads through page `page` of what it has loaded, by its TLB if it can.
uint64_t touch(uint32_t cpu, unsigned page);
uint64_t touch_kernel(uint32_t cpu, unsigned page);
// Delivers held interrupts.
void deliver(void);
// Calls with interrupts off, as a kernel does.
void switch_to(uint32_t cpu, const struct tlbkit_space *space);
void go_idle(uint32_t cpu);
