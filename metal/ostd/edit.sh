#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# What OSTD 0.18.0 has to be told outside of its TLB code, in the copy named by the first argument. Both kernels get the
# mend; with the folder of the libraries as second argument a copy gets the rest, which the file tlb.rs beside this one needs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$1/src"

# The mend. The id of an xAPIC is in the highest byte of its register; without the shift each interrupt goes to CPU 0.
sed -i 's|self.io_mem.read_once(xapic::XAPIC_ID as usize) }|self.io_mem.read_once::<u32>(xapic::XAPIC_ID as usize) >> 24 }|' \
    arch/x86/kernel/apic/xapic.rs
[ $# -gt 1 ] || exit 0

cp "$here/tlb.rs" mm/tlb.rs
cat >> ../Cargo.toml <<END
[target.x86_64-unknown-none.dependencies]
tlbkit = { path = "$2/tlbkit" }
tlbkit-x86 = { path = "$2/tlbkit-x86" }
END

# A space has the library's in it, which ends before the page table goes; whether it is loaded CR3 alone does not say.
sed -i -e 's|^    pt: PageTable<UserPtConfig>,|    pub(super) tlb: Space,\n&|' -e '/^    cpus: AtomicCpuSet,/d' \
    -e '/^    pub fn new() -> Self {/a\        let pt = KERNEL_PAGE_TABLE.get().unwrap().create_user_page_table();' \
    -e 's|^            pt: KERNEL_PAGE_TABLE.*|            tlb: Space::new(pt.root_paddr()),\n            pt,|' \
    -e '/^            cpus: AtomicCpuSet::new/d' \
    -e '/^    pub fn activate/,/^    }/c\    pub fn activate(self: \&Arc<Self>) {\n        tlb::activate(self);\n    }' \
    -e 's|if current_page_table_paddr() != self.pt.root_paddr() {|if !self.tlb.is_running() {|' \
    -e 's|TlbFlusher::new(&self.cpus, |TlbFlusher::of_space(\&self.tlb, |' \
    -e 's|        tlb::{TlbFlushOp, TlbFlusher},|        tlb::{self, Space, TlbFlushOp, TlbFlusher},|' \
    -e '/^cpu_local_cell! {/,/^}/d' -e 's|ACTIVATED_VM_SPACE.load()|tlb::activated()|' \
    mm/vm_space.rs

# CPUs that can interrupt each other are brought up; each such interrupt is answered first; a CPU that halts is lazy.
sed -i -e 's|^    hw_cpu_ids: Box|    pub(crate) hw_cpu_ids: Box|' \
    -e 's|^    // No races because we are in IRQs.|    crate::mm::tlb::answer();\n&|' \
    -e '/^pub(super) fn init() {/,/^}/s|^    });|&\n    crate::mm::tlb::init();|' smp.rs
sed -i 's|crate::arch::mm::tlb_flush_all_excluding_global();|crate::mm::tlb::bring_up();|' boot/smp.rs
sed -i 's|crate::arch::irq::enable_local_and_halt();|crate::mm::tlb::halt_lazily(crate::arch::irq::enable_local_and_halt);|' \
    task/preempt/mod.rs

# What the kernel maps for itself is global: INVLPG, by which a kernel stack's old entries go, reaches others under one
# PCID only.
sed -i 's/PrivilegedPageFlags::empty()/PrivilegedPageFlags::GLOBAL/' task/kernel_stack.rs mm/dma/util.rs io/io_mem/mod.rs
