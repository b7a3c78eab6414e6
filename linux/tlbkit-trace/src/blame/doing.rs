//! What each thread is at: the system call that it is in, or the fault that it had just before.

use super::mapping::{Mapping, Spaces};
use super::request::Place;
use super::why::{Past, Why};
use crate::abi::CLONE_VM;
use crate::event::{Event, Syscall};
use crate::limits::{FAULT_WINDOW_NS, MAX_THREADS};
use crate::names::{Names, StackId};
use rustc_hash::FxHashMap;

/// What one flush is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Purpose {
    pub(super) why: Why,
    pub(super) mapping: Mapping,
    /// CPU time of the thread since the fault that led to it, and that no flush before it has counted.
    pub(super) since_fault_ns: u64,
}

#[derive(Clone, Copy)]
struct Call {
    call: Syscall,
    args: [u64; 5],
    why: Why,
    mapping: Mapping,
    /// CPU time of the thread when it began.
    since_ns: u64,
    /// The row of its last flush.
    row: Option<usize>,
}

#[derive(Clone, Copy)]
struct Fault {
    why: Why,
    mapping: Mapping,
    time_ns: u64,
    since_ns: u64,
}

#[derive(Clone, Copy, Default)]
struct Doing {
    call: Option<Call>,
    fault: Option<Fault>,
    has_ended: bool,
}

/// A call that is over.
pub(super) struct Left {
    pub(super) args: [u64; 5],
    /// The row of its last flush, and the CPU time of the thread when the call began.
    pub(super) row: Option<(usize, u64)>,
}

/// What all threads are at.
#[derive(Default)]
pub(super) struct Doings {
    threads: FxHashMap<i32, Doing>,
    /// What stacks say, as far as they were looked at.
    stacks: FxHashMap<StackId, Option<Why>>,
}

impl Doings {
    fn thread(&mut self, tid: i32) -> &mut Doing {
        if self.threads.len() >= MAX_THREADS {
            self.threads.clear();
        }
        self.threads.entry(tid).or_default()
    }

    pub(super) fn enter(&mut self, tid: i32, call: Syscall, args: &[u64; 5], spaces: &Spaces, pid: i32, since_ns: u64) {
        let mapping = match call {
            Syscall::Munmap | Syscall::Mprotect | Syscall::Madvise | Syscall::Mremap => spaces.mapping(pid, args[0]),
            Syscall::Brk => Mapping::Heap,
            // A fixed place that is in use already is unmapped first.
            Syscall::Mmap if args[0] != 0 => spaces.mapping(pid, args[0]),
            Syscall::Mmap => Mapping::Unknown,
            Syscall::Clone | Syscall::Clone3 | Syscall::Vfork | Syscall::Execve | Syscall::ExitGroup => Mapping::Whole,
        };
        let why = Why::of_call(call, args);
        *self.thread(tid) =
            Doing { call: Some(Call { call, args: *args, why, mapping, since_ns, row: None }), ..Doing::default() };
    }

    pub(super) fn leave(&mut self, tid: i32, call: Syscall) -> Option<Left> {
        let left = self.threads.get_mut(&tid)?.call.take_if(|entered| entered.call == call)?;
        Some(Left { args: left.args, row: left.row.map(|row| (row, left.since_ns)) })
    }

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

    /// Whether the thread's call makes a process with memory of its own.
    pub(super) fn copies_memory(&self, tid: i32) -> bool {
        let call = self.threads.get(&tid).and_then(|doing| doing.call);
        call.is_some_and(|call| call.call == Syscall::Clone && call.args[0] & CLONE_VM == 0)
    }

    /// Whether the thread is about to begin another program.
    pub(super) fn is_in_exec(&self, tid: i32) -> bool {
        let call = self.threads.get(&tid).and_then(|doing| doing.call);
        call.is_some_and(|call| call.call == Syscall::Execve)
    }

    /// The thread is new, whoever had its number before.
    pub(super) fn begins(&mut self, tid: i32) {
        self.threads.remove(&tid);
    }

    /// The thread ends; what it still flushes is its memory's end.
    pub(super) fn ends(&mut self, tid: i32) {
        *self.thread(tid) = Doing { has_ended: true, ..Doing::default() };
    }

    /// A flush of the thread went to this row. Where the thread was: if in a call, the row gets all of the call's time.
    pub(super) fn flushed(&mut self, tid: i32, row: usize) -> Place {
        let Some(call) = self.threads.get_mut(&tid).and_then(|doing| doing.call.as_mut()) else {
            return Place::OutsideOfCalls;
        };
        call.row = Some(row);
        Place::InACall
    }

    /// What a flush is for. The kernel's own purposes come first, as they come in between; then the call, the fault,
    /// a call that only the stack tells, and a thread of the kernel.
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
