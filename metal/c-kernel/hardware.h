// The instructions of the table of functions: this kernel's own, or the archive's.

#pragma once

#include "kernel.h"

#ifdef TLBKIT_X86
static inline uint32_t instructions_start(void) { return tlbkit_x86_start(TLBKIT_X86_TRUST_BY_TABLE); }
static inline void instructions_fill(struct tlbkit_hardware_ops *ops) { OK(tlbkit_x86_fill(ops)); }
#else
// Sets up tags on this CPU and returns its features. Interrupts are off.
uint32_t instructions_start(void);
void instructions_fill(struct tlbkit_hardware_ops *ops);
#endif
