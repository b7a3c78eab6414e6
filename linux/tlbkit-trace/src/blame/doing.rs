//! What each thread is doing: the system call that it is in, or the page fault that it had just before.

use super::mapping::{Mapping, Spaces};
use super::request::Place;
use super::why::{Past, Why};
use crate::abi::CLONE_VM;
use crate::event::{Event, FAULT_WINDOW_NS, MAX_THREADS, Syscall};
use crate::names::{Names, StackId};
use rustc_hash::FxHashMap;

/// What a flush is for, and which memory it means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Purpose {
    pub(super) why: Why,
    pub(super) mapping: Mapping,
    /// The CPU time of the thread since the fault that led to the flush, in nanoseconds, without what an earlier flush
    /// of the same fault has counted. 0 if no fault led to it.
    pub(super) since_fault_ns: u64,
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
    /// The row of the last flush in this call, if there was one.
    row: Option<usize>,
}

/// The last page fault of a thread.
#[derive(Clone, Copy)]
struct Fault {
    why: Why,
    mapping: Mapping,
    time_ns: u64,
    /// The CPU time that the thread had used up to the fault, or up to the last flush that it led to, in nanoseconds.
    since_ns: u64,
}

#[derive(Clone, Copy, Default)]
struct Doing {
    call: Option<Call>,
    fault: Option<Fault>,
    has_ended: bool,
}

/// A system call that has ended.
pub(super) struct Left {
    pub(super) args: [u64; 5],
    /// The row of its last flush, and the CPU time that the thread had used when the call began, in nanoseconds. None
    /// if it did not flush.
    pub(super) row: Option<(usize, u64)>,
}

/// What all threads are doing.
#[derive(Default)]
pub(super) struct Doings {
    threads: FxHashMap<i32, Doing>,
    /// The purpose that each stack shows which was looked at, if it shows one.
    stacks: FxHashMap<StackId, Option<Why>>,
}

impl Doings {
    fn thread(&mut self, tid: i32) -> &mut Doing {
        if self.threads.len() >= MAX_THREADS {
            self.threads.clear();
        }
        self.threads.entry(tid).or_default()
    }

    /// The thread enters a system call. `since_ns` is the CPU time that it has used, in nanoseconds.
    pub(super) fn enter(&mut self, tid: i32, call: Syscall, args: &[u64; 5], spaces: &Spaces, pid: i32, since_ns: u64) {
        let mapping = match call {
            Syscall::Munmap | Syscall::Mprotect | Syscall::Madvise | Syscall::Mremap => spaces.mapping(pid, args[0]),
            Syscall::Brk => Mapping::Heap,
            // With a fixed address, what is mapped there is unmapped first.
            Syscall::Mmap if args[0] != 0 => spaces.mapping(pid, args[0]),
            Syscall::Mmap => Mapping::Unknown,
            Syscall::Clone | Syscall::Clone3 | Syscall::Vfork | Syscall::Execve | Syscall::ExitGroup => Mapping::Whole,
        };
        let why = Why::of_call(call, args);
        *self.thread(tid) =
            Doing { call: Some(Call { call, args: *args, why, mapping, since_ns, row: None }), ..Doing::default() };
    }

    /// The thread leaves a system call. None if it was not seen to enter that call.
    pub(super) fn leave(&mut self, tid: i32, call: Syscall) -> Option<Left> {
        let left = self.threads.get_mut(&tid)?.call.take_if(|entered| entered.call == call)?;
        Some(Left { args: left.args, row: left.row.map(|row| (row, left.since_ns)) })
    }

    /// The event's thread has a page fault. `since_ns` is the CPU time that it has used, in nanoseconds.
    pub(super) fn fault(
        &mut self,
        event: &Event,
        address: u64,
        error_code: u32,
        spaces: &Spaces,
        pid: i32,
        since_ns: u64,
    ) {
        let has_forked = spaces.get(pid).is_some_and(|space| space.has_forked);
        let why = Why::of_fault(error_code, if has_forked { Past::Forked } else { Past::Alone });
        let mapping = spaces.mapping(pid, address);
        self.thread(event.tid).fault = Some(Fault { why, mapping, time_ns: event.time_ns, since_ns });
    }

    /// Whether the thread is in a call that creates a process with an address space of its own.
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

    /// The thread ends. What it still flushes belongs to the end of its address space.
    pub(super) fn ends(&mut self, tid: i32) {
        *self.thread(tid) = Doing { has_ended: true, ..Doing::default() };
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
    /// The first of these that is known decides: a purpose of the kernel's own, which may come in the middle of
    /// anything; the system call; the fault; a call that only the stack shows; the kernel thread that it is.
    pub(super) fn purpose(&mut self, event: &Event, cpu_ns: u64, names: &Names) -> Purpose {
        let by_stack = event.stack.and_then(|stack| self.by_stack(stack, names));
        let whole = |why| Purpose { why, mapping: Mapping::Whole, since_fault_ns: 0 };
        if let Some(why) = by_stack.filter(|why| why.is_the_kernels()) {
            return Purpose { mapping: Mapping::Unknown, ..whole(why) };
        }
        let doing = self.thread(event.tid);
        if doing.has_ended {
            return whole(Why::Call(Syscall::ExitGroup));
        }
        if let Some(Call { why, mapping, .. }) = doing.call {
            return Purpose { why, mapping, since_fault_ns: 0 };
        }
        let is_recent = |fault: &&mut Fault| event.time_ns.saturating_sub(fault.time_ns) <= FAULT_WINDOW_NS;
        if let Some(fault) = doing.fault.as_mut().filter(is_recent) {
            let since_fault_ns = cpu_ns.saturating_sub(fault.since_ns);
            fault.since_ns = cpu_ns;
            return Purpose { why: fault.why, mapping: fault.mapping, since_fault_ns };
        }
        let why = by_stack.or_else(|| Why::of_thread(names.text(event.comm))).unwrap_or(Why::Unknown);
        Purpose { mapping: Mapping::Unknown, ..whole(why) }
    }

    fn by_stack(&mut self, stack: StackId, names: &Names) -> Option<Why> {
        *self.stacks.entry(stack).or_insert_with(|| Why::of_stack(names.stack(stack), names))
    }
}
