//! What is known of threads and spaces while operations are deduced from a trace.

use super::frames::Frames;
use super::older::{Older, Resident};
use super::pages::Pages;
use super::people::{Coverage, People, Process};
use crate::op::{Cause, Op, OpKind, Party, Space, Taken};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use tlbkit::Stride;
use tlbkit_trace::{Event, FlushSize, Name, Syscall};

/// The end of the addresses of programs, with four levels of page tables.
pub(super) const USER_END: u64 = 1 << 47;
/// The number of the page at which an exec builds the first stack, or one near it.
pub(super) const STACK_PAGE: u64 = (USER_END >> 12) - 64;

/// What a trace asks of a kernel, apart from the operations.
#[derive(Debug, Default)]
pub struct Deduced {
    /// How many address spaces there were in all.
    pub spaces: u32,
    /// One more than the highest number of a CPU that recorded an event.
    pub cpus: u32,
    /// Which CPUs held which spaces when the trace began. Of each CPU the space that it ran last comes first.
    pub residents: Vec<Resident>,
    /// How many revocations are not deduced but taken from the kernel's record: those in processes that are older than
    /// the trace, and copies of pages that were shared with processes which were about to end.
    pub told: u64,
    /// How many of these the kernel recorded as a CPU's own flushes, by size.
    pub told_sizes: BTreeMap<FlushSize, u64>,
    /// Whether the trace has the events of all threads.
    pub coverage: Coverage,
    /// The processes that ran.
    pub processes: Vec<Process>,
    /// The most pages of each space that may have been mapped at once. `u64::MAX` if the space is older than the trace.
    pub most_pages: Vec<u64>,
    /// The numbers, in order, of the revocations of which the trace shows only later that they trim the CPU set.
    pub(crate) trimmed: Vec<u64>,
}

/// What the kernel has recorded in a system call of a thread.
pub(super) struct Recorded {
    /// The sizes of the thread's own flushes.
    pub(super) flushes: Vec<FlushSize>,
    /// Whether a CPU was asked to flush that ran another space.
    pub(super) trims: bool,
}

impl Recorded {
    /// Nothing was recorded.
    pub(super) const NOTHING: Self = Self { flushes: Vec::new(), trims: false };
}

/// A thread of a program.
pub(super) struct Thread {
    pub(super) space: Space,
    /// The system call that the thread is in, and its arguments.
    pub(super) call: Option<(Syscall, [u64; 5])>,
    pub(super) recorded: Recorded,
    /// Whether the thread has begun to ask other CPUs, and has not done its own part of the flush yet.
    pub(super) is_asking: bool,
    /// The number of the operation in which its last fault copied a page, if it did.
    pub(super) copied: Option<u64>,
    /// A page that the thread has written to, if it is not known whether the write made a copy. If it did, a flush
    /// follows.
    pub(super) store: Option<u64>,
    /// Whether an exec of the thread has loaded the new space.
    pub(super) has_loaded: bool,
}

impl Thread {
    pub(super) const fn new(space: Space) -> Self {
        Self {
            space,
            call: None,
            recorded: Recorded::NOTHING,
            is_asking: false,
            copied: None,
            store: None,
            has_loaded: false,
        }
    }
}

/// A thread, the name of its process, and whether the caller asks about the thread.
#[derive(Clone, Copy)]
struct Known {
    tid: i32,
    own_name: Name,
    comm: Name,
    party: Party,
}

/// Deduces operations from events.
pub(crate) struct Deducer {
    pub(super) people: Rc<People>,
    pub(super) older: Older,
    pub(super) tasks: FxHashMap<i32, Thread>,
    /// Threads that have left their spaces for ever and may still run. Then they have no space, as the kernel's own
    /// threads.
    pub(super) gone: FxHashSet<i32>,
    /// The spaces whose last threads have begun to end, by thread. Their pages stay until the thread does not run any
    /// more.
    pub(super) dying: FxHashMap<i32, Space>,
    /// How many threads use each space.
    pub(super) users: Vec<u32>,
    pub(super) pages: Vec<Pages>,
    pub(super) frames: Frames,
    /// What the kernel recorded in the system call that is ending. Nothing at any other time.
    pub(super) ended: Recorded,
    /// The threads that wait for the answers to queued calls, by the addresses of these. A CPU has one such call for
    /// each other CPU, so there are few.
    pub(super) asked: FxHashMap<u64, i32>,
    /// The thread that each CPU runs, or none if it is not known.
    pub(super) running: Vec<Option<i32>>,
    /// The thread of the last operation of each CPU.
    known: Vec<Option<Known>>,
    pub(super) done: Deduced,
    /// Operations that nobody has taken yet, and how many there were before them.
    ops: Vec<Op>,
    ops_before: u64,
}

