//! What each thread is doing: the system call that it is in, or the page fault that it had just before.

use super::mapping::{Mapping, Spaces};
use super::request::Place;
use super::sample::Samples;
use super::why::{Shown, Why};
use crate::abi::CLONE_VM;
use crate::event::{Event, FAULT_WINDOW_NS, MAX_THREADS, Syscall};
use crate::names::{Code, Names, StackId};
use rustc_hash::FxHashMap;

/// The most that is counted for a flush in a system call of whose begin no event tells, in nanoseconds.
const UNRECORDED_NS: u64 = 20_000;

/// The longest instruction of an x86 processor, in bytes.
const LONGEST_INSTRUCTION: u64 = 15;

/// What a flush is for, and which memory it means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Purpose {
    pub(super) why: Why,
    pub(super) mapping: Mapping,
    /// The CPU time of the thread from the fault that led to the flush, in nanoseconds, without what an earlier flush
    /// of the same fault has counted. In a system call that is not recorded, from the last event of the thread, and at
    /// most [`UNRECORDED_NS`]. 0 if the whole call is counted when it ends.
    pub(super) before_ns: u64,
}

/// The system call that a thread is in.
#[derive(Clone, Copy)]
struct Call {
    call: Syscall,
    args: [u64; 5],
    why: Why,
    mapping: Mapping,
    /// The CPU time that the thread had used when the call began, in nanoseconds.
    since_ns: u64,
    /// How many pages it gives back.
    pages: u64,
    /// The row of the last flush in this call, if there was one.
    row: Option<usize>,
    /// Samples that were taken in it.
    samples: Samples,
}

/// The last page fault of a thread.
#[derive(Clone, Copy)]
struct Fault {
    why: Why,
    mapping: Mapping,
    time_ns: u64,
    /// The CPU time that the thread had used up to the fault, or up to the last flush that it led to, in nanoseconds.
    since_ns: u64,
    /// The instruction that faulted.
    ip: Code,
    /// The row in which it is counted; none if its flush says which.
    row: Option<usize>,
}

#[derive(Clone, Copy, Default)]
struct Doing {
    call: Option<Call>,
    fault: Option<Fault>,
    /// The CPU time that the thread had used at its last event, in nanoseconds.
    seen_ns: u64,
    /// Whether that event was a page fault.
    has_just_faulted: bool,
    has_ended: bool,
}

/// A system call that has ended.
pub(super) struct Left {
    pub(super) args: [u64; 5],
    pub(super) why: Why,
    pub(super) mapping: Mapping,
    /// Samples that were taken in it.
    pub(super) samples: Samples,
    /// How many pages it gave back.
    pub(super) pages: u64,
    /// The row of its last flush, and the CPU time that the thread had used when the call began, in nanoseconds. None
    /// if it did not flush.
    pub(super) row: Option<(usize, u64)>,
}

impl Call {
    fn left(self) -> Left {
        Left {
            args: self.args,
            why: self.why,
            mapping: self.mapping,
            samples: self.samples,
            pages: self.pages,
            row: self.row.map(|row| (row, self.since_ns)),
        }
    }
}

impl Fault {
    fn purpose(self) -> For {
        self.row.map_or(For::Purpose(self.why, self.mapping), For::Row)
    }
}

/// What a sample was taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum For {
    /// The call of the thread, which keeps it until it ends.
    Call,
    /// What is counted in this row.
    Row(usize),
    /// This purpose, at this memory.
    Purpose(Why, Mapping),
    /// No event tells.
    Unknown,
}

impl For {
    fn of_stack(shown: Option<Shown>) -> Self {
        match shown {
            Some(Shown::Own(why)) if why.is_the_kernels() => Self::Purpose(why, Mapping::Unknown),
            Some(Shown::Call(why)) => Self::Purpose(why, Mapping::Unknown),
            _ => Self::Unknown,
        }
    }
}

/// What all threads are doing.
#[derive(Default)]
pub(super) struct Doings {
    threads: FxHashMap<i32, Doing>,
    /// The purpose that each stack shows which was looked at, if it shows one.
    stacks: FxHashMap<StackId, Option<Shown>>,
}

impl Doings {
    fn thread(&mut self, tid: i32) -> &mut Doing {
        if self.threads.len() >= MAX_THREADS {
            self.threads.clear();
        }
        self.threads.entry(tid).or_default()
    }

