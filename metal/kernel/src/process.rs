//! How a process begins, with an empty address space, and how it ends, when its last thread leaves that space.

use tlbkit::{AddressSpace, Destroyed, Directories, Hardware, Isolation, Unmapping};
use tlbkit_pmap::{Error, Retirement, Vm};

use crate::command_line;
use crate::counters::{self, Counter};
use crate::machine::{self, protocol};
use crate::memory::{self, Ram};
use crate::process_table::{self, Process};
use crate::reclaim;

/// A process with an empty space. Not inlined: an address space is 14 KiB, and is moved several times on its way.
#[inline(never)]
pub(crate) fn begin() -> &'static Process {
    process_table::take_unreferenced(|process| {
        process.vm().reclaim(&Ram);
        process.free_slot();
    });
    process_table::take(|token, set| {
        let set = &set[..AddressSpace::set_words(command_line::get().cpus as usize)];
        let (tlb, map) = (protocol::tlb(), protocol::kernel_map());
        let vm = Vm::new(tlb, &Ram, map, token, set).expect("memory for another space");
        if tlb.policy().isolation == Isolation::On {
            memory::share_image_with_user_half(vm.space().root());
        }
        vm
    })
}

/// A thread is about to start beside the caller's. If it is the second one, and the policy says so, each CPU gets page
/// tables of its own for the process; where no frame is left, or large pages were mapped, all go on sharing.
pub(crate) fn begin_thread(process: &'static Process) {
    let cpu = machine::cpu();
    if cpu.hardware().directories() == Directories::OfEachCpu && !process.vm().has_directories(cpu.hardware()) {
        let _parted = process.vm().give_directories(&cpu, &Ram);
    }
}

/// Unmaps pages of the running process. Under a policy that retires them, their frames and addresses come back after a
/// grace period; or when there are too many, and then all CPUs are interrupted.
pub(crate) fn unmap(process: &'static Process, va: u64, pages: u64) -> Result<(), Error> {
    let (cpu, periods) = (machine::cpu(), protocol::periods());
    if protocol::tlb().policy().unmapping == Unmapping::Awaited {
        return process.vm().unmap(&cpu, &Ram, va, pages);
    }
    give_back(process, |oldest| oldest.is_over(&cpu, periods));
    let Some(retirement) = process.vm().unmap_and_retire(&cpu, &Ram, periods, va, pages)? else { return Ok(()) };
    counters::add(Counter::RetiredPages, retirement.pages());
    let refused = process.retired.lock().push_back(retirement).err();
    if let Some(retirement) = refused {
        retirement.finish(&cpu, &Ram, periods, process.vm());
    }
    Ok(())
}

/// Gives back what the process has retired, from the oldest on, as long as `is_wanted` says so.
fn give_back(process: &'static Process, mut is_wanted: impl FnMut(&mut Retirement) -> bool) {
    let mut take_oldest = || {
        let mut retired = process.retired.lock();
        if retired.front_mut().is_some_and(&mut is_wanted) { retired.pop_front() } else { None }
    };
    while let Some(oldest) = take_oldest() {
        // To finish may mean to wait, so the lock is free again.
        oldest.finish(&machine::cpu(), &Ram, protocol::periods(), process.vm());
    }
}

/// The running thread ends, and with the last thread of a process its space. The CPU enters lazy TLB mode before the
/// thread is subtracted from the count, because a space may be destroyed only when no CPU runs it, and the last thread
/// does not wait for a context switch.
pub(crate) fn leave(process: &'static Process) {
    let cpu = machine::cpu();
    let go_lazy = || {
        if cpu.is_running(process.space()) {
            cpu.hardware().with_irqs_off(|irqs| cpu.enter_lazy(irqs));
        }
    };
    if process.has_other_threads() {
        go_lazy();
    }
    if !process.remove_thread() {
        return;
    }
    counters::add(Counter::Exits, 1);
    reclaim::unmapped(process, None);
    give_back(process, |_| true);
    process.vm().exit(&cpu, &Ram);
    go_lazy();
    if process.vm().destroy(&cpu, &Ram) == Destroyed::Now {
        process.free_slot();
    }
}
