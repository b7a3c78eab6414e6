/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the files of the TLB share. */
#ifndef _TLB_INTERNAL_H
#define _TLB_INTERNAL_H

#include <linux/percpu.h>
#define TLBKIT_LINKED
#include <asm/tlbkit.h>

extern struct tlbkit_machine tlb_machine;

/* Whether the flush that runs on this CPU has interrupted anybody. */
DECLARE_PER_CPU(bool, tlb_has_sent);

/* Whether the library knows this CPU: until then, and after, nothing may be asked of it. The object has no checks. */
DECLARE_PER_CPU(bool, tlb_is_up);

/* Ends the kernel with what the library says. */
void __cold tlb_stop(enum tlbkit_status status, const char *where);

static __always_inline void tlb_must(enum tlbkit_status status, const char *where)
{
	if (unlikely(status != TLBKIT_STATUS_OK))
		tlb_stop(status, where);
}

/*
 * For a call that nothing but an archive with checks refuses. The object has none, so what the call returns is not
 * looked at: it can be the last of a function, and is a jump then.
 */
#define tlb_not_refused(call) do { enum tlbkit_status ok __maybe_unused = (call); } while (0)

#endif
