//! Who is who: which thread belongs to which process, and which threads are the kernel's own.
//!
//! A switch names the thread that comes, not its process; nothing says that a thread has no user memory; and the space
//! of an exec is changed before the trace says that the exec succeeded. So all events are met before anything is
//! deduced of them. A thread that ever faulted in user mode, called, was forked by one that did, or whose coming made
//! the kernel load a space, is a program's.

use crate::op::Party;
use rustc_hash::{FxHashMap, FxHashSet};
use tlbkit_trace::abi::PROT_EXEC;
use tlbkit_trace::{Event, EventKind, FaultMode, FlushReason, Name, Names};

/// A process of the trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// What its main thread was called last.
    pub comm: Name,
    /// The file of its program, as the exec named it; none if that was before the trace.
    pub file: Option<Name>,
    /// Files whose code it has mapped, where the recorder tells.
    pub code: Vec<Name>,
    /// False for the kernel's own threads.
    pub is_program: bool,
}

/// Whose events a trace has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Coverage {
    /// Everybody's.
    #[default]
    Everybody,
    /// Those of some processes alone: who else ran on their CPUs is not in it.
    SomeAlone,
}

/// Of so many switches to a thread one may be followed by another thread's event, as where events are lost.
const FOLLOWED: u64 = 20;

/// What the events of the whole trace tell.
#[derive(Default)]
pub(crate) struct People {
    process: FxHashMap<i32, i32>,
    /// What each process's main thread was called last: a child is called as its parent until its exec.
    names: FxHashMap<i32, Name>,
    programs: FxHashSet<i32>,
    /// The file of the program that each thread runs, of those that began in the trace.
    files: FxHashMap<i32, Name>,
    /// Files whose code each process has mapped since its exec.
    code: FxHashMap<i32, Vec<Name>>,
    /// When execs loaded their new spaces, by thread and time.
    execs: FxHashSet<(i32, u64)>,
    /// When each thread loaded a space without being switched to, last.
    loaded: FxHashMap<i32, u64>,
    /// Whether the reader asks about each thread.
    parties: FxHashMap<i32, Party>,
    /// The same of threads of which nothing was recorded but switches.
    strangers: Option<Party>,
    /// The thread that each CPU has just turned to.
    coming: Vec<i32>,
    /// After how many switches the next event of the CPU was looked at, and how often it was another thread's.
    followed: (u64, u64),
    /// CPUs that recorded anything.
    pub(super) cpus: u32,
    /// The kernel's own flushes were recorded.
    pub(super) tells_flushes: bool,
}

impl People {
    /// Learns from an event, of which nothing has been deduced yet.
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
        match event.kind {
            EventKind::Switch { next, .. } => self.coming[event.cpu as usize] = next,
            EventKind::TlbFlush { reason: FlushReason::TaskSwitch, .. } if came != 0 => {
                self.programs.insert(came);
            }
            // A space was loaded without a switch of threads: the last time before its end this was the exec's.
            EventKind::TlbFlush { reason: FlushReason::TaskSwitch, .. } => {
                self.loaded.insert(event.tid, event.time_ns);
            }
            EventKind::Fault { mode: FaultMode::User, .. } | EventKind::Enter { .. } | EventKind::Leave { .. } => {
                self.programs.insert(event.tid);
            }
            EventKind::Exec { tid, old_tid, path } => {
                self.programs.insert(tid);
                self.files.insert(tid, path);
                self.code.remove(&event.pid);
                self.execs.extend(self.loaded.get(&old_tid).map(|&time_ns| (old_tid, time_ns)));
            }
            EventKind::Map { protection, file, .. } if u64::from(protection) & PROT_EXEC != 0 => {
                let code = self.code.entry(event.pid).or_default();
                if !code.contains(&file) {
                    code.push(file);
                }
            }
            EventKind::Fork { parent, child, .. } => {
                if self.programs.contains(&parent) {
                    self.programs.insert(child);
                }
                if let Some(&file) = self.files.get(&self.process_of(parent)) {
                    self.files.insert(child, file);
                }
            }
            _ => {}
        }
    }

    /// After the switch to a thread the next event of the CPU is that thread's, if everybody was recorded. The idle
    /// thread tells nothing: perf leaves out most of its events.
    fn follow(&mut self, event: &Event, came: i32) {
        // These carry the thread before, or nobody in particular.
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
        if others * FOLLOWED > all { Coverage::SomeAlone } else { Coverage::Everybody }
    }

    /// Learns whom the reader asks about, by process, its name, and thread.
    pub(crate) fn ask(&mut self, is_asked: impl Fn(i32, Name, i32) -> bool) {
        let party = |pid, comm, tid| if is_asked(pid, comm, tid) { Party::Asked } else { Party::Other };
        let of = |&tid: &i32| (tid, party(self.process_of(tid), self.name_of(tid, Names::UNKNOWN), tid));
        self.parties = self.process.keys().map(of).collect();
        self.strangers = Some(party(0, Names::UNKNOWN, 0));
    }

    /// Whether the reader asks about a thread.
    pub(super) fn party(&self, tid: i32) -> Party {
        self.parties.get(&tid).copied().or(self.strangers).unwrap_or(Party::Asked)
    }

    /// Every process, in order of its number.
    pub(super) fn processes(&self) -> Vec<Process> {
        let programs: FxHashSet<i32> = self.programs.iter().map(|&tid| self.process_of(tid)).collect();
        let process = |(&pid, &comm)| {
            let code = self.code.get(&pid).cloned().unwrap_or_default();
            Process { pid, comm, file: self.files.get(&pid).copied(), code, is_program: programs.contains(&pid) }
        };
        let mut processes: Vec<_> = self.names.iter().map(process).collect();
        processes.sort_unstable_by_key(|process| process.pid);
        processes
    }

    /// True if the thread's exec loaded its new space at this time.
    pub(super) fn execs_at(&self, tid: i32, time_ns: u64) -> bool {
        self.execs.contains(&(tid, time_ns))
    }

    /// True if the thread runs a program.
    pub(super) fn is_program(&self, tid: i32) -> bool {
        tid != 0 && self.programs.contains(&tid)
    }

    /// What the thread's process is called; `own`, the thread's name, if nothing says.
    pub(super) fn name_of(&self, tid: i32, own: Name) -> Name {
        self.names.get(&self.process_of(tid)).copied().unwrap_or(own)
    }

    /// The process of a thread; itself if nothing says otherwise.
    pub(super) fn process_of(&self, tid: i32) -> i32 {
        self.process.get(&tid).copied().unwrap_or(tid)
    }
}
