//! Counts: what an unmap, a switch and the end of a space take, in instructions of the whole machine, and the
//! interrupts that other CPUs get. The emulator's clock counts instructions; a CPU with nothing to do halts.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use alloc::sync::Arc;
use ostd::arch::read_tsc;
use ostd::cpu::num_cpus;
use ostd::mm::vm_space::VmSpace;
use ostd::mm::{PAGE_SIZE, Vaddr};
use ostd::power::{ExitCode, poweroff};
use ostd::prelude::println;
use ostd::sync::{LocalIrqDisabled, SpinLock};
use ostd::task::{disable_preempt, halt_cpu};
use x86_64::instructions::interrupts::enable_and_hlt;

use crate::{map, sched};

const VA: Vaddr = 0x1000_0000;
const PAGES: [usize; 3] = [1, 33, 512];
/// Into the least of so many no timer interrupt fell.
const TIMES: usize = 24;
const MAX_CPUS: usize = 8;

/// What a CPU does meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stay {
    /// Another space is loaded.
    Away,
    /// It runs the space, as far as the kernel knows.
    Running,
    /// It is idle, with the space loaded.
    Idle,
}

/// What CPUs are told: a number that rises, and for each CPU where to stay.
static ORDER: AtomicU32 = AtomicU32::new(0);
static STAYS: SpinLock<([Stay; MAX_CPUS], Option<Arc<VmSpace>>), LocalIrqDisabled> =
    SpinLock::new(([Stay::Away; MAX_CPUS], None));
static OBEYED: AtomicU32 = AtomicU32::new(0);
/// Interrupts of all CPUs but the first.
static WOKEN: AtomicU32 = AtomicU32::new(0);

/// Spawns the tasks: the first CPU counts.
pub fn begin(shift: u32) {
    sched::begin();
    for cpu in 1..num_cpus() {
        sched::spawn(cpu as u32, move || obey(cpu));
    }
    sched::spawn(0, move || count(shift));
}

fn obey(cpu: usize) {
    let elsewhere = Arc::new(VmSpace::new());
    let (mut seen, mut stay) = (0, Stay::Away);
    sched::enter(&elsewhere);
    loop {
        let order = ORDER.load(Acquire);
        if order != seen {
            seen = order;
            let (stays, space) = STAYS.lock().clone();
            stay = stays[cpu];
            sched::enter(if stay == Stay::Away { &elsewhere } else { space.as_ref().unwrap_or(&elsewhere) });
            OBEYED.fetch_add(1, Release);
        }
        match stay {
            Stay::Running => enable_and_hlt(),
            Stay::Away | Stay::Idle => halt_cpu(),
        }
        WOKEN.fetch_add(1, Relaxed); // Relaxed: a count
    }
}

/// Has `running` other CPUs run `space`, and `idle` more hold it while they are idle.
fn place(space: &Arc<VmSpace>, running: usize, idle: usize) {
    let stay_of = |cpu| match cpu {
        0 => Stay::Away,
        cpu if cpu <= running => Stay::Running,
        cpu if cpu <= running + idle => Stay::Idle,
        _ => Stay::Away,
    };
    *STAYS.lock() = (core::array::from_fn(stay_of), Some(Arc::clone(space)));
    OBEYED.store(0, Relaxed);
    ORDER.fetch_add(1, Release);
    while OBEYED.load(Acquire) as usize + 1 < num_cpus() {
        enable_and_hlt();
    }
    (0..4).for_each(|_| enable_and_hlt());
}

/// The least instructions that `f` takes after `prepare`, and the interrupts that others get most often.
fn least<T>(shift: u32, mut prepare: impl FnMut() -> T, mut f: impl FnMut(T)) -> (u64, u32) {
    let mut once = || {
        let prepared = prepare();
        enable_and_hlt(); // a tick has just been
        let (woken, begun) = (WOKEN.load(Relaxed), read_tsc());
        f(prepared);
        let instructions = (read_tsc() - begun) >> shift;
        // A CPU that was interrupted says so before the next tick.
        enable_and_hlt();
        (instructions, WOKEN.load(Relaxed) - woken)
    };
    let counted: [(u64, u32); TIMES] = core::array::from_fn(|_| once());
    let mut woken = counted.map(|one| one.1);
    woken.sort_unstable();
    (counted.iter().map(|one| one.0).min().unwrap_or_default(), woken[TIMES / 2])
}

fn count(shift: u32) {
    let nobody = Arc::new(VmSpace::new());
    for (running, idle) in [(0, 0), (1, 0), (3, 0), (0, 3), (1, 2)] {
        let space = Arc::new(VmSpace::new());
        sched::enter(&space);
        place(&space, running, idle);
        let (_, ticks) = least(shift, || (), |()| ());
        for pages in PAGES {
            let (instructions, woken) = least(shift, || touch(&space, pages), |()| unmap(&space, pages));
            let row = format_args!("unmap {pages}, {} CPUs, {idle} idle", running + 1);
            tell(row, instructions, woken.saturating_sub(ticks));
        }
        place(&nobody, 0, 0);
        sched::enter(&nobody);
    }
    let spaces = [Arc::new(VmSpace::new()), Arc::new(VmSpace::new())];
    sched::leave();
    let switch = || spaces.iter().for_each(VmSpace::activate);
    let (twice, _) = least(shift, switch, |()| switch());
    tell(format_args!("switch"), twice / 2, 0);
    let (same, _) = least(shift, || nobody.activate(), |()| nobody.activate());
    tell(format_args!("switch to the same"), same, 0);
    let used = || {
        let space = Arc::new(VmSpace::new());
        space.activate();
        nobody.activate();
        space
    };
    let (end, _) = least(shift, used, drop);
    tell(format_args!("end of a space"), end, 0);
    println!("{{\"test\":\"counts\"}}");
    poweroff(ExitCode::Success);
}

fn tell(row: core::fmt::Arguments<'_>, instructions: u64, interrupts: u32) {
    println!("{{\"row\":\"{}\",\"instructions\":{},\"interrupts\":{}}}", row, instructions, interrupts);
}

/// Maps `pages` and reads each.
fn touch(space: &Arc<VmSpace>, pages: usize) {
    map(space, VA, pages, |page| page as u64);
    for page in 0..pages {
        let word = space.reader(VA + page * PAGE_SIZE, 8).and_then(|mut reader| reader.read_val::<u64>());
        assert!(word.is_ok_and(|word| word == page as u64), "page {page} does not read back");
    }
}

fn unmap(space: &Arc<VmSpace>, pages: usize) {
    let guard = disable_preempt();
    let range = VA..VA + pages * PAGE_SIZE;
    let mut cursor = space.cursor_mut(&guard, &range).expect("the range is a program's");
    cursor.unmap(pages * PAGE_SIZE);
    cursor.flusher().sync_tlb_flush();
}