impl Deducer {
    pub(crate) fn new(people: Rc<People>) -> Self {
        let cpus = people.cpus;
        let done = Deduced { cpus, ..Deduced::default() };
        Self {
            people,
            older: Older::new(cpus),
            tasks: FxHashMap::default(),
            gone: FxHashSet::default(),
            dying: FxHashMap::default(),
            users: Vec::new(),
            pages: Vec::new(),
            frames: Frames::default(),
            ended: Recorded::NOTHING,
            asked: FxHashMap::default(),
            running: vec![None; cpus as usize],
            known: vec![None; cpus as usize],
            done,
            ops: Vec::new(),
            ops_before: 0,
        }
    }

    /// Adds an operation of the event's thread.
    pub(super) fn push(&mut self, event: &Event, kind: OpKind) {
        self.push_of(event, event.tid, event.comm, kind);
    }

    /// Adds an operation of the thread `tid`, whose own name is `own_name`, on the event's CPU.
    pub(super) fn push_of(&mut self, event: &Event, tid: i32, own_name: Name, kind: OpKind) {
        let Known { comm, party, .. } = self.whose(event.cpu, tid, own_name);
        let op = Op { time_ns: event.time_ns, cpu: event.cpu, comm, party, kind };
        self.ops.push(op);
    }

    /// The number of the next operation.
    fn next_op(&self) -> u64 {
        self.ops_before + self.ops.len() as u64
    }

    /// The operations since the last call.
    pub(crate) fn take_ops(&mut self) -> impl Iterator<Item = Op> {
        self.ops_before = self.next_op();
        self.ops.drain(..)
    }

    /// The thread with its name and whether the caller asks about it. Mostly it is the thread of the CPU's last
    /// operation, so that one is kept.
    fn whose(&mut self, cpu: u32, tid: i32, own_name: Name) -> Known {
        let known = self.known[cpu as usize].filter(|known| (known.tid, known.own_name) == (tid, own_name));
        known.unwrap_or_else(|| {
            let (comm, party) = (self.people.name_of(tid, own_name), self.people.party(tid));
            *self.known[cpu as usize].insert(Known { tid, own_name, comm, party })
        })
    }

    /// Adds revocations that the event's thread caused in `space`.
    pub(super) fn revoke(&mut self, event: &Event, space: Space, cause: Cause, taken: impl IntoIterator<Item = Taken>) {
        let trims = self.ended.trims;
        let revoke = |taken| OpKind::Revoke { space, cause, taken: Taken { trims, ..taken } };
        taken.into_iter().for_each(|taken| self.push(event, revoke(taken)));
    }

    /// Adds the revocation of a page that a write of the event's thread has copied.
    pub(super) fn copy(&mut self, event: &Event, space: Space, page: u64) {
        self.task(event.tid).copied = Some(self.next_op());
        self.revoke(event, space, Cause::CopyOnWrite, [Taken::pages(page, 1, Stride::Page4K)]);
    }

    /// Whether the thread runs a program, and has not left its space by ending.
    pub(super) fn is_program(&self, tid: i32) -> bool {
        self.people.is_program(tid) && !self.gone.contains(&tid)
    }

    /// What is known of the thread. If nothing is, the thread is older than the recording, and so is its space.
    pub(super) fn task(&mut self, tid: i32) -> &mut Thread {
        if !self.tasks.contains_key(&tid) {
            let process = self.people.process_of(tid);
            let leader = self.tasks.get(&process).map(|leader| leader.space);
            let space = leader.unwrap_or_else(|| self.older_space());
            if leader.is_none() && process != tid {
                self.tasks.insert(process, Thread::new(space));
                self.users[space.0 as usize] += 1;
            }
            self.users[space.0 as usize] += 1;
            self.tasks.insert(tid, Thread::new(space));
        }
        self.tasks.get_mut(&tid).expect("just inserted")
    }

    /// A space that is older than the recording.
    pub(super) fn older_space(&mut self) -> Space {
        let space = self.new_space(Pages::older());
        self.older.add(space);
        space
    }

    /// A space that begins with these pages.
    pub(super) fn new_space(&mut self, pages: Pages) -> Space {
        self.done.most_pages.push(pages.most());
        self.pages.push(pages);
        self.users.push(0);
        self.done.spaces += 1;
        Space(self.done.spaces - 1)
    }
}

/// The revocation of the base pages of `span`.
pub(super) fn taken(span: &Range<u64>, stride: Stride) -> Taken {
    Taken::pages(span.start, span.end - span.start, stride)
}