    /// The thread enters a system call. `since_ns` is the CPU time that it has used, in nanoseconds.
    pub(super) fn enter(
        &mut self,
        tid: i32,
        call: Syscall,
        args: &[u64; 5],
        spaces: &mut Spaces,
        pid: i32,
        since_ns: u64,
    ) {
        let mapping = match call {
            Syscall::Munmap
            | Syscall::Mprotect
            | Syscall::Madvise
            | Syscall::Mremap
            | Syscall::PkeyMprotect
            | Syscall::Shmdt
            | Syscall::Msync
            | Syscall::Mbind => spaces.mapping(pid, args[0]),
            Syscall::Ftruncate | Syscall::Fallocate | Syscall::Fsync | Syscall::Fdatasync => spaces.file(pid, args[0]),
            Syscall::Truncate => Mapping::File(Names::UNKNOWN),
            Syscall::ProcessMadvise | Syscall::MovePages => Mapping::Unknown,
            Syscall::Brk => Mapping::Heap,
            // With a fixed address, what is mapped there is unmapped first.
            Syscall::Mmap if args[0] != 0 => spaces.mapping(pid, args[0]),
            Syscall::Mmap => Mapping::Unknown,
            Syscall::Clone | Syscall::Clone3 | Syscall::Vfork | Syscall::Execve | Syscall::ExitGroup => Mapping::Whole,
        };
        let why = Why::of_call(call, args);
        let pages = spaces.gives_back(pid, call, args, mapping);
        let call =
            Some(Call { call, args: *args, why, mapping, since_ns, pages, row: None, samples: Samples::default() });
        *self.thread(tid) = Doing { call, seen_ns: since_ns, ..Doing::default() };
    }

    /// The thread leaves a system call, having used `cpu_ns` of CPU time. None if it was not seen to enter that call.
    pub(super) fn leave(&mut self, tid: i32, call: Syscall, cpu_ns: u64) -> Option<Left> {
        let thread = self.threads.get_mut(&tid)?;
        (thread.seen_ns, thread.has_just_faulted) = (cpu_ns, false);
        thread.call.take_if(|entered| entered.call == call).map(Call::left)
    }

    /// The event's thread has a page fault at the instruction `ip`, for the purpose `why`. `since_ns` is the CPU time
    /// that it has used, in nanoseconds. Returns how much of that it has used since its event before, if that was a
    /// page fault too.
    pub(super) fn fault(
        &mut self,
        event: &Event,
        ip: Code,
        (why, mapping): (Why, Mapping),
        since_ns: u64,
    ) -> Option<u64> {
        let thread = self.thread(event.tid);
        let gap_ns = thread.has_just_faulted.then(|| since_ns.saturating_sub(thread.seen_ns));
        (thread.seen_ns, thread.has_just_faulted) = (since_ns, true);
        thread.fault = Some(Fault { why, mapping, time_ns: event.time_ns, since_ns, ip, row: None });
        gap_ns
    }

    /// The last fault of the thread is counted in this row.
    pub(super) fn fault_is_in(&mut self, tid: i32, row: usize) {
        if let Some(fault) = self.thread(tid).fault.as_mut() {
            fault.row = Some(row);
        }
    }

    /// A sample of the thread was taken in the kernel's work `shown`. Returns what that work is
    /// for; a call that goes on keeps the sample.
    pub(super) fn sampled(&mut self, event: &Event, shown: Option<Shown>, samples: Samples) -> For {
        let Some(thread) = self.threads.get_mut(&event.tid) else { return For::of_stack(shown) };
        match (shown, &mut thread.call) {
            (Some(Shown::Own(why)), _) if why.is_the_kernels() => For::of_stack(shown),
            (Some(Shown::Fault(_)), _) => thread.fault.map_or(For::Unknown, Fault::purpose),
            (Some(Shown::Call(why)), Some(call)) if why != Why::Call(call.call) => For::of_stack(shown),
            (_, Some(call)) => {
                call.samples.add(&samples);
                For::Call
            }
            (Some(Shown::Call(_)), None) => For::of_stack(shown),
            _ if thread.has_ended => For::Purpose(Why::Call(Syscall::ExitGroup), Mapping::Whole),
            _ => For::Unknown,
        }
    }

    /// The fault of the thread that may go on when a sample of its own code is taken at `ip`: the way back from the
    /// kernel has interrupts closed, so a sample that was due there is taken at the instruction that faulted, or at the
    /// next one.
    pub(super) fn ends_fault(&self, event: &Event, ip: Code) -> For {
        let doing = self.threads.get(&event.tid).filter(|doing| doing.has_just_faulted);
        let is_meant = |fault: &Fault| {
            ip.get().wrapping_sub(fault.ip.get()) <= LONGEST_INSTRUCTION
                && event.time_ns.saturating_sub(fault.time_ns) <= FAULT_WINDOW_NS
        };
        doing.and_then(|doing| doing.fault).filter(is_meant).map_or(For::Unknown, Fault::purpose)
    }

