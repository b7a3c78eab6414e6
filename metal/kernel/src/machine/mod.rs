//! Each CPU's handle to the protocol, and how a CPU comes online and goes offline.

mod hardware;
pub(crate) mod protocol;
pub(crate) mod steal_time;

use spin::Once;
use tlbkit::{Cpu, CpuId, Hardware, IrqsOff, Reclaim, Unmapping};
use tlbkit_x86::{Identity, Overrides, X86Cpu, interrupts};

use crate::arch::{apic, cpu};
use crate::command_line::{self, Monitor};
use crate::fault::Fault;
use crate::layout::MAX_CPUS;
use hardware::{CountingCpu, Spaces};

static CPUS: [Once<CountingCpu>; MAX_CPUS] = [const { Once::new() }; MAX_CPUS];

/// What CPUID reports, or the monitor in its place.
pub(crate) fn identity() -> Identity {
    let real = Identity::of_this_cpu();
    match command_line::get().monitor {
        // SAFETY: ring 0, as always without the monitor.
        None => unsafe { real.with_microcode_read() },
        Some(Monitor { features, broadcast_pages, .. }) => {
            Identity { has_pcid: features.pcid, has_invpcid: features.invpcid, broadcast_pages, ..real }
        }
    }
}

/// Brings this CPU online, with the features that it has.
pub(crate) fn enter(index: u32) {
    let wanted = identity().features(Overrides::default());
    // SAFETY: ring 0, interrupts off, the kernel's tables are loaded; this CPU has all features that are asked for.
    let features = unsafe { tlbkit_x86::enable_pcids(wanted) };
    // SAFETY: ring 0 for ever; this value is used on this CPU only; the APIC is enabled as `sender` says.
    let real = unsafe { X86Cpu::new(&Spaces, features, apic::sender(), apic::FLUSH_VECTOR) };
    CPUS[index as usize].call_once(|| CountingCpu::new(real));
    cpu().bring_up(&IrqsOff::assume());
}

/// Goes offline for a while, like a CPU in deep idle: no flush interrupts it meanwhile, although it may fetch any
/// translation. Interrupts are off.
pub(crate) fn nap() {
    const TURNS: u32 = 200;
    const PAUSES: u32 = 10;
    cpu().offline(&IrqsOff::assume());
    for _ in 0..TURNS {
        (0..PAUSES).for_each(|_| core::hint::spin_loop());
        // SAFETY: ring 0. The read only serves the monitor, under which it traps: the monitor then fetches
        // translations.
        let _ = unsafe { tlbkit_x86::read_cr3() };
    }
    cpu().bring_up(&IrqsOff::assume());
}

/// This CPU's handle. It must not be kept across anything that blocks, since the task may go on on another CPU.
pub(crate) fn cpu() -> Cpu<'static, 'static, CountingCpu> {
    let index = cpu::index();
    protocol::tlb().cpu(CpuId(index), CPUS[index as usize].wait())
}

/// Runs `body` between entry from ring 3 and exit to it: with the kernel half loaded and interrupts on.
pub(crate) fn in_kernel<R>(body: impl FnOnce() -> R) -> R {
    arrive_from_user();
    // SAFETY: handlers are in place, and this task's kernel stack is in use.
    unsafe { interrupts::enable() };
    let result = body();
    // SAFETY: ring 0.
    unsafe { interrupts::disable() };
    leave_to_user();
    result
}

/// The first of each entry from ring 3: loads the kernel half, and does the flushes that waited for it.
pub(crate) fn arrive_from_user() {
    let irqs = IrqsOff::assume();
    cpu().enter_kernel(&irqs);
    if command_line::get().isolated && !Fault::NoCatchUp.is_chosen() {
        let _ = cpu().do_deferred_flushes(&irqs);
    }
    pass();
}

/// This CPU flushes what others have retired, if the policy lets anybody retire. Interrupts are off.
pub(crate) fn pass() {
    if protocol::tlb().policy().unmapping == Unmapping::Retired {
        protocol::periods().pass(&cpu(), &IrqsOff::assume());
    }
}

/// This CPU has just flushed because it was asked to, so it has flushed what is deferred, too. Interrupts are off.
pub(crate) fn pass_after_answer() {
    if protocol::tlb().policy().reclaim == Reclaim::AtReuse {
        protocol::periods().pass(&cpu(), &IrqsOff::assume());
    }
}

/// The last of each exit to ring 3. The CPU may be another one than at the entry.
pub(crate) fn leave_to_user() {
    let irqs = IrqsOff::assume();
    if command_line::get().isolated {
        cpu().defer_kernel_flushes(&irqs);
    }
    cpu().exit_to_user(&irqs);
}

/// The features that are enabled on the first CPU.
pub(crate) fn features() -> tlbkit::Features {
    CPUS[0].wait().features()
}
