// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * What the library asks of a CPU, and CPUs that come and go.
 *
 * Page-table isolation: Linux's own entry code loads the user half, and looks into `user_pcid_flush_mask` before it
 * does. So a bit is set there with everything that the library drops in the kernel half, see `owe_user_half`.
 */
#include <linux/cpu.h>
#include <linux/memblock.h>
#include <linux/mmu_context.h>
#include <linux/smp.h>

#include <asm/apic.h>
#include <asm/hardirq.h>
#include <asm/irq.h>
#include <asm/tlb.h>
#include <asm/tlbflush.h>

#include "tlb_internal.h"

#if defined(CONFIG_PARAVIRT) || defined(CONFIG_ADDRESS_MASKING) || !defined(CONFIG_SMP)
#error "not covered: paravirtual flushes, linear address masking, kernels for one CPU"
#endif

struct tlbkit_machine tlb_machine __read_mostly;
DEFINE_PER_CPU(bool, tlb_has_sent);
DEFINE_PER_CPU(bool, tlb_is_up);
static u32 features __ro_after_init;

void __cold tlb_stop(enum tlbkit_status status, const char *where)
{
	panic("tlbkit: %s: %s\n", where, tlbkit_status_text(status));
}

/* The user half under the tag in `cr3` is stale: the entry code flushes it on the way out. */
static __always_inline void owe_user_half(u64 cr3)
{
	__set_bit(cr3 & CR3_PCID_MASK, (unsigned long *)this_cpu_ptr(&cpu_tlbstate.user_pcid_flush_mask));
}

static __always_inline bool has_user_half(void)
{
	return cpu_feature_enabled(X86_FEATURE_PTI) && cpu_feature_enabled(X86_FEATURE_PCID);
}

/* ---- What the object of the library calls by name ---- */

void tlbkit_k_write_cr3(u64 value)
{
	if (has_user_half() && !(value & CR3_NOFLUSH))
		owe_user_half(value);
	this_cpu_write(cpu_tlbstate.cr3, value);
	native_write_cr3(value);
}

void tlbkit_k_invlpg(u64 va)
{
	invlpg(va);
	if (has_user_half())
		owe_user_half(this_cpu_read(cpu_tlbstate.cr3));
}

/* The library asks for what ends everything, and for nothing else: the user half is flushed by CR3. */
void tlbkit_k_invpcid(u32 kind, u32 pcid, u64 va)
{
	__invpcid(pcid, va, kind);
}

void tlbkit_k_toggle_pge(void)
{
	__native_tlb_flush_global(this_cpu_read(cpu_tlbstate.cr4));
}

void tlbkit_k_send_ipi(u32 cpu, u32 to)
{
	this_cpu_write(tlb_has_sent, true);
	__apic_send_IPI(to, X86_PLATFORM_IPI_VECTOR);
}

void tlbkit_k_send_ipi_to_others(u32 cpu)
{
	this_cpu_write(tlb_has_sent, true);
	__apic_send_IPI_allbutself(X86_PLATFORM_IPI_VECTOR);
}

/* ---- The table: what is not called often ---- */

static u32 get_features(u32 cpu)
{
	return features;
}

static void tell_unanswered(u32 cpu, u32 missing)
{
	pr_emerg("tlbkit: CPU %u waits for CPU %u, which does not answer\n", cpu, missing);
}

static void __cold on_misuse(const struct tlbkit_misuse *misuse)
{
	panic("tlbkit: %s (%s:%u)\n", misuse->message, misuse->file, misuse->line);
}

static const struct tlbkit_hardware_ops ops = {
	.features = get_features,
	.unanswered = tell_unanswered,
};

/* The handler of the vector that Linux keeps for platforms. */
static void on_request(void)
{
	inc_irq_stat(irq_tlb_count);
	count_vm_tlb_event(NR_TLB_REMOTE_FLUSH_RECEIVED);
	trace_tlb_flush(TLB_REMOTE_SHOOTDOWN, 0);
	tlb_not_refused(tlbkit_answer(&tlb_machine, smp_processor_id()));
}

static void *__ref memory_for_ever(size_t bytes)
{
	return memblock_alloc(bytes, SMP_CACHE_BYTES);
}

static void __ref make_machine(void)
{
	/* Without tags a CPU that no longer runs an mm keeps nothing by being in its set: it is made to leave sooner. */
	bool has_tags = boot_cpu_has(X86_FEATURE_PCID);
	const char *policy = boot_cpu_has(X86_FEATURE_PTI) ?
		(has_tags ? "tlbkit:pcid=6+lazy_refs=shot-down+pti=on+user_flush=cr3" :
			    "tlbkit:pcid=6+lazy_refs=shot-down+set=64+pti=on+user_flush=cr3") :
		(has_tags ? "tlbkit:pcid=6+lazy_refs=shot-down" : "tlbkit:pcid=6+lazy_refs=shot-down+set=64");
	size_t words = tlbkit_matrix_words(nr_cpu_ids);
	struct tlbkit_setup setup = {
		.ops = &ops,
		.policy = policy,
		.cpus = memory_for_ever(nr_cpu_ids * sizeof(struct tlbkit_cpu_state)),
		.cpu_count = nr_cpu_ids,
		.matrix = memory_for_ever(words * sizeof(u64)),
		.matrix_words = words,
		.kernel_root = __sme_pa(init_mm.pgd),
	};

	if (!tlbkit_header_fits())
		panic("tlbkit: the header and the object are of different builds\n");
	if (boot_cpu_has(X86_FEATURE_PCID))
		features |= TLBKIT_FEATURE_PCID;
	if (boot_cpu_has(X86_FEATURE_INVPCID))
		features |= TLBKIT_FEATURE_INVPCID;
	tlbkit_set_panic_hook(on_misuse);
	tlb_must(tlbkit_machine_init(&tlb_machine, &setup), __func__);
	x86_platform_ipi_callback = on_request;
	pr_info("tlbkit: %s, %u CPUs\n", policy, nr_cpu_ids);
}

/* On each CPU, when it comes up and after it has slept. The first of all is the one that boots. */
void initialize_tlbstate_and_flush(void)
{
	struct mm_struct *mm = this_cpu_read(cpu_tlbstate.loaded_mm);
	bool is_lazy = this_cpu_read(cpu_tlbstate_shared.is_lazy);

	if (!x86_platform_ipi_callback)
		make_machine();
	this_cpu_write(cpu_tlbstate.last_user_mm_spec, 1);
	this_cpu_write(cpu_tlbstate.loaded_mm, &init_mm);
	this_cpu_write(cpu_tlbstate_shared.is_lazy, false);
	tlb_must(tlbkit_bring_up(&tlb_machine, smp_processor_id()), __func__);
	this_cpu_write(tlb_is_up, true);
	if (mm != &init_mm && !is_lazy)
		switch_mm_irqs_off(NULL, mm, NULL);
}

/* The last that a CPU does here, interrupts off; it runs kernel threads alone from here on. */
void tlb_offline_cpu(void)
{
	if (this_cpu_read(cpu_tlbstate.loaded_mm) != &init_mm)
		switch_mm_irqs_off(NULL, &init_mm, NULL);
	this_cpu_write(tlb_is_up, false);
	tlb_must(tlbkit_offline(&tlb_machine, smp_processor_id()), __func__);
}
