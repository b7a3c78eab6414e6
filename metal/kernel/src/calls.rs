//! The kernel's side of each system call, and of a program's page fault.

use tlbkit::Unaccessed;
use tlbkit_pmap::{Access, Backing, Error, Fault, Memory, Protection, Region};
use tlbkit_workloads::Task;
use tlbkit_workloads::calls;
use tlbkit_workloads::pattern::{PAGE_BYTES, file_pattern};

use crate::counters::{self, Counter};
use crate::machine::{self, protocol};
use crate::memory::Ram;
use crate::process_table::Process;
use crate::user::call::Call;
use crate::{command_line, process, reclaim, report, sched};

/// Where every system call arrives, from `traps.s`, with interrupts off.
pub(crate) extern "C" fn on_syscall(number: u64, first: u64, second: u64, third: u64) -> u64 {
    let Some(call) = Call::of_number(number) else { report::failure(&format_args!("no system call {number}")) };
    if call != Call::End {
        counters::add(Counter::Syscalls, 1);
    }
    machine::in_kernel(|| carry_out(call, [first, second, third]))
}

fn carry_out(call: Call, [first, second, third]: [u64; 3]) -> u64 {
    let process = sched::process();
    match call {
        Call::Map => return map(process, first, second, third),
        Call::Unmap => {
            reclaim::unmapped(process, Some(first));
            done(process::unmap(process, first, second));
        }
        Call::Protect => done(process.vm().protect(&machine::cpu(), &Ram, first, second, protection(third))),
        Call::DontNeed => dontneed(process, first, second),
        Call::Fork => return fork(process, program_at(first)),
        Call::Thread => {
            process::begin_thread(process);
            return sched::start(program_at(first), process) as u64;
        }
        Call::Exec => process.vm().clear(&machine::cpu(), &Ram),
        Call::Join => sched::join(first as usize),
        Call::Pin => sched::pin((first % u64::from(command_line::get().cpus)) as usize),
        Call::Wait => sched::wait(channel(first)),
        Call::Post => sched::post(channel(first)),
        Call::Yield => sched::yield_now(),
        Call::ReadFile => read_file(first as u32, second),
        Call::LimitFilePages => reclaim::limit(first, second, third),
        Call::WrongValue => report::wrong_value(first, second, third),
        Call::End => {
            process::leave(process);
            sched::end()
        }
    }
    0
}

fn done<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| report::failure(&error))
}

/// Gives pages back. Where those that nobody has accessed need no flush, they age just before: some other CPU may come
/// in between, and then it has.
fn dontneed(process: &'static Process, va: u64, pages: u64) {
    let cpu = machine::cpu();
    if cpu.tlb().policy().unaccessed == Unaccessed::Spared {
        done(process.vm().age(&cpu, &Ram, va, pages));
    }
    done(process.vm().dontneed(&cpu, &Ram, va, pages));
}

/// A program's words are trusted: it is part of this image.
fn program_at(address: u64) -> Task {
    // SAFETY: the caller's stack, which every space maps, holds it until the call returns.
    unsafe { *(address as *const Task) }
}

fn channel(number: u64) -> u32 {
    if !sched::has_channel(number) {
        report::failure(&format_args!("no channel {number}"));
    }
    number as u32
}

/// The last word has the file above the protection.
fn map(process: &'static Process, pages: u64, backing: u64, file_and_protection: u64) -> u64 {
    let backing = match backing {
        0 => Backing::AnonPrivate,
        1 => Backing::AnonShared,
        2 => Backing::FilePrivate,
        _ => Backing::FileShared,
    };
    let first = if process.vm().has_directories(machine::cpu().hardware()) {
        calls::address_apart(sched::task() as u32)
    } else {
        0
    };
    let (file, protection) = ((file_and_protection >> 32) as u32, protection(file_and_protection & 0xffff_ffff));
    let region = Region { first, file, ..calls::region(pages, backing, protection) };
    let first = done(process.vm().map_region(&machine::cpu(), region));
    if backing == Backing::FilePrivate {
        reclaim::mapped(process, file, first, pages);
    }
    first
}

const fn protection(number: u64) -> Protection {
    match number {
        0 => Protection::None,
        1 => Protection::Read,
        _ => Protection::ReadWrite,
    }
}

fn fork(parent: &'static Process, child: Task) -> u64 {
    let process = process::begin();
    let forked = parent.vm().fork(&machine::cpu(), &Ram, process.vm(), calls::CHILD_FILL);
    done(forked);
    sched::start(child, process) as u64
}

/// A page fault of the running program.
pub(crate) fn page_fault(va: u64, access: Access) {
    counters::add(Counter::Faults, 1);
    let process = sched::process();
    match reclaim::with_room(process, va, || process.vm().fault(&machine::cpu(), &Ram, va, access)) {
        Fault::Bad => report::failure(&format_args!("access to {va:#x}, where nothing is mapped")),
        Fault::OutOfMemory => report::failure(&"no frame left"),
        Fault::Mapped { .. } | Fault::Spurious => {}
    }
}

/// Reads a file through windows of the kernel's own addresses: mapped, copied from, unmapped, as a buffer cache does.
fn read_file(file: u32, pages: u64) {
    calls::windows(pages).for_each(|(first, count)| read_window(file, first, count));
}

fn read_window(file: u32, first: u64, count: u64) {
    let (cpu, map) = (machine::cpu(), protocol::kernel_map());
    let frames = (first..first + count).map(|page| Ram.file_page(file, page));
    let window = match map.map(&cpu, &Ram, frames) {
        Ok(Some(window)) => window,
        Ok(None) => report::failure(&"no window of the kernel's addresses is free"),
        Err(error) => report::failure(&error),
    };
    for page in 0..count {
        let va = window.va + page * PAGE_BYTES;
        // SAFETY: just mapped, until it is unmapped below.
        let found = unsafe { (va as *const u64).read_volatile() };
        let expected = file_pattern(file, first + page);
        if found != expected {
            report::wrong_value(va, found, expected);
        }
    }
    map.unmap(&cpu, &Ram, window);
}
