//! Finds out which thread belongs to which process, and which threads are the kernel's own.
//!
//! A switch names the thread that comes and not its process. No event says that a thread has no user memory. And an
//! exec loads its new space before the trace says that it has succeeded. So all events are read once before anything is
//! deduced of them. A thread is taken to run a program if it ever had a fault in user mode or made a system call, if
//! such a thread forked it, or if the kernel loaded a space when it switched to the thread.

use crate::op::Party;
use rustc_hash::{FxHashMap, FxHashSet};
use tlbkit_trace::{Event, EventKind, FaultMode, FlushReason, Name, Names};

/// A process of the trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Number of the process.
    pub pid: i32,
    /// The last name of its main thread.
    pub comm: Name,
    /// Whether it runs a program. False for the kernel's own threads.
    pub is_program: bool,
}

/// Whose events a trace has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Coverage {
    /// The events of all threads on the recorded CPUs.
    #[default]
    Everybody,
    /// The events of some processes only. What other threads ran on their CPUs is not recorded.
    SomeProcesses,
}

/// If more than one in this number of switches to a thread is followed by an event of another thread, the trace has the
/// events of some processes only. Fewer such cases come of lost events.
const FOLLOWED: u64 = 20;

/// What the events of the whole trace tell of threads and processes.
#[derive(Default)]
pub(crate) struct People {
    process: FxHashMap<i32, i32>,
    /// The last name of the main thread of each process. Until its exec a child has the name of its parent.
    names: FxHashMap<i32, Name>,
    programs: FxHashSet<i32>,
    /// The threads whose execs loaded new spaces, with the times of that in nanoseconds.
    execs: FxHashSet<(i32, u64)>,
    /// When each thread last loaded a space without a switch of threads, in nanoseconds.
    loaded: FxHashMap<i32, u64>,
    /// Whether the caller asks about each thread.
    parties: FxHashMap<i32, Party>,
    /// Whether the caller asks about threads of which only switches were recorded.
    strangers: Option<Party>,
    /// The thread that each CPU has just switched to; 0 if its last event was no switch.
    coming: Vec<i32>,
    /// For how many switches the next event of the CPU was looked at, and how often that event was of another thread.
    followed: (u64, u64),
    /// One more than the highest number of a CPU that recorded an event.
    pub(super) cpus: u32,
    /// Whether the kernel's flushes were recorded.
    pub(super) tells_flushes: bool,
    /// Whether it was recorded when each of the CPUs that were asked began to answer.
    pub(super) tells_answers: bool,
}

impl People {
    /// Learns from `event`. Must get all events before anything is deduced of them.
    pub(crate) fn meet(&mut self, event: &Event) {
        self.cpus = self.cpus.max(event.cpu + 1);
        if event.pid > 0 {
            self.process.entry(event.tid).or_insert(event.pid);
        }
        if event.tid == event.pid && event.comm != Names::UNKNOWN {
            self.names.insert(event.pid, event.comm);
        }
        self.coming.resize(self.cpus as usize, 0);
        let came = std::mem::take(&mut self.coming[event.cpu as usize]);
        self.follow(event, came);
        self.tells_flushes |= matches!(event.kind, EventKind::TlbFlush { .. });
        self.tells_answers |= matches!(event.kind, EventKind::CallRun { csd: 1.., .. });
        match event.kind {
            EventKind::Switch { next, .. } => self.coming[event.cpu as usize] = next,
            EventKind::TlbFlush { reason: FlushReason::TaskSwitch, .. } if came != 0 => {
                self.programs.insert(came);
            }
            // A space was loaded without a switch of threads. The last time before the end of an exec, the exec did it.
            EventKind::TlbFlush { reason: FlushReason::TaskSwitch, .. } => {
                self.loaded.insert(event.tid, event.time_ns);
            }
            EventKind::Fault { mode: FaultMode::User, .. } | EventKind::Enter { .. } | EventKind::Leave { .. } => {
                self.programs.insert(event.tid);
            }
            EventKind::Exec { tid, old_tid, .. } => {
                self.programs.insert(tid);
                self.execs.extend(self.loaded.get(&old_tid).map(|&time_ns| (old_tid, time_ns)));
            }
            EventKind::Fork { parent, child, .. } if self.programs.contains(&parent) => {
                self.programs.insert(child);
            }
            _ => {}
        }
    }

    /// Counts whether the next event of a CPU after a switch to the thread `came` is of that thread. It is if all
    /// threads were recorded. Switches to the idle thread are not counted, because perf leaves out most of its events.
    fn follow(&mut self, event: &Event, came: i32) {
        // Events of these kinds name the thread that ran before, or no thread that runs.
        let tells =
            !matches!(event.kind, EventKind::TlbFlush { reason: FlushReason::TaskSwitch, .. } | EventKind::Map { .. });
        if came != 0 && tells {
            self.followed.0 += 1;
            self.followed.1 += u64::from(event.tid != came);
        }
    }

    /// Whose events the trace has.
    pub(super) fn coverage(&self) -> Coverage {
        let (all, others) = self.followed;
        if others * FOLLOWED > all { Coverage::SomeProcesses } else { Coverage::Everybody }
    }

    /// Learns which threads the caller asks about. `is_asked` gets the number of a process, its name and the number of
    /// a thread.
    pub(crate) fn ask(&mut self, is_asked: impl Fn(i32, Name, i32) -> bool) {
        let party = |pid, comm, tid| if is_asked(pid, comm, tid) { Party::Asked } else { Party::Other };
        let of = |&tid: &i32| (tid, party(self.process_of(tid), self.name_of(tid, Names::UNKNOWN), tid));
        self.parties = self.process.keys().map(of).collect();
        self.strangers = Some(party(0, Names::UNKNOWN, 0));
    }

    /// Whether the caller asks about the thread `tid`.
    pub(super) fn party(&self, tid: i32) -> Party {
        self.parties.get(&tid).copied().or(self.strangers).unwrap_or(Party::Asked)
    }

    /// All processes, in order of their numbers.
    pub(super) fn processes(&self) -> Vec<Process> {
        let programs: FxHashSet<i32> = self.programs.iter().map(|&tid| self.process_of(tid)).collect();
        let process = |(&pid, &comm)| Process { pid, comm, is_program: programs.contains(&pid) };
        let mut processes: Vec<_> = self.names.iter().map(process).collect();
        processes.sort_unstable_by_key(|process| process.pid);
        processes
    }

    /// Whether an exec of the thread loaded its new space at this time.
    pub(super) fn execs_at(&self, tid: i32, time_ns: u64) -> bool {
        self.execs.contains(&(tid, time_ns))
    }

    /// Whether the thread runs a program, and is none of the kernel's own.
    pub(super) fn is_program(&self, tid: i32) -> bool {
        tid != 0 && self.programs.contains(&tid)
    }

    /// The name of the thread's process, or `own`, the thread's own name, if that is not known.
    pub(super) fn name_of(&self, tid: i32, own: Name) -> Name {
        self.names.get(&self.process_of(tid)).copied().unwrap_or(own)
    }

    /// The number of the thread's process, or of the thread if that is not known.
    pub(super) fn process_of(&self, tid: i32) -> i32 {
        self.process.get(&tid).copied().unwrap_or(tid)
    }
}
