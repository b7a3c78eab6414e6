//! How the archive reaches the functions of the hot path. By default through the table of functions. With the feature
//! `linked` by symbol, which saves the indirect call. With `flags`, or with `linked` and `x86`, some or all of them are
//! inlined as instructions instead.

#[cfg(all(feature = "linked", not(feature = "x86")))]
pub(crate) use by_name::Hot;
#[cfg(not(feature = "linked"))]
pub(crate) use by_table::Hot;
#[cfg(all(feature = "linked", feature = "x86"))]
pub(crate) use inlined::Hot;

/// Through the table of functions.
#[cfg(not(feature = "linked"))]
mod by_table {
    use crate::ops::HardwareOps;
    use crate::status::Status;

    /// The functions of the table. None is missing.
    pub(crate) struct Hot {
        write_cr3: unsafe extern "C" fn(u32, u64),
        invlpg: unsafe extern "C" fn(u32, u64),
        invpcid: unsafe extern "C" fn(u32, u32, u32, u64),
        toggle_pge: unsafe extern "C" fn(u32),
        send_ipi: unsafe extern "C" fn(u32, u32),
        send_ipi_to_others: unsafe extern "C" fn(u32),
        relax: unsafe extern "C" fn(u32),
        irqs_enabled: unsafe extern "C" fn(u32) -> bool,
        irqs_save: unsafe extern "C" fn(u32) -> u64,
        irqs_restore: unsafe extern "C" fn(u32, u64),
    }

    /// Defines methods that call one function each.
    macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(#[inline(always)]
        pub(crate) fn $name(&self, cpu: u32 $(, $argument: $type)*) $(-> $result)? {
            // SAFETY: a function of the kernel, which stays valid as long as the machine, called as the header says.
            unsafe { (self.$name)(cpu $(, $argument)*) }
        })*
    };
}

    impl Hot {
        pub(crate) fn new(table: &HardwareOps) -> Result<Self, Status> {
            let missing = Status::NoFunction;
            Ok(Self {
                write_cr3: table.write_cr3.ok_or(missing)?,
                invlpg: table.invlpg.ok_or(missing)?,
                invpcid: table.invpcid.unwrap_or(no_invpcid),
                toggle_pge: table.toggle_pge.ok_or(missing)?,
                send_ipi: table.send_ipi.ok_or(missing)?,
                send_ipi_to_others: table.send_ipi_to_others.ok_or(missing)?,
                relax: table.relax.ok_or(missing)?,
                irqs_enabled: table.irqs_enabled.ok_or(missing)?,
                irqs_save: table.irqs_save.ok_or(missing)?,
                irqs_restore: table.irqs_restore.ok_or(missing)?,
            })
        }

        calls! {
            write_cr3(value: u64);
            invlpg(va: u64);
            invpcid(kind: u32, pcid: u32, va: u64);
            toggle_pge();
            send_ipi(to: u32);
            send_ipi_to_others();
            relax();
            irqs_enabled() -> bool;
            irqs_save() -> u64;
            irqs_restore(saved: u64);
        }
    }

    extern "C" fn no_invpcid(_cpu: u32, _kind: u32, _pcid: u32, _va: u64) {
        panic!("a CPU has INVPCID and the table of functions does not");
    }
}

/// By symbols that the kernel defines: `tlbkit_k_*`, declared in the header under `TLBKIT_LINKED`.
#[cfg(all(feature = "linked", not(feature = "x86")))]
mod by_name {
    use super::ipi;
    use crate::ops::HardwareOps;
    use crate::status::Status;

    unsafe extern "C" {
        fn tlbkit_k_write_cr3(value: u64);
        fn tlbkit_k_invlpg(va: u64);
        fn tlbkit_k_invpcid(kind: u32, pcid: u32, va: u64);
        fn tlbkit_k_toggle_pge();
    }

    #[cfg(not(feature = "flags"))]
    unsafe extern "C" {
        fn tlbkit_k_relax();
        fn tlbkit_k_irqs_enabled() -> bool;
        fn tlbkit_k_irqs_save() -> u64;
        fn tlbkit_k_irqs_restore(saved: u64);
    }

    /// Empty, since the linker finds the functions.
    pub(crate) struct Hot;

    /// Defines methods that call one function each.
    macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $function:ident;)*) => {
        $(#[inline(always)]
        pub(crate) fn $name(&self, _cpu: u32 $(, $argument: $type)*) $(-> $result)? {
            // SAFETY: a function of the kernel, called as the header says.
            unsafe { $function($($argument),*) }
        })*
    };
}

    #[allow(clippy::unused_self, reason = "in other builds it holds the table of functions")]
    impl Hot {
        #[allow(clippy::unnecessary_wraps, reason = "as above")]
        pub(crate) const fn new(_table: &HardwareOps) -> Result<Self, Status> {
            Ok(Self)
        }

        calls! {
            write_cr3(value: u64) = tlbkit_k_write_cr3;
            invlpg(va: u64) = tlbkit_k_invlpg;
            invpcid(kind: u32, pcid: u32, va: u64) = tlbkit_k_invpcid;
            toggle_pge() = tlbkit_k_toggle_pge;
        }

        #[cfg(not(feature = "flags"))]
        calls! {
            relax() = tlbkit_k_relax;
            irqs_enabled() -> bool = tlbkit_k_irqs_enabled;
            irqs_save() -> u64 = tlbkit_k_irqs_save;
            irqs_restore(saved: u64) = tlbkit_k_irqs_restore;
        }

        #[inline(always)]
        pub(crate) fn send_ipi(&self, cpu: u32, to: u32) {
            ipi::send(cpu, to);
        }

        #[inline(always)]
        pub(crate) fn send_ipi_to_others(&self, cpu: u32) {
            ipi::send_to_others(cpu);
        }
    }
}

