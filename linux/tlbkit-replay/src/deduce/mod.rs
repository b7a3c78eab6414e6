//! Deduces from the events of a trace what a kernel had to do.
//!
//! | file | what |
//! |---|---|
//! | `people` | threads, processes, the kernel's own threads |
//! | `older` | which CPUs held which spaces when the trace began |
//! | `frames` | which frames several spaces share after a fork |
//! | `frame_map` | which page has which frame |
//! | `pages` | what is mapped where |
//! | `calls` | what each system call takes away |
//! | `record` | what the kernel's own record of its flushes tells beyond that |
//! | `state` | what is known while the trace is read |
//! | this one | who runs where, and which space belongs to whom |

mod calls;
mod frame_map;
mod frames;
mod older;
mod pages;
mod people;
mod record;
mod state;

use crate::op::{Cause, OpKind, Space, Taken};
pub use older::{Held, Resident};
use pages::Pages;
pub(crate) use people::People;
pub use people::{Coverage, Process};
pub use state::Deduced;
pub(crate) use state::Deducer;
use state::{Recorded, STACK_PAGE, Thread, USER_END};
use tlbkit::Stride;
use tlbkit_trace::abi::{CLONE_VM, FAULT_WRITE};
use tlbkit_trace::{Edge, Event, EventKind, FlushReason, Name, Syscall};

/// Whether any thread still uses a space.
#[derive(PartialEq, Eq)]
enum Left {
    Somebody,
    Nobody,
}

impl Deducer {
    /// What was deduced of all events.
    pub(crate) fn finish(mut self) -> Deduced {
        let (residents, processes, coverage) = (self.older.residents, self.people.processes(), self.people.coverage());
        self.done.trimmed.sort_unstable();
        self.done.trimmed.dedup();
        Deduced { residents, processes, coverage, ..self.done }
    }

