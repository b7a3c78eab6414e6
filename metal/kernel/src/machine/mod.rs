//! Each CPU's handle to the protocol, and how a CPU comes into it and leaves it.

mod door;
pub(crate) mod protocol;

use spin::Once;
use tlbkit::{Cpu, CpuId, Hardware, IrqsOff};
use tlbkit_x86::{Identity, Overrides, X86Cpu, interrupts};

use crate::arch::{apic, cpu};
use crate::command_line;
use crate::layout::MAX_CPUS;
use door::{Door, Spaces};

static DOORS: [Once<Door>; MAX_CPUS] = [const { Once::new() }; MAX_CPUS];

/// What the CPU says of itself, or the monitor for it.
pub(crate) fn identity() -> Identity {
    let real = Identity::of_this_cpu();
    match command_line::get().monitor {
        // SAFETY: ring 0, as always without the monitor.
        None => unsafe { real.with_microcode_read() },
        Some(monitor) => Identity { has_pcid: monitor.features.pcid, has_invpcid: monitor.features.invpcid, ..real },
    }
}

/// Brings this CPU into the protocol, with the features that it has.
pub(crate) fn enter(index: u32) {
    let wanted = identity().features(Overrides::default());
    // SAFETY: ring 0, interrupts off, the kernel's tables loaded; no more is wanted than this CPU has.
    let features = unsafe { tlbkit_x86::enable_pcids(wanted) };
    // SAFETY: ring 0 for ever; this door is used on this CPU alone; the APIC is enabled as `sender` says.
    let real = unsafe { X86Cpu::new(&Spaces, features, apic::sender(), apic::FLUSH_VECTOR) };
    DOORS[index as usize].call_once(|| Door::new(real));
    cpu().bring_up(&IrqsOff::assume());
}

/// Goes offline for a while, as a CPU does that sleeps deeply: no flush asks it meanwhile, while it fetches what it
/// likes. Interrupts are off.
pub(crate) fn nap() {
    const TURNS: u32 = 200;
    const PAUSES: u32 = 10;
    cpu().offline(&IrqsOff::assume());
    for _ in 0..TURNS {
        (0..PAUSES).for_each(|_| core::hint::spin_loop());
        // SAFETY: ring 0. Read for the monitor alone, under which this traps: it is then that it fetches.
        let _ = unsafe { tlbkit_x86::read_cr3() };
    }
    cpu().bring_up(&IrqsOff::assume());
}

/// This CPU's handle. Not to be kept across anything that blocks: the task may go on elsewhere.
pub(crate) fn cpu() -> Cpu<'static, 'static, Door> {
    let index = cpu::index();
    protocol::tlb().cpu(CpuId(index), DOORS[index as usize].wait())
}

/// Runs `body` as the kernel does between entry from ring 3 and return to it: under the kernel half, interrupts on.
pub(crate) fn in_kernel<R>(body: impl FnOnce() -> R) -> R {
    cpu().enter_kernel(&IrqsOff::assume());
    // SAFETY: handlers are in place, and this task's kernel stack is in use.
    unsafe { interrupts::enable() };
    let result = body();
    // SAFETY: ring 0.
    unsafe { interrupts::disable() };
    // Maybe another CPU than before.
    cpu().exit_to_user(&IrqsOff::assume());
    result
}

/// What the first CPU has switched on.
pub(crate) fn features() -> tlbkit::Features {
    DOORS[0].wait().features()
}