/// Inlined as instructions. Only the IPIs are sent by functions of the kernel.
#[cfg(all(feature = "linked", feature = "x86"))]
mod inlined {
    use tlbkit::{Cr3, Invpcid, Pcid, VirtAddr};

    use super::ipi;
    use crate::ops::HardwareOps;
    use crate::status::Status;

    /// Empty, since the instructions are inlined.
    pub(crate) struct Hot;

    #[allow(clippy::unused_self, reason = "in other builds it holds the table of functions")]
    impl Hot {
        #[allow(clippy::unnecessary_wraps, reason = "as above")]
        pub(crate) const fn new(_table: &HardwareOps) -> Result<Self, Status> {
            Ok(Self)
        }

        #[inline(always)]
        pub(crate) fn write_cr3(&self, _cpu: u32, value: u64) {
            // SAFETY: ring 0, by the crate's contract; the protocol loads roots of the kernel's, and no PCID where
            // there are none.
            unsafe { tlbkit_x86::write_cr3(Cr3(value)) }
        }

        #[inline(always)]
        pub(crate) fn invlpg(&self, _cpu: u32, va: u64) {
            // SAFETY: ring 0, by the crate's contract.
            unsafe { tlbkit_x86::invlpg(VirtAddr(va)) }
        }

        #[inline(always)]
        pub(crate) fn invpcid(&self, _cpu: u32, kind: u32, pcid: u32, va: u64) {
            let what = Invpcid::from_operands(u64::from(kind), Pcid(pcid as u16), VirtAddr(va)).unwrap_or(Invpcid::All);
            // SAFETY: ring 0, by the crate's contract; called only where the CPU has it.
            unsafe { tlbkit_x86::invpcid(what) }
        }

        pub(crate) fn toggle_pge(&self, _cpu: u32) {
            // SAFETY: ring 0, by the crate's contract; the protocol has turned interrupts off.
            unsafe { tlbkit_x86::toggle_pge() }
        }

        #[inline(always)]
        pub(crate) fn send_ipi(&self, cpu: u32, to: u32) {
            ipi::send(cpu, to);
        }

        #[inline(always)]
        pub(crate) fn send_ipi_to_others(&self, cpu: u32) {
            ipi::send_to_others(cpu);
        }
    }
}

/// The interrupt flag and PAUSE, inlined as instructions.
#[cfg(all(feature = "linked", any(feature = "x86", feature = "flags")))]
mod flags {
    use tlbkit_x86::interrupts::{self, Interrupts};

    use super::Hot;

    #[allow(clippy::unused_self, reason = "in other builds it holds the table of functions")]
    impl Hot {
        #[inline(always)]
        pub(crate) fn relax(&self, _cpu: u32) {
            core::hint::spin_loop();
        }

        #[inline(always)]
        pub(crate) fn irqs_enabled(&self, _cpu: u32) -> bool {
            interrupts::are_enabled()
        }

        #[inline(always)]
        pub(crate) fn irqs_save(&self, _cpu: u32) -> u64 {
            // SAFETY: ring 0, by the crate's contract.
            unsafe { interrupts::save_and_disable() as u64 }
        }

        #[inline(always)]
        pub(crate) fn irqs_restore(&self, _cpu: u32, saved: u64) {
            let before = if saved == Interrupts::Enabled as u64 { Interrupts::Enabled } else { Interrupts::Disabled };
            // SAFETY: ring 0, by the crate's contract; handlers are in place if interrupts were enabled.
            unsafe { interrupts::restore(before) }
        }
    }
}

/// The IPIs, by symbols that the kernel defines, since only the kernel knows its APIC.
#[cfg(feature = "linked")]
mod ipi {
    unsafe extern "C" {
        fn tlbkit_k_send_ipi(cpu: u32, to: u32);
        fn tlbkit_k_send_ipi_to_others(cpu: u32);
    }

    #[inline(always)]
    pub(crate) fn send(cpu: u32, to: u32) {
        // SAFETY: a function of the kernel, called as the header says.
        unsafe { tlbkit_k_send_ipi(cpu, to) }
    }

    #[inline(always)]
    pub(crate) fn send_to_others(cpu: u32) {
        // SAFETY: as above.
        unsafe { tlbkit_k_send_ipi_to_others(cpu) }
    }
}
