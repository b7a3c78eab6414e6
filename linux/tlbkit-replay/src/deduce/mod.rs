//! From a trace to what a kernel must do about it.
//!
//! | file | what |
//! |---|---|
//! | `people` | threads, processes, the kernel's own threads |
//! | `older` | which CPUs held what when the trace began |
//! | `pages` | what is mapped where, and shared with whom |
//! | `calls` | what each system call takes away |
//! | `record` | what the kernel's own word on its flushes tells besides |
//! | this one | who runs where, which space is whose |

mod calls;
mod older;
mod pages;
mod people;
mod record;

use crate::op::{Cause, Op, Space, Step, Taken};
use older::Older;
pub use older::{Held, Resident};
use pages::{Frames, Pages};
pub(crate) use people::People;
use record::Recorded;
use rustc_hash::{FxHashMap, FxHashSet};
use tlbkit::Stride;
use tlbkit_trace::{Event, FlushReason, Kind, Name, Syscall};

/// What a trace asks of a kernel.
#[derive(Clone, Debug, Default)]
pub struct Deduced {
    /// In the order of the trace.
    pub ops: Vec<Op>,
    /// Spaces that ever were.
    pub spaces: u32,
    /// CPUs.
    pub cpus: u32,
    /// CPUs that held spaces when the trace began, each CPU's latest first.
    pub residents: Vec<Resident>,
    /// Revocations in processes older than the trace that are taken as its kernel recorded them.
    pub told: u64,
    /// Most pages of each space that may have been mapped at once; without limit if it is older than the trace.
    pub most_pages: Vec<u64>,
    /// First and last event, on the recording's clock.
    pub span_ns: (u64, u64),
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

/// A thread of a program.
struct Task {
    space: Space,
    /// The call that it is in: which, with what, and its result is awaited.
    call: Option<(Syscall, [u64; 5])>,
    recorded: Recorded,
    /// It has begun to ask others, and is not through with its own flush.
    is_asking: bool,
    /// Which operation its last fault was, if that copied a page.
    copied: Option<usize>,
    /// It has stored to this page, of which nothing is known: a flush tells that the page was copied.
    store: Option<u64>,
    /// Its exec has loaded the new space.
    has_loaded: bool,
}

impl Task {
    const fn new(space: Space) -> Self {
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

/// What is known while the trace is read.
pub(crate) struct Deducer {
    people: People,
    older: Older,
    paging: Paging,
    tasks: FxHashMap<i32, Task>,
    /// Threads that have left their spaces for good and may still run: as the kernel's own do, without one.
    gone: FxHashSet<i32>,
    /// Threads that use each space.
    users: Vec<u32>,
    pages: Vec<Pages>,
    frames: Frames,
    /// Of the call that is ending; nothing at any other time.
    ended: Recorded,
    /// What each CPU runs: a thread, or none if it is unknown.
    running: Vec<Option<i32>>,
    done: Deduced,
}

impl Deducer {
    pub(crate) fn new(people: People, paging: Paging) -> Self {
        let cpus = people.cpus;
        let done = Deduced { cpus, ..Deduced::default() };
        Self {
            people,
            older: Older::new(cpus),
            paging,
            tasks: FxHashMap::default(),
            gone: FxHashSet::default(),
            users: Vec::new(),
            pages: Vec::new(),
            frames: Frames::default(),
            ended: Recorded::NOTHING,
            running: vec![None; cpus as usize],
            done,
        }
    }

    pub(crate) fn finish(mut self) -> Deduced {
        self.done.residents = self.older.residents;
        self.done
    }

    pub(crate) fn event(&mut self, event: &Event) {
        if self.done.span_ns.1 == 0 {
            self.done.span_ns.0 = event.time_ns;
        }
        self.done.span_ns.1 = event.time_ns;
        match event.kind {
            Kind::Switch { next, .. } => return self.switch(event, next),
            // It still carries the thread before, except in an exec.
            Kind::TlbFlush { reason: FlushReason::TaskSwitch, size } => {
                self.older.switched(event.cpu, size);
                if self.people.execs_at(event.tid, event.time_ns) {
                    self.notice(event);
                    self.exec(event, event.tid);
                }
                return;
            }
            _ => {
                self.older.goes_on(event.cpu);
                self.notice(event);
            }
        }
        match event.kind {
            Kind::TlbFlush { reason, size } if self.is_program(event.tid) => self.flush(event, reason, size),
            Kind::CallQueue { cpu, .. } => self.send(event, cpu),
            Kind::Fork { parent, child, .. } => self.fork(parent, child),
            Kind::Exec { tid, old_tid, .. } => self.exec_ends(event, tid, old_tid),
            Kind::Exit { tid, .. } => self.exit(event, tid),
            Kind::Fault { address, error_code, .. } => self.fault(event, address, error_code),
            Kind::Enter { call, args } => self.enter(event, call, args),
            Kind::Leave { call, result } => self.leave(event, call, result),
            _ => {}
        }
    }

    fn push(&mut self, event: &Event, step: Step) {
        self.push_of(event, event.tid, event.comm, step);
    }

    /// A step of a thread that is not the event's.
    fn push_of(&mut self, event: &Event, tid: i32, own_name: Name, step: Step) {
        let comm = self.people.name_of(tid, own_name);
        self.done.ops.push(Op { time_ns: event.time_ns, cpu: event.cpu, comm, step });
    }

    fn switch(&mut self, event: &Event, next: i32) {
        self.older.goes_on(event.cpu);
        self.running[event.cpu as usize] = Some(next);
        let Kind::Switch { next_comm, .. } = event.kind else { return };
        self.run(event, next, next_comm);
        if self.is_program(next) {
            let space = self.task(next).space;
            self.older.comes(event.cpu, space);
        }
    }

    /// An event on a CPU says who runs there, if no switch did.
    fn notice(&mut self, event: &Event) {
        let before = self.running[event.cpu as usize].replace(event.tid);
        if before == Some(event.tid) {
            return;
        }
        if before.is_none() && self.is_program(event.tid) {
            let space = self.task(event.tid).space;
            self.older.runs(event.cpu, space);
        }
        self.run(event, event.tid, event.comm);
    }

    fn run(&mut self, event: &Event, tid: i32, comm: Name) {
        let step = if self.is_program(tid) { Step::Run { space: self.task(tid).space } } else { Step::Idle };
        self.push_of(event, tid, comm, step);
    }

    /// Whether the thread runs a program, and has not left it.
    fn is_program(&self, tid: i32) -> bool {
        self.people.is_program(tid) && !self.gone.contains(&tid)
    }

    /// The thread, which was there before the recording if it is not known yet.
    fn task(&mut self, tid: i32) -> &mut Task {
        if !self.tasks.contains_key(&tid) {
            let process = self.people.process_of(tid);
            let leader = self.tasks.get(&process).map(|leader| leader.space);
            let space = leader.unwrap_or_else(|| self.older_space());
            if leader.is_none() && process != tid {
                self.tasks.insert(process, Task::new(space));
                self.users[space.0 as usize] += 1;
            }
            self.users[space.0 as usize] += 1;
            self.tasks.insert(tid, Task::new(space));
        }
        self.tasks.get_mut(&tid).expect("just inserted")
    }

    fn older_space(&mut self) -> Space {
        let space = self.new_space(Pages::older());
        self.older.add(space);
        space
    }

    fn new_space(&mut self, pages: Pages) -> Space {
        self.done.most_pages.push(pages.most());
        self.pages.push(pages);
        self.users.push(0);
        self.done.spaces += 1;
        Space(self.done.spaces - 1)
    }

    /// A child shares its parent's space if it is a thread, or until its exec after vfork.
    fn fork(&mut self, parent: i32, child: i32) {
        if !self.is_program(parent) {
            return;
        }
        let parent_task = self.task(parent);
        let (space, call) = (parent_task.space, parent_task.call);
        let is_copy = match call {
            Some((Syscall::Clone, args)) => args[0] & CLONE_VM == 0,
            // Its flags are not recorded. A C library calls it for threads and for spawning, which share.
            Some((Syscall::Clone3 | Syscall::Vfork, _)) => false,
            // A plain fork is a clone too; this one's call began before the recording.
            _ => self.people.process_of(child) == child,
        };
        let space = if is_copy {
            let pages = self.pages[space.0 as usize].fork(&mut self.frames);
            self.new_space(pages)
        } else {
            space
        };
        self.users[space.0 as usize] += 1;
        self.gone.remove(&child);
        self.tasks.insert(child, Task::new(space));
    }

    /// The thread goes on in a new space. Linux builds it with one page at its stack, moves that, and frees the table.
    fn exec(&mut self, event: &Event, tid: i32) {
        let old = self.task(tid).space;
        let space = self.new_space(Pages::default());
        let task = self.task(tid);
        (task.space, task.has_loaded) = (space, true);
        self.users[space.0 as usize] += 1;
        self.push(event, Step::Run { space });
        let cause = Cause::Call(Syscall::Execve);
        let stack = Taken::pages(calls::STACK_PAGE, 1, Stride::Page4K);
        self.revoke(event, space, cause, [stack, Taken { frees_tables: true, ..Taken::ALL }]);
        self.let_go(event, old, cause);
    }

    fn exit(&mut self, event: &Event, tid: i32) {
        self.gone.insert(tid);
        if let Some(task) = self.tasks.remove(&tid) {
            self.let_go(event, task.space, Cause::Call(Syscall::ExitGroup));
        }
    }

    fn let_go(&mut self, event: &Event, space: Space, cause: Cause) {
        let users = &mut self.users[space.0 as usize];
        *users = users.saturating_sub(1);
        if *users == 0 {
            self.pages[space.0 as usize].discard(&mut self.frames, &(0..u64::MAX));
            self.push(event, Step::Retire { space, cause });
        }
    }

    fn fault(&mut self, event: &Event, address: u64, error_code: u32) {
        if !self.is_program(event.tid) || address >= calls::USER_END {
            return;
        }
        let task = self.task(event.tid);
        (task.store, task.copied) = (None, None);
        let (space, page) = (task.space, address >> 12);
        let index = space.0 as usize;
        let (is_present, is_write) = (error_code & 1 != 0, error_code & 2 != 0);
        if !is_present {
            if self.paging == Paging::Huge && self.pages[index].has_huge_neighbour(page) {
                return;
            }
            self.pages[index].fault(&mut self.frames, page, is_write);
        } else if is_write && self.people.tells_flushes && self.pages[index].is_unknown(page) {
            self.task(event.tid).store = Some(page);
        } else if is_write && self.pages[index].store(&mut self.frames, page) {
            self.copy(event, space, page);
        }
        let most = &mut self.done.most_pages[index];
        *most = (*most).max(self.pages[index].most());
        self.push(event, Step::Touch { page });
    }

    /// The page got another frame.
    fn copy(&mut self, event: &Event, space: Space, page: u64) {
        self.task(event.tid).copied = Some(self.done.ops.len());
        self.revoke(event, space, Cause::CopyOnWrite, [Taken::pages(page, 1, Stride::Page4K)]);
    }

    fn enter(&mut self, event: &Event, call: Syscall, args: [u64; 5]) {
        let task = self.task(event.tid);
        (task.call, task.recorded) = (Some((call, args)), Recorded::NOTHING);
        (task.store, task.copied) = (None, None);
        self.push(event, Step::Call);
    }

    /// The new space was loaded a moment ago, unless the trace has not shown it. The thread is its process now.
    fn exec_ends(&mut self, event: &Event, tid: i32, old_tid: i32) {
        if !std::mem::take(&mut self.task(old_tid).has_loaded) {
            self.exec(event, old_tid);
            self.task(old_tid).has_loaded = false;
        }
        if let Some(task) = self.tasks.remove(&old_tid) {
            self.tasks.insert(tid, task);
        }
    }
}

const CLONE_VM: u64 = 0x100;
