// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The TLB of an x86-64 Linux, by tlbkit: in place of the kernel's own file of this name. Here: which address space a
 * CPU has loaded.
 *
 * Linux says what happened, as it does today: an address space was switched to, entries were changed, a CPU came. What
 * has to be flushed where and when is decided behind tlbkit.h. These files hand over the instructions
 * (tlb_hardware.c), say what was changed (tlb_flush.c), and keep what other parts of Linux read: `loaded_mm`,
 * `is_lazy`, the events of vmstat, the tracepoint, the knob in debugfs.
 *
 * `loaded_mm` says whose segments and counters the CPU has. When a flush makes a CPU leave an mm that it holds lazily,
 * CR3 names the kernel's tables and `loaded_mm` still names the mm: it lives, since Linux counts who holds it lazily
 * (`mm_count`), and the next switch goes through the library, which knows.
 */
#include <linux/mm.h>
#include <linux/mmu_context.h>
#include <linux/sched.h>

#include <asm/nospec-branch.h>
#include <asm/perf_event.h>
#include <asm/tlbflush.h>

#include "tlb_internal.h"

DEFINE_PER_CPU_SHARED_ALIGNED(struct tlb_state_shared, cpu_tlbstate_shared);
EXPORT_PER_CPU_SYMBOL(cpu_tlbstate_shared);

void tlb_init_space(struct mm_struct *mm)
{
	/* What is there is a copy of the parent's, made by fork: all of it is written. */
	tlb_must(tlbkit_space_init(&mm->context.tlb, &tlb_machine, __sme_pa(mm->pgd),
			       (u64 *)cpumask_bits(mm_cpumask(mm)), TLBKIT_SET_WORDS(nr_cpu_ids)), __func__);
}

/* The pointer of the mm, and in its lowest bits what the task asked for by prctl: a barrier, a flush of the L1. */
static unsigned long speculation_of(struct task_struct *task)
{
	return (unsigned long)task->mm | (read_task_thread_flags(task) >> TIF_SPEC_IB & 3);
}

/* What is done between two programs, against what one could learn of the other. */
static void mitigate(struct task_struct *next)
{
	unsigned long before, after;

	if (!next || !next->mm)
		return;
	before = this_cpu_read(cpu_tlbstate.last_user_mm_spec);
	after = speculation_of(next);
	if (static_branch_likely(&switch_mm_cond_ibpb) && before != after && ((before | after) & 1))
		indirect_branch_prediction_barrier();
	if (static_branch_unlikely(&switch_mm_always_ibpb) && (before ^ after) & ~3UL)
		indirect_branch_prediction_barrier();
	if (static_branch_unlikely(&switch_mm_cond_l1d_flush) && before & 2)
		wrmsrl(MSR_IA32_FLUSH_CMD, L1D_FLUSH);
	this_cpu_write(cpu_tlbstate.last_user_mm_spec, after);
}

#ifdef CONFIG_PERF_EVENTS
static __always_inline void set_counter_access(struct mm_struct *mm)
{
	bool is_allowed = static_branch_unlikely(&rdpmc_always_available_key) ||
		(!static_branch_unlikely(&rdpmc_never_available_key) && atomic_read(&mm->context.perf_rdpmc_allowed));

	if (is_allowed) {
		perf_clear_dirty_counters();
		cr4_set_bits_irqsoff(X86_CR4_PCE);
	} else {
		cr4_clear_bits_irqsoff(X86_CR4_PCE);
	}
}

void cr4_update_pce(void *ignored)
{
	set_counter_access(this_cpu_read(cpu_tlbstate.loaded_mm));
}
#else
static void set_counter_access(struct mm_struct *mm) {}
#endif

/* From one address space to another. Out of line, so that a CPU that was lazy saves no register for it. */
static noinline void switch_between(struct mm_struct *prev, struct mm_struct *next, struct task_struct *task)
{
	mitigate(task);
	/* An NMI in between must not take the one for the other. */
	this_cpu_write(cpu_tlbstate.loaded_mm, LOADED_MM_SWITCHING);
	this_cpu_write(cpu_tlbstate_shared.is_lazy, false);
	barrier();
	if (next == &init_mm)
		tlb_not_refused(tlbkit_load_kernel(&tlb_machine, smp_processor_id()));
	else
		tlb_not_refused(tlbkit_switch_to(&tlb_machine, smp_processor_id(), &next->context.tlb));
	if (trace_tlb_flush_enabled())
		trace_tlb_flush(TLB_FLUSH_ON_TASK_SWITCH,
				this_cpu_read(cpu_tlbstate.cr3) & CR3_NOFLUSH ? 0 : TLB_FLUSH_ALL);
	barrier();
	this_cpu_write(cpu_tlbstate.loaded_mm, next);
	set_counter_access(next);
	switch_ldt(prev, next);
}

void switch_mm_irqs_off(struct mm_struct *unused, struct mm_struct *next, struct task_struct *task)
{
	struct mm_struct *prev = this_cpu_read(cpu_tlbstate.loaded_mm);

	if (prev != next)
		return switch_between(prev, next, task);
	if (!this_cpu_read(cpu_tlbstate_shared.is_lazy))
		return;
	this_cpu_write(cpu_tlbstate_shared.is_lazy, false);
	tlb_not_refused(tlbkit_switch_to(&tlb_machine, smp_processor_id(), &next->context.tlb));
}

void switch_mm(struct mm_struct *prev, struct mm_struct *next, struct task_struct *task)
{
	unsigned long flags;

	local_irq_save(flags);
	switch_mm_irqs_off(prev, next, task);
	local_irq_restore(flags);
}

void enter_lazy_tlb(struct mm_struct *mm, struct task_struct *task)
{
	if (this_cpu_read(cpu_tlbstate.loaded_mm) == &init_mm)
		return;
	this_cpu_write(cpu_tlbstate_shared.is_lazy, true);
	tlb_not_refused(tlbkit_enter_lazy(&tlb_machine, smp_processor_id()));
}

void leave_mm(void)
{
	if (this_cpu_read(cpu_tlbstate.loaded_mm) != &init_mm)
		switch_mm(NULL, &init_mm, NULL);
}
EXPORT_SYMBOL_GPL(leave_mm);

bool nmi_uaccess_okay(void)
{
	struct mm_struct *mm = current->mm;

	return mm && mm == this_cpu_read(cpu_tlbstate.loaded_mm) &&
		tlbkit_is_running(&tlb_machine, smp_processor_id(), &mm->context.tlb);
}

unsigned long __get_current_cr3_fast(void)
{
	return this_cpu_read(cpu_tlbstate.cr3) & ~CR3_NOFLUSH;
}
EXPORT_SYMBOL_GPL(__get_current_cr3_fast);
