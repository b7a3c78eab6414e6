//! What is known of threads and spaces while a trace is read.

use super::frames::Frames;
use super::older::{Older, Resident};
use super::pages::Pages;
use super::people::{Coverage, People, Process};
use crate::memory::{MemoryCharge, MemorySum};
use crate::op::{Cause, Op, OpKind, Party, Space, Taken};
use crate::stored::{Ops, Storing};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use tlbkit::Stride;
use tlbkit_trace::{Event, FlushSize, Name, Syscall};

/// End of user addresses with four levels of tables.
pub(super) const USER_END: u64 = 1 << 47;
/// Where exec's stack is, near enough.
pub(super) const STACK_PAGE: u64 = (USER_END >> 12) - 64;

/// What a trace asks of a kernel.
#[derive(Debug, Default)]
pub struct Deduced {
    /// In the order of the trace.
    pub ops: Ops,
    /// Spaces that ever were.
    pub spaces: u32,
    /// CPUs.
    pub cpus: u32,
    /// CPUs that held spaces when the trace began, each CPU's latest first.
    pub residents: Vec<Resident>,
    /// Revocations that are taken as the trace's kernel recorded them: in processes older than it, and copies of pages
    /// that were shared with processes that were about to end.
    pub told: u64,
    /// Those of them that the kernel recorded as flushes of this CPU's space, by size.
    pub told_sizes: BTreeMap<FlushSize, u64>,
    /// Whose events the trace has.
    pub coverage: Coverage,
    /// Who ran.
    pub processes: Vec<Process>,
    /// Most pages of each space that may have been mapped at once; without limit if it is older than the trace.
    pub most_pages: Vec<u64>,
    /// What was done for memory itself.
    pub(crate) memory: Vec<MemoryCharge>,
}

/// With which pages anonymous memory is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Paging {
    /// As the trace has it.
    #[default]
    AsRecorded,
    /// With 2 MiB wherever a mapping has room for them, as transparent huge pages at their best.
    Huge,
}

/// What the kernel has recorded in a call.
pub(super) struct Recorded {
    /// Own flushes.
    pub(super) flushes: Vec<FlushSize>,
    /// A CPU was asked that ran something else.
    pub(super) trims: bool,
}

impl Recorded {
    pub(super) const NOTHING: Self = Self { flushes: Vec::new(), trims: false };
}

/// A thread of a program.
pub(super) struct Thread {
    pub(super) space: Space,
    /// The call that it is in: which, with what, and its result is awaited.
    pub(super) call: Option<(Syscall, [u64; 5])>,
    pub(super) recorded: Recorded,
    /// It has begun to ask others, and is not through with its own flush.
    pub(super) is_asking: bool,
    /// Which operation its last fault was, if that copied a page.
    pub(super) copied: Option<u64>,
    /// It has stored to this page, and nothing that is known says if the page was copied: a flush tells that.
    pub(super) store: Option<u64>,
    /// Its exec has loaded the new space.
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

/// A thread, what operations of it are called, and whether the reader asks about them.
#[derive(Clone, Copy)]
struct Known {
    tid: i32,
    own_name: Name,
    comm: Name,
    party: Party,
}

/// What is known while the trace is read.
pub(crate) struct Deducer {
    pub(super) people: Rc<People>,
    pub(super) older: Older,
    pub(super) paging: Paging,
    pub(super) tasks: FxHashMap<i32, Thread>,
    /// Threads that have left their spaces for good and may still run: as the kernel's own do, without one.
    pub(super) gone: FxHashSet<i32>,
    /// Spaces whose last threads have begun to end, by thread: the pages are there until the thread runs no more.
    pub(super) dying: FxHashMap<i32, Space>,
    /// Threads that use each space.
    pub(super) users: Vec<u32>,
    pub(super) pages: Vec<Pages>,
    pub(super) frames: Frames,
    /// Of the call that is ending; nothing at any other time.
    pub(super) ended: Recorded,
    /// What each CPU runs: a thread, or none if it is unknown.
    pub(super) running: Vec<Option<i32>>,
    /// The thread that each CPU's last operation was of.
    known: Vec<Option<Known>>,
    pub(super) done: Deduced,
    pub(super) ops: Storing,
    pub(super) memory: MemorySum,
}

impl Deducer {
    pub(crate) fn new(people: Rc<People>, paging: Paging) -> Self {
        let cpus = people.cpus;
        let done = Deduced { cpus, ..Deduced::default() };
        Self {
            people,
            older: Older::new(cpus),
            paging,
            tasks: FxHashMap::default(),
            gone: FxHashSet::default(),
            dying: FxHashMap::default(),
            users: Vec::new(),
            pages: Vec::new(),
            frames: Frames::default(),
            ended: Recorded::NOTHING,
            running: vec![None; cpus as usize],
            known: vec![None; cpus as usize],
            done,
            ops: Storing::default(),
            memory: MemorySum::default(),
        }
    }

    pub(super) fn push(&mut self, event: &Event, kind: OpKind) {
        self.push_of(event, event.tid, event.comm, kind);
    }

    /// An operation of a thread that is not the event's.
    pub(super) fn push_of(&mut self, event: &Event, tid: i32, own_name: Name, kind: OpKind) {
        let Known { comm, party, .. } = self.whose(event.cpu, tid, own_name);
        let op = Op { time_ns: event.time_ns, cpu: event.cpu, comm, party, kind };
        self.memory.add(&op);
        self.ops.push(&op);
    }

    /// What a thread is called and whether the reader asks about it: mostly it is the one that the CPU had last.
    fn whose(&mut self, cpu: u32, tid: i32, own_name: Name) -> Known {
        let known = self.known[cpu as usize].filter(|known| (known.tid, known.own_name) == (tid, own_name));
        known.unwrap_or_else(|| {
            let (comm, party) = (self.people.name_of(tid, own_name), self.people.party(tid));
            *self.known[cpu as usize].insert(Known { tid, own_name, comm, party })
        })
    }

    pub(super) fn revoke(&mut self, event: &Event, space: Space, cause: Cause, taken: impl IntoIterator<Item = Taken>) {
        let trims = self.ended.trims;
        let revoke = |taken| OpKind::Revoke { space, cause, taken: Taken { trims, ..taken } };
        taken.into_iter().for_each(|taken| self.push(event, revoke(taken)));
    }

    /// The page got another frame.
    pub(super) fn copy(&mut self, event: &Event, space: Space, page: u64) {
        self.task(event.tid).copied = Some(self.ops.next());
        self.revoke(event, space, Cause::CopyOnWrite, [Taken::pages(page, 1, Stride::Page4K)]);
    }

    /// Whether the thread runs a program, and has not left it.
    pub(super) fn is_program(&self, tid: i32) -> bool {
        self.people.is_program(tid) && !self.gone.contains(&tid)
    }

    /// The thread, which was there before the recording if it is not known yet.
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

    pub(super) fn older_space(&mut self) -> Space {
        let space = self.new_space(Pages::older());
        self.older.add(space);
        space
    }

    pub(super) fn new_space(&mut self, pages: Pages) -> Space {
        self.done.most_pages.push(pages.most());
        self.pages.push(pages);
        self.users.push(0);
        self.done.spaces += 1;
        Space(self.done.spaces - 1)
    }
}

pub(super) fn taken(span: &Range<u64>, stride: Stride) -> Taken {
    Taken::pages(span.start, span.end - span.start, stride)
}
