#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR MIT
# What Linux has to be told elsewhere, line by line, in the tree named by the first argument.
set -eu
cd "$1"
asm=arch/x86/include/asm
ours='void tlb_offline_cpu(void);\nvoid tlb_batch_add(struct arch_tlbflush_unmap_batch *batch, struct mm_struct *mm);'

# An address space of the library's in each mm, instead of a name, a generation and a clock for its set of CPUs.
sed -i -e 's|^#include <linux/bits.h>|&\n#include <asm/tlbkit.h>|' -e 's|u64 ctx_id;|struct tlbkit_space tlb;|' \
    -e '/atomic64_t tlb_gen;/d' -e '/unsigned long next_trim_cpumask;/d' -e '/\.ctx_id = 1/d' $asm/mmu.h
sed -i -e 's|^extern atomic64_t last_mm_ctx_id;|void tlb_init_space(struct mm_struct *mm);|' \
    -e 's|mm->context.ctx_id = .*|tlb_init_space(mm);|' -e '/mm->context.tlb_gen, 0/d' \
    -e '/mm->context.next_trim_cpumask = /d' $asm/mmu_context.h

# The last value of CR3 instead of a table of slots; a batch of the library's instead of a set of CPUs.
sed -i -e 's|struct tlb_context ctxs.*|unsigned long cr3;|' -e '/u64 inc_mm_tlb_gen(/,/^}/d' \
    -e 's|inc_mm_tlb_gen(mm);|tlb_batch_add(batch, mm);|' -e '/cpumask_or(&batch->cpumask/d' \
    -e "s|^extern void initialize_tlbstate_and_flush.*|&\\n$ours|" \
    $asm/tlbflush.h
sed -i -e 's|^#include <linux/cpumask.h>|&\n#include <asm/tlbkit.h>|' \
    -e 's|struct cpumask cpumask;|struct tlbkit_batch batch;\n\tbool is_open;|' $asm/tlbbatch.h

# A CPU that goes says so before its interrupts end.
sed -i -e '0,/^\tapic_soft_disable();/s||\ttlb_offline_cpu();\n&|' arch/x86/kernel/smpboot.c

sed -i -e 's| tlb\.o | tlb.o tlb_hardware.o tlb_flush.o tlbkit.o |' arch/x86/mm/Makefile
