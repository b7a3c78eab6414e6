//! A machine with PCIDs for emulators that have none: the whole kernel, with protocol, page tables and programs, runs
//! in ring 3, and each instruction that concerns translations traps into a software TLB that does the worst the manual
//! allows.
//!
//! No emulator keeps the translations of one PCID while another one is loaded, so none shows a missing flush of a PCID
//! that is not loaded. Here the kernel's real instructions execute, are decoded where they trap, and change a TLB that
//! evicts nothing and fetches what it likes; what programs read then comes through that TLB.
//!
//! | file | what |
//! |---|---|
//! | `state` | one CPU as its guest sees it |
//! | `tlb` | what it has cached, and what each instruction invalidates |
//! | `walk` | how it fetches; what is wrong in any case |
//! | `shadow` | the tables that the hardware walks |
//! | `decode`, `control` | the instructions that trap, and their effect |
//! | `broadcast` | INVLPGB and TLBSYNC, whose effect is on other CPUs |
//! | `host` | a host that takes CPUs away |
//! | `guest` | the way into the guest's kernel and back: SYSCALL, SYSRET, IRET, interrupts, faults |
//! | `exit` | what each trap means |
//!
//! The guest has I/O privilege: CLI, STI and ports are real, and interrupts arrive only while it takes them. The
//! image, the direct map and the APIC are always mapped: about the kernel's own addresses only those of
//! `tlbkit-pmap`'s windows are watched.

mod broadcast;
mod control;
mod decode;
mod exit;
mod guest;
mod host;
mod shadow;
mod state;
mod tlb;
mod walk;

use core::arch::{asm, global_asm};

use spin::Once;
use tlbkit_arch::SplitMix64;
use tlbkit_x86::{read_cr3, read_cr4, read_msr, write_msr};
use x86_64::instructions::tables::lidt;
use x86_64::structures::DescriptorTablePointer;

use crate::arch::gates::{Gates, NON_MASKABLE, gates_at};
use crate::arch::tables;
use crate::command_line;
use state::{IO_PRIVILEGE, core_of_this_cpu, stack_of_this_cpu};

unsafe extern "C" {
    fn monitor_gates();
}

global_asm!(
    include_str!("../arch/gates.s"),
    gates = sym monitor_gates,
    handler = sym exit::on_exit,
    options(att_syntax)
);

/// Entry of the task state's table of stacks, from 1.
const STACK: u64 = 2;
/// That of NMIs, which come while the monitor uses its own.
const NMI_STACK: u64 = 1;
const MSR_EFER: u32 = 0xc000_0080;
const EFER_SYSCALL: u64 = 1;
/// Interrupts off, I/O allowed.
const FLAGS: u64 = 0x2 | IO_PRIVILEGE;

/// Goes on in ring 3, under the monitor, if the command line asks for one. The kernel's tables are loaded.
pub(crate) fn descend(index: u32) {
    let line = command_line::get();
    let Some(monitor) = line.monitor else { return };
    // SAFETY: ring 0, interrupts off, and nothing has trapped into the monitor on this CPU yet.
    unsafe {
        let core = core_of_this_cpu();
        core.monitor = monitor;
        (core.cr3, core.cr4) = (read_cr3(), read_cr4());
        core.random = SplitMix64::new(line.seed ^ u64::from(index) << 32);
        tables::set_stack(STACK, stack_of_this_cpu());
        lidt(&DescriptorTablePointer { limit: 4095, base: x86_64::VirtAddr::from_ptr(gates()) });
        write_msr(MSR_EFER, read_msr(MSR_EFER) & !EFER_SYSCALL);
        core.shadow.start();
        broadcast::go_live();
        drop_to_ring_3();
    }
}

fn gates() -> *const Gates {
    let stack_of = |vector: usize| if vector as u64 == NON_MASKABLE { NMI_STACK } else { STACK };
    static GATES: Once<Gates> = Once::new();
    GATES.call_once(|| gates_at(monitor_gates as *const () as u64, stack_of))
}

/// Returns in ring 3.
///
/// # Safety
/// Ring 0; the tables that are loaded let ring 3 use the image and this stack.
unsafe fn drop_to_ring_3() {
    // SAFETY: by the caller's contract; the five words are those that IRET pops.
    unsafe {
        asm!(
            "mov {0}, rsp",
            "push {data}",
            "push {0}",
            "push {flags}",
            "push {code}",
            "lea {0}, [rip + 2f]",
            "push {0}",
            "iretq",
            "2:",
            out(reg) _,
            data = const exit::DATA,
            flags = const FLAGS,
            code = const exit::CODE,
        );
    }
}
