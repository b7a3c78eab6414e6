/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the programs of the guest share. */
#ifndef GUEST_H
#define GUEST_H

#include <stdbool.h>
#include <stdint.h>

enum { PAGE_BYTES = 4096 };

/* Ends the program with a line that says what went wrong. */
_Noreturn void fail(const char *what, long value);

/* Runs this task on one CPU from now on, if that CPU is there. */
void pin(int cpu);

int online_cpus(void);

/* Interrupts of all CPUs so far: those that ask for a flush or a function's run, and those that wake. */
struct interrupts {
    uint64_t calls;
    uint64_t reschedules;
};
struct interrupts interrupts_now(void);

/* Pages of memory of one's own, written to. */
uint8_t *map_pages(long pages);

/* The measured programs: see rows.c. */
int measure(const char *wanted);

/* The value checks: see check.c. */
int check(int seconds);

/* Programs that others wrote, and what they say of this kernel: see judge.c. */
int judge(const char *wanted);

/* Memory that is merged, moved, swapped and made huge, and what it must hold: see memory.c. */
int load_memory(int seconds);

#endif
