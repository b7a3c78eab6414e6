//! From the loader to the kernel's own code: the first CPU prepares everything, then it starts the others one by one.

mod start_info;

use core::arch::global_asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::arch::{apic, cpu, serial, tables};
use crate::command_line::{self, BootMode};
use crate::layout::direct;
use crate::machine::protocol;
use crate::{bench, machine, memory, monitor, report, rules, run, traps};

global_asm!(include_str!("boot.s"), options(att_syntax));
global_asm!(include_str!("sector.s"), options(att_syntax));

/// Where a further CPU begins, in real mode: `boot.s` knows it too.
const AP_START: u64 = 0x8000;
/// How long one of them may take.
const AP_CYCLES: u64 = 20_000_000_000;

/// Read by `ap_high`: the stack and the number of the CPU that is being woken.
#[unsafe(no_mangle)]
static AP_STACK: AtomicU64 = AtomicU64::new(0);
#[unsafe(no_mangle)]
static AP_INDEX: AtomicU32 = AtomicU32::new(0);
/// CPUs that are up.
static UP: AtomicU32 = AtomicU32::new(0);

/// The first CPU arrives here on its own stack, with the boot tables loaded.
#[unsafe(no_mangle)]
extern "C" fn first_cpu(start_info: u32) -> ! {
    serial::start();
    let start = start_info::read(start_info);
    let line = match command_line::read(start.command_line) {
        Ok(line) => line,
        Err(error) => report::wrong_usage(&error),
    };
    line.fault.choose();
    memory::start(start.memory_end);
    protocol::start(line);
    enter(0);
    wake_others(line.cpus);
    match line.mode {
        BootMode::Run => run::begin(line),
        BootMode::Rules => rules::run(),
        BootMode::Bench => bench::run(line),
    }
}

/// What every CPU sets up for itself: segments, traps, the kernel's page tables, PCIDs, the protocol.
fn enter(index: u32) {
    tables::load(index, traps::ENTRIES);
    memory::load_kernel_tables();
    apic::enable();
    monitor::descend(index);
    machine::enter(index);
    // SeqCst: the CPU is ready; partner is the load in `wake_others`.
    UP.fetch_add(1, Ordering::SeqCst);
}

/// A further CPU arrives here.
#[unsafe(no_mangle)]
extern "C" fn further_cpu(index: u32) -> ! {
    enter(index);
    match command_line::get().mode {
        BootMode::Bench => bench::stand_by(),
        BootMode::Run | BootMode::Rules => run::wait_for_work(),
    }
}

fn wake_others(cpus: u32) {
    unsafe extern "C" {
        static ap_piece: u8;
        static ap_piece_end: u8;
    }
    // SAFETY: the linker's symbols; the low MiB is free for use and mapped; boot code is linked where it is loaded.
    unsafe {
        let from = direct((&raw const ap_piece) as u64) as *const u8;
        let bytes = (&raw const ap_piece_end) as usize - (&raw const ap_piece) as usize;
        core::ptr::copy_nonoverlapping(from, direct(AP_START) as *mut u8, bytes);
    }
    apic::init_others();
    for index in 1..cpus {
        wake(index);
    }
}

fn wake(index: u32) {
    // SeqCst, all: published before the interrupt; partner is the plain load in `ap_high`, on a CPU that starts after.
    AP_STACK.store(cpu::idle_stack_top(index), Ordering::SeqCst);
    AP_INDEX.store(index, Ordering::SeqCst);
    let begun = tlbkit_x86::now_cycles();
    for _ in 0..2 {
        apic::start(index, (AP_START >> 12) as u8);
        // SeqCst: partner is the add in `enter`.
        while UP.load(Ordering::SeqCst) != index + 1 {
            if tlbkit_x86::now_cycles() - begun > AP_CYCLES {
                break;
            }
            core::hint::spin_loop();
        }
    }
    // SeqCst: as above.
    assert!(UP.load(Ordering::SeqCst) == index + 1, "CPU {index} did not start");
}
