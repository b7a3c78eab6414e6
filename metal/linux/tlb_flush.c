// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * What was changed in page tables, told to the library; and the flushes of one CPU that Linux asks for by name.
 */
#include <linux/debugfs.h>
#include <linux/mm.h>
#include <linux/mmu_context.h>
#include <linux/mmu_notifier.h>
#include <linux/smp.h>
#include <linux/vmstat.h>

#include <asm/text-patching.h>
#include <asm/tlb.h>
#include <asm/tlbflush.h>

#include "mm_internal.h"
#include "tlb_internal.h"

unsigned long tlb_single_page_flush_ceiling __read_mostly = 33;

/* A range as the library takes it. */
struct span {
	u64 first;
	u32 pages;
	u32 stride;
};

/* So many pages are everything. */
#define ALL_PAGES (1u << 30)
#define ALL (TLBKIT_STRIDE_PAGE4K | TLBKIT_FLUSH_EVERYTHING)
#define EVERYTHING ((struct span){ .first = 0, .pages = ALL_PAGES, .stride = ALL })

/*
 * Sizes that are no size of a page, 0 or that of the largest tables, mean everything. So does an end that is
 * TLB_FLUSH_ALL, the highest number: from address 0 on the sum of pages is 0 then, and from any other more than all.
 * A range of no pages is taken for everything with it.
 */
static __always_inline struct span span_of(unsigned long start, unsigned long end, unsigned int stride)
{
	unsigned long first, pages;

	/* Pages of the smallest size are the common case: its shifts are constants. */
	if (likely(stride == PAGE_SHIFT)) {
		first = start & PAGE_MASK;
		pages = (end - first + PAGE_SIZE - 1) >> PAGE_SHIFT;
	} else {
		first = start & ~((1UL << stride) - 1);
		pages = (end - first + (1UL << stride) - 1) >> stride;
		if (stride != PMD_SHIFT && stride != PUD_SHIFT)
			return EVERYTHING;
	}
	if (unlikely(pages - 1 >= ALL_PAGES - 1))
		return EVERYTHING;
	return (struct span){ .first = first, .pages = pages, .stride = stride };
}

static __always_inline void count_sent(void)
{
#ifdef CONFIG_DEBUG_TLBFLUSH
	if (this_cpu_read(tlb_has_sent)) {
		this_cpu_write(tlb_has_sent, false);
		count_vm_tlb_event(NR_TLB_REMOTE_FLUSH);
	}
#endif
}

static __always_inline void count(struct mm_struct *mm, struct span span)
{
	count_sent();
#ifdef CONFIG_DEBUG_TLBFLUSH
	if (mm != this_cpu_read(cpu_tlbstate.loaded_mm))
		return;
	if (span.pages > tlb_single_page_flush_ceiling)
		count_vm_tlb_event(NR_TLB_LOCAL_FLUSH_ALL);
	else
		count_vm_tlb_events(NR_TLB_LOCAL_FLUSH_ONE, span.pages);
#endif
	trace_tlb_flush(TLB_LOCAL_MM_SHOOTDOWN, span.pages == ALL_PAGES ? TLB_FLUSH_ALL : span.pages);
}

static enum tlbkit_status flush_alone(unsigned int cpu, struct mm_struct *mm, struct span span)
{
	enum tlbkit_status status = tlbkit_flush_range_alone(&tlb_machine, cpu, &mm->context.tlb, span.first,
							     span.pages, span.stride);

	/*
	 * Whoever patched before is still in the set. Between two other spaces it may, as far as the library sees, be
	 * on its way to this one; it is not, since text_mutex is held.
	 */
	return status == TLBKIT_STATUS_IRQS_OFF && mm == poking_mm ? TLBKIT_STATUS_OK : status;
}

void flush_tlb_mm_range(struct mm_struct *mm, unsigned long start, unsigned long end, unsigned int stride,
			bool frees_tables)
{
	struct span span = span_of(start, end, stride);
	unsigned int cpu = get_cpu();

	if (frees_tables)
		span.stride |= TLBKIT_FLUSH_TABLES_FREED;
	/* Text patching flushes its own mm with interrupts off: nobody else runs that, so nobody must be told. */
	if (unlikely(irqs_disabled()))
		tlb_must(flush_alone(cpu, mm, span), __func__);
	else
		tlb_not_refused(tlbkit_flush_range(&tlb_machine, cpu, &mm->context.tlb, span.first, span.pages,
						   span.stride, TLBKIT_REASON_REMOVE_PTE));
	count(mm, span);
	put_cpu();
	mmu_notifier_arch_invalidate_secondary_tlbs(mm, start, end);
}