    /// Deduces what `event` asks of the kernel. Events must come in order of time.
    pub(crate) fn event(&mut self, event: &Event) {
        match event.kind {
            EventKind::Switch { next, .. } => return self.switch(event, next),
            // Except in an exec, this event still names the thread that ran before.
            EventKind::TlbFlush { reason: FlushReason::TaskSwitch, size } => {
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
            EventKind::TlbFlush { reason, size } if self.is_program(event.tid) => self.flush(event, reason, size),
            EventKind::CallQueue { cpu, csd, .. } => self.send(event, cpu, csd),
            EventKind::CallRun { edge: Edge::Begin, csd, .. } => self.answer(event, csd),
            EventKind::Fork { parent, child, .. } => self.fork(parent, child),
            EventKind::Exec { tid, old_tid, .. } => self.exec_ends(event, tid, old_tid),
            EventKind::Exit { tid, .. } => self.exit(event, tid),
            EventKind::Fault { address, error_code, .. } => self.fault(event, address, error_code),
            EventKind::Enter { call, args } => self.enter(event, call, args),
            EventKind::Leave { call, result } => self.leave(event, call, result),
            _ => {}
        }
    }

    fn switch(&mut self, event: &Event, next: i32) {
        self.older.goes_on(event.cpu);
        self.running[event.cpu as usize] = Some(next);
        let EventKind::Switch { prev, prev_is_runnable, next_comm, .. } = event.kind else { return };
        if !prev_is_runnable {
            self.is_dead(prev);
        }
        self.run(event, next, next_comm);
        if self.is_program(next) {
            let space = self.task(next).space;
            self.older.comes(event.cpu, space);
        }
    }

    /// An event says which thread runs on its CPU, even if no switch of threads has told so.
    fn notice(&mut self, event: &Event) {
        let before = self.running[event.cpu as usize].replace(event.tid);
        if before == Some(event.tid) {
            return;
        }
        if let Some(before) = before {
            self.is_dead(before);
        }
        if before.is_none() && self.is_program(event.tid) {
            let space = self.task(event.tid).space;
            self.older.runs(event.cpu, space);
        }
        self.run(event, event.tid, event.comm);
    }

    /// The thread `tid` runs on the event's CPU from now on.
    fn run(&mut self, event: &Event, tid: i32, comm: Name) {
        let kind = if self.is_program(tid) { OpKind::Run { space: self.task(tid).space } } else { OpKind::Idle };
        self.push_of(event, tid, comm, kind);
    }

    /// A thread or process was created. It shares its parent's space if it is a thread, and after a vfork until its
    /// exec.
    fn fork(&mut self, parent: i32, child: i32) {
        if !self.is_program(parent) {
            return;
        }
        let parent_task = self.task(parent);
        let (space, call) = (parent_task.space, parent_task.call);
        self.is_dead(child);
        let is_copy = match call {
            Some((Syscall::Clone, args)) => args[0] & CLONE_VM == 0,
            // The flags of this call are not recorded. A C library uses it for threads and to start programs, and both
            // share the space.
            Some((Syscall::Clone3 | Syscall::Vfork, _)) => false,
            // A fork of the C library is a clone too. The call of this one began before the recording.
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
        self.tasks.insert(child, Thread::new(space));
    }

    /// An exec: the thread goes on in a new space. Linux creates the space with one page of stack, moves that page, and
    /// frees its old table.
    fn exec(&mut self, event: &Event, tid: i32) {
        let old = self.task(tid).space;
        let space = self.new_space(Pages::default());
        let task = self.task(tid);
        (task.space, task.has_loaded) = (space, true);
        self.users[space.0 as usize] += 1;
        self.push(event, OpKind::Run { space });
        let cause = Cause::Call(Syscall::Execve);
        let stack = Taken::pages(STACK_PAGE, 1, Stride::Page4K);
        self.revoke(event, space, cause, [stack, Taken { frees_tables: true, ..Taken::ALL }]);
        if self.let_go(event, old, cause) == Left::Nobody {
            self.pages[old.0 as usize].end(&mut self.frames);
        }
    }

    /// A thread ends. Linux 6.18 records this before it begins to take the memory away. So a process that shares pages
    /// with it and writes to them meanwhile may still make copies.
    fn exit(&mut self, event: &Event, tid: i32) {
        self.gone.insert(tid);
        if let Some(task) = self.tasks.remove(&tid)
            && self.let_go(event, task.space, Cause::Call(Syscall::ExitGroup)) == Left::Nobody
        {
            self.pages[task.space.0 as usize].begin_to_end(&mut self.frames);
            self.dying.insert(tid, task.space);
        }
        // No event will say when the thread leaves the CPU.
        if self.people.coverage() == Coverage::SomeProcesses {
            self.push(event, OpKind::Idle);
        }
    }

    /// The thread does not run any more. If it was ending, its memory is gone now.
    fn is_dead(&mut self, tid: i32) {
        if let Some(space) = self.dying.remove(&tid) {
            self.pages[space.0 as usize].end(&mut self.frames);
        }
    }

    /// A thread leaves the space. Returns whether any other thread still uses it.
    fn let_go(&mut self, event: &Event, space: Space, cause: Cause) -> Left {
        let users = &mut self.users[space.0 as usize];
        *users = users.saturating_sub(1);
        if *users > 0 {
            return Left::Somebody;
        }
        self.push(event, OpKind::Retire { space, cause });
        Left::Nobody
    }

    fn fault(&mut self, event: &Event, address: u64, error_code: u32) {
        if !self.is_program(event.tid) || address >= USER_END {
            return;
        }
        let task = self.task(event.tid);
        (task.store, task.copied) = (None, None);
        let (space, page) = (task.space, address >> 12);
        let index = space.0 as usize;
        let (is_present, is_write) = (error_code & 1 != 0, error_code & FAULT_WRITE != 0);
        if !is_present {
            let pages = &mut self.pages[index];
            if is_write {
                pages.first_store(&mut self.frames, page);
            } else {
                pages.first_load(page);
            }
        } else if is_write && self.people.tells_flushes && self.pages[index].is_store_in_doubt(&self.frames, page) {
            self.task(event.tid).store = Some(page);
        } else if is_write && self.pages[index].store(&mut self.frames, page) {
            self.copy(event, space, page);
        }
        let most = &mut self.done.most_pages[index];
        *most = (*most).max(self.pages[index].most());
        self.push(event, OpKind::Touch { page });
    }

    fn enter(&mut self, event: &Event, call: Syscall, args: [u64; 5]) {
        let task = self.task(event.tid);
        (task.call, task.recorded) = (Some((call, args)), Recorded::NOTHING);
        (task.store, task.copied) = (None, None);
        self.push(event, OpKind::Call);
    }

    /// An exec has succeeded. The new space was loaded a moment before, or is taken to be loaded now if the trace did
    /// not show that. From now on the thread has the number of its process.
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
