//! What is hot, by the table of functions.

use crate::ops::HardwareOps;
use crate::status::Status;

/// The functions, none of them missing.
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

/// Calls of one function each.
macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(#[inline(always)]
        pub(crate) fn $name(&self, cpu: u32 $(, $argument: $type)*) $(-> $result)? {
            // SAFETY: a function of the kernel's table, which lives as long as the machine, called as the header says.
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