    /// The row of the last flush in the call of this thread, if there was one.
    pub(super) fn row_of_call(&self, tid: i32) -> Option<usize> {
        self.threads.get(&tid)?.call?.row
    }

    /// Whether the thread is in a call that creates a process with its own address space.
    pub(super) fn copies_memory(&self, tid: i32) -> bool {
        let call = self.threads.get(&tid).and_then(|doing| doing.call);
        call.is_some_and(|call| call.call == Syscall::Clone && call.args[0] & CLONE_VM == 0)
    }

    /// Whether the thread is in a call that executes another program.
    pub(super) fn is_in_exec(&self, tid: i32) -> bool {
        let call = self.threads.get(&tid).and_then(|doing| doing.call);
        call.is_some_and(|call| call.call == Syscall::Execve)
    }

    /// A new thread has this number. What is known of another that had it before is forgotten.
    pub(super) fn begins(&mut self, tid: i32) {
        self.threads.remove(&tid);
    }

    /// The thread ends. What it still flushes belongs to the end of its address space. Returns the call that it was in.
    pub(super) fn ends(&mut self, tid: i32) -> Option<Left> {
        let before = std::mem::replace(self.thread(tid), Doing { has_ended: true, ..Doing::default() });
        before.call.map(Call::left)
    }

    /// A flush of the thread was counted in this row. Returns where the thread was. If it was in a call, the row gets
    /// the time of the whole call when that ends.
    pub(super) fn flushed(&mut self, tid: i32, row: usize) -> Place {
        let Some(call) = self.threads.get_mut(&tid).and_then(|doing| doing.call.as_mut()) else {
            return Place::OutsideOfCalls;
        };
        call.row = Some(row);
        Place::InACall
    }

    /// What the flush `event` is for. `cpu_ns` is the CPU time that its thread has used, in nanoseconds.
    ///
    /// The stack decides where it shows anything: the kernel may do its own work in the middle of anything, and
    /// most system calls are not recorded. Without a stack the call decides, then a fault just before, then the thread.
    pub(super) fn purpose(&mut self, event: &Event, cpu_ns: u64, names: &Names) -> Purpose {
        let shown = event.stack.and_then(|stack| self.by_stack(stack, names));
        let doing = self.thread(event.tid);
        let unrecorded_ns = cpu_ns.saturating_sub(doing.seen_ns).min(UNRECORDED_NS);
        (doing.seen_ns, doing.has_just_faulted) = (cpu_ns, false);
        let call = doing.call.map(|call| Purpose { why: call.why, mapping: call.mapping, before_ns: 0 });
        let mut of_fault = |is_meant: &dyn Fn(&Fault) -> bool| {
            let fault = doing.fault.as_mut().filter(|fault| is_meant(fault))?;
            let before_ns = cpu_ns.saturating_sub(fault.since_ns);
            fault.since_ns = cpu_ns;
            Some(Purpose { why: fault.why, mapping: fault.mapping, before_ns })
        };
        let of = |why, mapping, before_ns| Purpose { why, mapping, before_ns };
        match shown {
            Some(Shown::Own(why)) if why.is_the_kernels() => of(why, Mapping::Unknown, 0),
            _ if doing.has_ended => of(Why::Call(Syscall::ExitGroup), Mapping::Whole, 0),
            Some(Shown::Own(why)) => call.unwrap_or_else(|| of(why, Mapping::Whole, 0)),
            Some(Shown::Fault(why)) => of_fault(&|_| true).unwrap_or_else(|| of(why, Mapping::Unknown, unrecorded_ns)),
            Some(Shown::Call(why)) => match (call, doing.call) {
                (Some(purpose), Some(entered)) if why == Why::Call(entered.call) => purpose,
                _ => of(why, Mapping::Unknown, unrecorded_ns),
            },
            Some(Shown::InCall(why)) => call.unwrap_or_else(|| of(why, Mapping::Unknown, unrecorded_ns)),
            None => {
                let is_recent = |fault: &Fault| event.time_ns.saturating_sub(fault.time_ns) <= FAULT_WINDOW_NS;
                let why = || Why::of_thread(names.text(event.comm)).unwrap_or(Why::Unknown);
                call.or_else(|| of_fault(&is_recent)).unwrap_or_else(|| of(why(), Mapping::Unknown, 0))
            }
        }
    }

    fn by_stack(&mut self, stack: StackId, names: &Names) -> Option<Shown> {
        *self.stacks.entry(stack).or_insert_with(|| Shown::by(names.stack(stack), names))
    }
}