/* Before the library knows this CPU there is no other, and nothing but the kernel's tables. */
static void flush_kernel(u64 first, u64 pages, u32 stride)
{
	unsigned int cpu = get_cpu();

	if (unlikely(!this_cpu_read(tlb_is_up)))
		__flush_tlb_all();
	else
		tlb_must(tlbkit_flush_kernel_range(&tlb_machine, cpu, first, pages, stride,
						   TLBKIT_REASON_KERNEL_REMOVE), __func__);
	if (this_cpu_read(tlb_has_sent)) {
		this_cpu_write(tlb_has_sent, false);
		count_vm_tlb_event(NR_TLB_REMOTE_FLUSH);
	}
	put_cpu();
}

void flush_tlb_all(void)
{
	flush_kernel(0, 1, ALL);
}

/* Some callers give the address of the last byte as the end. */
void flush_tlb_kernel_range(unsigned long start, unsigned long end)
{
	if (end == TLB_FLUSH_ALL)
		return flush_tlb_all();
	start &= PAGE_MASK;
	if (end > start)
		flush_kernel(start, DIV_ROUND_UP(end - start, PAGE_SIZE), TLBKIT_STRIDE_PAGE4K);
}

/* ---- Reclaim: many address spaces, one flush. A task's batch is begun once, and stays open. ---- */

void tlb_batch_add(struct arch_tlbflush_unmap_batch *batch, struct mm_struct *mm)
{
	if (!batch->is_open) {
		tlb_must(tlbkit_batch_begin(&batch->batch, &tlb_machine, NULL), __func__);
		batch->is_open = true;
	}
	tlb_not_refused(tlbkit_batch_revoke(&batch->batch, get_cpu(), &mm->context.tlb));
	put_cpu();
}

void arch_tlbbatch_flush(struct arch_tlbflush_unmap_batch *batch)
{
	if (!batch->is_open)
		return;
	tlb_not_refused(tlbkit_batch_flush(&batch->batch, get_cpu(), TLBKIT_REASON_MIGRATE));
	count_sent();
	put_cpu();
}

/* ---- This CPU alone: more may go than the library was told of ---- */

void __flush_tlb_all(void)
{
	unsigned long flags;

	if (!cpu_feature_enabled(X86_FEATURE_PGE))
		return flush_tlb_local();
	if (cpu_feature_enabled(X86_FEATURE_INVPCID))
		return invpcid_flush_all();
	raw_local_irq_save(flags);
	__native_tlb_flush_global(this_cpu_read(cpu_tlbstate.cr4));
	raw_local_irq_restore(flags);
}
EXPORT_SYMBOL_GPL(__flush_tlb_all);

/*
 * What the loaded tag holds, of both halves. Interrupts are off between reading and writing: a request that makes this
 * CPU leave a space which it holds lazily must not have the old root loaded again behind it (C-50).
 */
void flush_tlb_local(void)
{
	unsigned long cr3, flags;

	raw_local_irq_save(flags);
	cr3 = __native_read_cr3();
	if (cpu_feature_enabled(X86_FEATURE_PTI) && cpu_feature_enabled(X86_FEATURE_PCID))
		__set_bit(cr3 & CR3_PCID_MASK, (unsigned long *)this_cpu_ptr(&cpu_tlbstate.user_pcid_flush_mask));
	native_write_cr3(cr3);
	raw_local_irq_restore(flags);
}

/* Under isolation the kernel's entries are not global: each tag may hold one. */
void flush_tlb_one_kernel(unsigned long addr)
{
	count_vm_tlb_event(NR_TLB_LOCAL_FLUSH_ONE);
	if (cpu_feature_enabled(X86_FEATURE_PTI) && cpu_feature_enabled(X86_FEATURE_PCID))
		__flush_tlb_all();
	else
		invlpg(addr);
}

/* ---- The knob ---- */

static int read_ceiling(void *unused, u64 *pages)
{
	*pages = tlb_single_page_flush_ceiling;
	return 0;
}

static int write_ceiling(void *unused, u64 pages)
{
	if (pages > INT_MAX)
		return -EINVAL;
	tlb_must(tlbkit_set_ceiling(&tlb_machine, pages), __func__);
	tlb_single_page_flush_ceiling = pages;
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(ceiling_file, read_ceiling, write_ceiling, "%llu\n");

static int __init make_knob(void)
{
	debugfs_create_file("tlb_single_page_flush_ceiling", 0600, arch_debugfs_dir, NULL, &ceiling_file);
	return 0;
}
late_initcall(make_knob);
