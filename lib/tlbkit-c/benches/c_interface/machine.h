// A kernel in C with sixteen CPUs and twelve spaces, whose hardware does nothing, so that only the library is counted.

#pragma once

#include "tlbkit.h"

enum { CPUS = 16, SPACES = 12 };

extern struct tlbkit_machine machine;
extern struct tlbkit_space spaces[SPACES];

// Makes the machine and brings all CPUs up; CPU 0 runs space 0.
void machine_begin(const char *policy);
// Stops the program if a call has failed.
void must(enum tlbkit_status status);
// CPU `cpu` runs space `space`.
void switch_to(uint32_t cpu, unsigned space);
// CPU `cpu` runs nothing of a user's.
void go_idle(uint32_t cpu);
