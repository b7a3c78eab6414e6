//! The instructions of `tlbkit-x86` for C: a kernel that does not write its own fills its table of functions with them.

use tlbkit::{Cr3, Invpcid, Pcid, VirtAddr};
use tlbkit_x86::interrupts::{self, Interrupts};
use tlbkit_x86::{Identity, Overrides, Trust};

use crate::ops::{HardwareOps, TLBKIT_FEATURE_INVPCID, TLBKIT_FEATURE_PCID, TrustKind};
use crate::status::{Status, status_of};
use crate::storage::check_pointer;

/// Any value that is not a [`TrustKind`] counts as [`TrustKind::Never`].
const fn overrides(trust: u32) -> Overrides {
    let invlpg_with_pcids = match trust {
        kind if kind == TrustKind::ByTable as u32 => Trust::ByTable,
        kind if kind == TrustKind::Always as u32 => Trust::Always,
        _ => Trust::Never,
    };
    Overrides { invlpg_with_pcids }
}

/// Detects the features of this CPU, except for those that errata rule out, enables global pages and PCIDs, and returns
/// `TLBKIT_FEATURE_` flags. `features` of the table must return these for this CPU from then on. Once on each CPU,
/// before `tlbkit_bring_up`; ring 0, interrupts off. `trust` is an `enum tlbkit_x86_trust`, the same on every CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_x86_start(trust: u32) -> u32 {
    // SAFETY: the contract; only features that this CPU reports are enabled.
    let on = unsafe {
        let identity = Identity::of_this_cpu().with_microcode_read();
        tlbkit_x86::enable_pcids(identity.features(overrides(trust)))
    };
    let pcid = if on.pcid { TLBKIT_FEATURE_PCID } else { 0 };
    let invpcid = if on.invpcid { TLBKIT_FEATURE_INVPCID } else { 0 };
    pcid | invpcid
}

/// cbindgen:prefix=
/// Disables PCIDs on this CPU and flushes its TLB, as a kernel does before it hands the CPU to another kernel. The root
/// that is loaded stays loaded, under PCID 0. Ring 0, interrupts off, and after `tlbkit_offline` on this CPU, since the
/// library uses PCIDs until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_x86_disable_tags() {
    // SAFETY: the contract.
    unsafe { tlbkit_x86::disable_pcids() };
}

/// Sets those of the following functions of the table that are NULL: `write_cr3`, `invlpg`, `invpcid`, `toggle_pge`,
/// `relax`, `irqs_enabled`, `irqs_save`, `irqs_restore`, `now_cycles`, `invlpgb`, `tlbsync`. The kernel sends IPIs
/// itself. `irqs_save` and `irqs_restore` belong together, since only the kernel's own `irqs_restore` can interpret
/// what its `irqs_save` returned: a table that has only one of them is refused with `TLBKIT_STATUS_NO_FUNCTION`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_x86_fill(ops: *mut HardwareOps) -> Status {
    status_of(|| {
        check_pointer(ops)?;
        // SAFETY: not null, aligned, and by the contract a whole struct.
        let ops = unsafe { &mut *ops };
        if ops.irqs_save.is_some() != ops.irqs_restore.is_some() {
            return Err(Status::NoFunction);
        }
        ops.write_cr3.get_or_insert(write_cr3);
        ops.invlpg.get_or_insert(invlpg);
        ops.invpcid.get_or_insert(invpcid);
        ops.toggle_pge.get_or_insert(toggle_pge);
        ops.relax.get_or_insert(relax);
        ops.irqs_enabled.get_or_insert(irqs_enabled);
        ops.irqs_save.get_or_insert(irqs_save);
        ops.irqs_restore.get_or_insert(irqs_restore);
        ops.now_cycles.get_or_insert(now_cycles);
        ops.invlpgb.get_or_insert(invlpgb);
        ops.tlbsync.get_or_insert(tlbsync);
        Ok(())
    })
}

unsafe extern "C" fn write_cr3(_cpu: u32, value: u64) {
    // SAFETY: ring 0; the protocol loads the kernel's roots, and sets no PCID where PCIDs are disabled.
    unsafe { tlbkit_x86::write_cr3(Cr3(value)) };
}

unsafe extern "C" fn invlpg(_cpu: u32, va: u64) {
    // SAFETY: ring 0.
    unsafe { tlbkit_x86::invlpg(VirtAddr(va)) };
}

unsafe extern "C" fn invpcid(_cpu: u32, kind: u32, pcid: u32, va: u64) {
    let what = Invpcid::from_operands(u64::from(kind), Pcid(pcid as u16), VirtAddr(va)).unwrap_or(Invpcid::All);
    // SAFETY: ring 0; called only on CPUs that have the instruction.
    unsafe { tlbkit_x86::invpcid(what) };
}

unsafe extern "C" fn toggle_pge(_cpu: u32) {
    // SAFETY: ring 0, interrupts off.
    unsafe { tlbkit_x86::toggle_pge() };
}

unsafe extern "C" fn invlpgb(_cpu: u32, rax: u64, ecx: u32, edx: u32) {
    // SAFETY: ring 0; called only if the kernel says that all CPUs have the instruction, and for no more pages than it
    // says.
    unsafe { tlbkit_x86::Operands { rax, ecx, edx }.execute() };
}

unsafe extern "C" fn tlbsync(_cpu: u32) {
    // SAFETY: as above.
    unsafe { tlbkit_x86::tlbsync() };
}

unsafe extern "C" fn relax(_cpu: u32) {
    core::hint::spin_loop();
}

unsafe extern "C" fn irqs_enabled(_cpu: u32) -> bool {
    interrupts::are_enabled()
}

unsafe extern "C" fn irqs_save(_cpu: u32) -> u64 {
    // SAFETY: ring 0.
    unsafe { interrupts::save_and_disable() as u64 }
}

unsafe extern "C" fn irqs_restore(_cpu: u32, saved: u64) {
    let before = if saved == Interrupts::Enabled as u64 { Interrupts::Enabled } else { Interrupts::Disabled };
    // SAFETY: ring 0; if interrupts were enabled, the handlers are in place.
    unsafe { interrupts::restore(before) };
}

unsafe extern "C" fn now_cycles(_cpu: u32) -> u64 {
    tlbkit_x86::now_cycles()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trust_that_does_not_exist_is_none() {
        let trust = |kind: u32| overrides(kind).invlpg_with_pcids;
        assert_eq!(overrides(TrustKind::ByTable as u32), Overrides::default());
        assert_eq!(trust(TrustKind::Always as u32), Trust::Always);
        assert_eq!([TrustKind::Never as u32, 3, u32::MAX].map(trust), [Trust::Never; 3]);
    }
}
