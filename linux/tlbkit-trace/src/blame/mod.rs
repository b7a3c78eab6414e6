//! Says who flushes, why, which memory is meant, and who is interrupted for it.
//!
//! [`Blame`] takes one event after the other. The event of a flush has no address and names no other thread. So the
//! system call or the page fault of its thread says what the flush is for and which memory it means, the stack says who
//! called, and the requests between CPUs say who had to answer. The files are, lowest layer first: `mapping` (what is
//! mapped where), `time` (CPU time), `people` (threads and processes), `why` (purposes), `elf` and `site` (callers),
//! `request` (senders and their handlers), `refault` (pages that come back), `sample` (samples of the CPU's time),
//! `doing` (what a thread is doing).

mod doing;
mod elf;
mod mapping;
mod refault;
mod request;
mod sample;
mod shootdowns;
mod site;
mod time;
mod why;

pub use mapping::Mapping;
pub use sample::{Sampled, Samples};
pub use shootdowns::{Shootdown, Shootdowns};
pub use time::Owner;
pub use why::Why;

use crate::event::{Edge, Event, EventKind, FlushReason, FlushSize, Syscall};
use crate::names::{Code, Name, Names};
use crate::summary::MOST_CPUS;
use doing::{Doings, For, Left, Purpose};
use indexmap::IndexMap;
use mapping::Spaces;
use refault::{GivenBack, Refaults};
use request::Requests;
use rustc_hash::{FxBuildHasher, FxHashMap};
use sample::{Place, Places, Work};
use site::{Site, Sites};
use std::collections::BTreeMap;
use time::{People, Times};

/// The most kinds of flushes that are told apart. All others share one row.
const MAX_ROWS: usize = 1 << 16;
/// The number that stands for the processes of the row that is shared.
const OTHERS: i32 = -2;

/// The flushes of one kind: by one process, for one purpose, of one kind of memory, from one caller.
#[derive(Clone, Debug)]
pub struct BlameRow {
    /// The process that flushed. Its number is -2 in the row of all that have none.
    pub owner: Owner,
    /// What the flushes are for.
    pub why: Why,
    /// Which memory they mean.
    pub mapping: Mapping,
    /// The functions of the program that led to them, innermost first. None if the recording has no stacks.
    pub caller: Option<String>,
    /// How many there were, and what they cost.
    pub counts: Counts,
}

/// Counts and times of the flushes of one kind.
#[derive(Clone, Default, Debug)]
pub struct Counts {
    /// How many system calls that flushed have ended.
    pub calls: u64,
    /// How many pages the ranges of these calls had.
    pub named: u64,
    /// How often the thread itself flushed.
    pub flushes: u64,
    /// How many pages these flushes invalidated one by one.
    pub pages: u64,
    /// How many of them flushed everything.
    pub everything: u64,
    /// How often other CPUs were asked to flush.
    pub asked: u64,
    /// The time from asking to the last answer, in nanoseconds, summed up. 0 if handlers were not recorded.
    pub waited_ns: u64,
    /// The CPU time in the system calls that flushed, or from the faults that led to flushes to the last answers, in
    /// nanoseconds.
    pub called_ns: u64,
    /// How often a page was brought in again that these calls had given back; in a row of absent pages, how many were
    /// brought in that no call is known to have given back.
    pub faults: u64,
    /// Samples of the CPU's time that were taken in these calls and faults.
    pub samples: Samples,
    /// Who was interrupted, by the names of process and thread.
    pub interrupted: BTreeMap<(Name, Name), Interrupted>,
}

/// How often somebody was interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Interrupted {
    /// How many times.
    pub times: u64,
    /// The time in the handler, in nanoseconds, without entry and exit of the interrupt.
    pub took_ns: u64,
}

impl Interrupted {
    /// Adds other interruptions.
    pub fn add(&mut self, other: &Self) {
        self.times += other.times;
        self.took_ns = self.took_ns.saturating_add(other.took_ns);
    }
}

impl Counts {
    /// The sum over all who were interrupted.
    #[must_use]
    pub fn interruptions(&self) -> Interrupted {
        let mut sum = Interrupted::default();
        self.interrupted.values().for_each(|one| sum.add(one));
        sum
    }

    /// What the flushes cost on all CPUs, in nanoseconds: the time of the senders in their calls, or their waiting if
    /// that is longer, and the time of the others in the handlers.
    #[must_use]
    pub fn cost_ns(&self) -> u64 {
        self.called_ns.max(self.waited_ns).saturating_add(self.interruptions().took_ns)
    }

    /// Adds the counts of another row.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.named = self.named.saturating_add(other.named);
        self.flushes += other.flushes;
        self.pages = self.pages.saturating_add(other.pages);
        self.everything += other.everything;
        self.asked += other.asked;
        self.faults += other.faults;
        self.samples.add(&other.samples);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
        self.called_ns = self.called_ns.saturating_add(other.called_ns);
        for (who, interrupted) in &other.interrupted {
            self.interrupted.entry(*who).or_default().add(interrupted);
        }
    }
}

/// For how many flushes of a trace it is known what they were for, and who asked for them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Attribution {
    /// Events of flushes that a thread did for itself or asked others for.
    pub shootdowns: u64,
    /// How many of these have a known purpose.
    pub with_purpose: u64,
    /// How many of these have a known purpose and a known kind of memory, or a purpose of the kernel's own, for which
    /// memory of any kind is flushed.
    pub attributed: u64,
    /// Flushes that a CPU did because another one asked.
    pub answers: u64,
    /// How many of these have a known sender.
    pub with_sender: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    owner: Owner,
    /// True if the caller does not ask about the thread. Its flushes count for the attribution, and are not shown as a
    /// row.
    is_silent: bool,
    why: Why,
    mapping: Mapping,
    site: Option<Site>,
}

/// Who flushes, why, which memory is meant, and who is interrupted. See the [module](self).
#[derive(Default)]
pub struct Blame {
    only_thread: Option<i32>,
    span_ns: Option<(u64, u64)>,
    cpus: u32,
    people: People,
    times: Times,
    spaces: Spaces,
    doings: Doings,
    sites: Sites,
    rows: IndexMap<Key, Counts, FxBuildHasher>,
    requests: Requests<usize>,
    refaults: Refaults,
    places: Places,
    /// All samples of each process.
    sampled: FxHashMap<Owner, Sampled>,
    /// Samples of what has no row, as it did not flush: by process, purpose and memory.
    rowless: FxHashMap<(Owner, Why, Mapping), Samples>,
    /// By process that a fork has made, and that has executed no other program: the row of the fork.
    copies: FxHashMap<i32, usize>,
    /// How many events each process had.
    events: FxHashMap<Owner, u64>,
    /// By CPU: whether it runs a function that another CPU asked for. Empty if the recording has no such events.
    calls: FxHashMap<u32, bool>,
    attribution: Attribution,
    has_flushes: bool,
    /// The allocator of each process that has mapped the library of one.
    allocators: FxHashMap<i32, &'static str>,
}

/// The function by which the kernel reads the program's stack while it records.
const STACK_READER: &str = "__get_user_nocheck_8";

/// Libraries of allocators of memory, by a part of their files' names.
const ALLOCATORS: [&str; 3] = ["libjemalloc", "libtcmalloc", "libmimalloc"];

/// How many pages the range of a system call has; 0 of a call without one.
fn named_pages(call: Syscall, args: &[u64; 5]) -> u64 {
    use Syscall::{Madvise, Mmap, Mprotect, Mremap, Msync, Munmap, PkeyMprotect};
    let has_range = matches!(call, Madvise | Mmap | Mprotect | Mremap | Msync | Munmap | PkeyMprotect);
    if has_range { args[1].div_ceil(4096) } else { 0 }
}

impl Blame {
    /// An account whose rows are only the flushes of the thread `tid`. Its [attribution](Self::attribution) is still
    /// that of the whole trace.
    #[must_use]
    pub fn of_thread(tid: i32) -> Self {
        Self { only_thread: Some(tid), ..Self::default() }
    }

    /// Takes `event`, whose texts and stacks are in `names`, the names of its source. Events must come in order of
    /// time.
    pub fn add(&mut self, event: &Event, names: &Names) {
        // No machine has such a CPU.
        if event.cpu >= MOST_CPUS {
            return;
        }
        let (first, last) = self.span_ns.unwrap_or((event.time_ns, event.time_ns));
        self.span_ns = Some((first.min(event.time_ns), last.max(event.time_ns)));
        if let EventKind::Map { file, .. } = event.kind {
            let file = names.text(file);
            if let Some(allocator) = ALLOCATORS.into_iter().find(|library| file.contains(library)) {
                self.allocators.insert(event.pid, allocator);
            }
            // Events of mappings come from the recorder, and do not say which thread runs.
            if self.doings.is_in_exec(event.tid) {
                self.spaces.told_of_next(event, names);
            } else {
                self.spaces.add_mapping(event, names);
            }
            return;
        }
        self.cpus = self.cpus.max(event.cpu.saturating_add(1));
        let owner = self.people.meet(event);
        // The flush of a switch comes after the switch, and still names the thread before.
        if !matches!(event.kind, EventKind::TlbFlush { reason: FlushReason::TaskSwitch, .. }) {
            self.times.runs(event.cpu, event.tid, owner, event.time_ns);
        }
        if let EventKind::Sample { ip } = event.kind {
            return self.sample(event, owner, ip, names);
        }
        *self.events.entry(owner).or_default() += 1;
        match event.kind {
            EventKind::TlbFlush { reason, size } => self.flush(event, owner, (reason, size), names),
            EventKind::CallQueue { csd, .. } => self.requests.queue(event.cpu, event.tid, csd),
            EventKind::CallRun { edge, csd, .. } => {
                self.calls.insert(event.cpu, edge == Edge::Begin && csd != 0);
                if csd != 0 {
                    self.handle(event, owner, edge, csd);
                }
            }
            EventKind::Switch { next, next_comm, .. } => {
                self.requests.is_over(event.cpu);
                self.times.runs(event.cpu, next, self.people.owner(next, next_comm), event.time_ns);
            }
            _ => self.follow(event, owner, names),
        }
    }

    /// Follows what the event's thread does that may lead to flushes.
    fn follow(&mut self, event: &Event, owner: Owner, names: &Names) {
        let cpu_ns = || self.times.of_thread(event.tid, event.cpu, event.time_ns);
        match event.kind {
            EventKind::Enter { call, args } => {
                self.requests.is_over(event.cpu);
                let cpu_ns = cpu_ns();
                self.doings.enter(event.tid, call, &args, &mut self.spaces, owner.pid, cpu_ns);
                self.spaces.entered(owner.pid, call, &args);
            }
            EventKind::Leave { call, result } => {
                self.requests.is_over(event.cpu);
                let cpu_ns = cpu_ns();
                let Some(mut left) = self.doings.leave(event.tid, call, cpu_ns) else { return };
                if let Some((row, since_ns)) = left.row {
                    let counts = &mut self.rows[row];
                    counts.calls += 1;
                    counts.named = counts.named.saturating_add(named_pages(call, &left.args));
                    counts.called_ns = counts.called_ns.saturating_add(cpu_ns.saturating_sub(since_ns));
                    self.refaults.gave_back(owner.pid, GivenBack { row, mapping: left.mapping, pages: left.pages });
                }
                self.spaces.left(owner.pid, call, &left.args, result);
                if call == Syscall::Mmap {
                    left.mapping = self.spaces.mapping(owner.pid, result as u64);
                }
                self.has_left(event.tid, owner, &left);
            }
            // A recorder that looks at the program's stack, and finds no frame there, is no access of the program.
            EventKind::Fault { ip, .. } if ip.name().is_some_and(|name| names.text(name) == STACK_READER) => {}
            EventKind::Fault { address, error_code, ip, .. } => {
                self.requests.is_over(event.cpu);
                let cpu_ns = cpu_ns();
                let why = Why::of_fault(error_code, self.spaces.faulted(owner.pid, address, error_code));
                let mapping = self.spaces.mapping(owner.pid, address);
                if let Some(gap_ns) = self.doings.fault(event, ip, (why, mapping), cpu_ns) {
                    self.refaults.gap(gap_ns);
                }
                if why == Why::AbsentPage {
                    self.brought_in(event, owner, mapping, ip, names);
                }
            }
            EventKind::Fork { child, .. } => {
                self.doings.begins(child);
                if self.doings.copies_memory(event.tid) {
                    self.spaces.copied(owner.pid, child);
                    self.is_copy(event.tid, owner, child);
                } else {
                    self.spaces.shared(owner.pid, child);
                }
            }
            EventKind::Exec { tid, .. } => {
                self.spaces.replaced(tid);
                self.sites.forget(tid);
                self.copies.remove(&tid);
            }
            EventKind::Exit { tid, .. } => {
                self.times.ends(event.cpu, tid);
                if let Some(left) = self.doings.ends(tid) {
                    self.has_left(tid, owner, &left);
                }
                if tid == owner.pid {
                    self.spaces.ended(tid);
                    self.sites.forget(tid);
                }
            }
            _ => {}
        }
    }

    /// A page was brought in by a fault at `ip`: one that an earlier call gave back, or a new one.
    fn brought_in(&mut self, event: &Event, owner: Owner, mapping: Mapping, ip: Code, names: &Names) {
        let row = self.refaults.take(owner.pid, mapping).unwrap_or_else(|| {
            let site = self.sites.at(owner.pid, ip, self.spaces.get(owner.pid), names);
            self.row_of(event.tid, owner, (Why::AbsentPage, mapping, site))
        });
        self.rows[row].faults += 1;
        self.doings.fault_is_in(event.tid, row);
    }

    /// A process is made by a fork of `owner`: it is taken down for that fork.
    fn is_copy(&mut self, tid: i32, owner: Owner, child: i32) {
        if self.copies.len() >= MAX_ROWS {
            self.copies.clear();
        }
        let row = self.doings.row_of_call(tid);
        let row = row.unwrap_or_else(|| self.row_of(tid, owner, (Why::Fork, Mapping::Whole, None)));
        self.copies.insert(child, row);
    }

    /// A call has ended, and its samples belong to its flush.
    fn has_left(&mut self, tid: i32, owner: Owner, left: &Left) {
        let whose = left.row.map_or(For::Purpose(left.why, left.mapping), |(row, _)| For::Row(row));
        self.count(tid, owner, whose, left.samples);
    }

    /// The CPU's time was sampled at `ip`.
    fn sample(&mut self, event: &Event, owner: Owner, ip: Code, names: &Names) {
        let inner = event.stack.and_then(|stack| names.stack(stack).first()?.name()).unwrap_or(Names::UNKNOWN);
        let place = event.stack.map(|stack| self.places.of(stack, names));
        let sampled = self.sampled.entry(owner).or_default();
        sampled.all += 1;
        let (whose, samples) = match place {
            Some(Place::Recording) => return sampled.recording += 1,
            Some(Place::Kernel { is_unsure, work }) => {
                sampled.or_recording += u64::from(is_unsure);
                let samples = Samples { sure: u64::from(!is_unsure), or_recording: is_unsure.into(), or_program: 0 };
                let whose = match (work, self.copies.get(&owner.pid)) {
                    (Work::Interrupt, _) => For::Unknown,
                    (Work::Teardown, Some(&row)) => For::Row(row),
                    (Work::Teardown, None) => self.doings.sampled(event, None, samples),
                    (Work::Threads(shown), _) => self.doings.sampled(event, shown, samples),
                };
                if matches!(whose, For::Unknown | For::Purpose(Why::OtherCall(_), _)) {
                    *sampled.elsewhere.entry(inner).or_default() += 1;
                }
                (whose, samples)
            }
            None => {
                let whose = self.doings.ends_fault(event, ip);
                sampled.own += u64::from(whose == For::Unknown);
                (whose, Samples { or_program: 1, ..Samples::default() })
            }
        };
        self.count(event.tid, owner, whose, samples);
    }

    /// Counts samples of a thread where they belong.
    fn count(&mut self, tid: i32, owner: Owner, whose: For, samples: Samples) {
        if self.only_thread.is_some_and(|only| only != tid) || samples == Samples::default() {
            return;
        }
        match whose {
            For::Row(row) => self.rows[row].samples.add(&samples),
            For::Purpose(why, mapping) if self.rowless.len() < MAX_ROWS => {
                self.rowless.entry((owner, why, mapping)).or_default().add(&samples);
            }
            For::Purpose(..) | For::Call | For::Unknown => {}
        }
    }

    fn flush(&mut self, event: &Event, owner: Owner, (reason, size): (FlushReason, FlushSize), names: &Names) {
        use FlushReason::{
            LocalMmShootdown, LocalShootdown, RemoteSendIpi, RemoteShootdown, RemoteWrongCpu, TaskSwitch,
        };
        self.has_flushes = true;
        match reason {
            TaskSwitch => return,
            RemoteShootdown | RemoteWrongCpu => {
                // A program that is being started flushes its own new space, and Linux gives this reason although
                // nobody asked.
                let is_answer = self.calls.get(&event.cpu).copied().unwrap_or(self.calls.is_empty());
                self.attribution.answers += u64::from(is_answer);
                self.attribution.with_sender += u64::from(self.requests.running(event.cpu).is_some());
                return;
            }
            LocalShootdown | LocalMmShootdown | RemoteSendIpi => {}
        }
        let cpu_ns = self.times.of_thread(event.tid, event.cpu, event.time_ns);
        let purpose = self.doings.purpose(event, cpu_ns, names);
        let index = self.row(event, owner, purpose, names);
        let place = self.doings.flushed(event.tid, index);
        let counts = &mut self.rows[index];
        counts.called_ns = counts.called_ns.saturating_add(purpose.before_ns);
        if reason == RemoteSendIpi {
            counts.asked += 1;
            self.requests.send(event.cpu, event.tid, index, event.time_ns, place);
            return;
        }
        self.requests.is_counted(event.cpu, event.tid, event.time_ns);
        counts.flushes += 1;
        match size {
            FlushSize::Pages(pages) => counts.pages = counts.pages.saturating_add(pages),
            FlushSize::All => counts.everything += 1,
        }
    }

    /// The index of the row in which a flush is counted.
    fn row(&mut self, event: &Event, owner: Owner, purpose: Purpose, names: &Names) -> usize {
        let Purpose { why, mapping, .. } = purpose;
        let attribution = &mut self.attribution;
        attribution.shootdowns += 1;
        attribution.with_purpose += u64::from(why != Why::Unknown);
        let is_known = mapping != Mapping::Unknown || why.is_the_kernels();
        attribution.attributed += u64::from(why != Why::Unknown && is_known);
        let space = self.spaces.get(owner.pid);
        let site = event.stack.and_then(|stack| self.sites.of(owner.pid, stack, space, names));
        self.row_of(event.tid, owner, (why, mapping, site))
    }

    fn row_of(&mut self, tid: i32, owner: Owner, (why, mapping, site): (Why, Mapping, Option<Site>)) -> usize {
        let is_silent = self.only_thread.is_some_and(|only| only != tid);
        let mut key = Key { owner, is_silent, why, mapping, site };
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&key) {
            let owner = Owner { pid: OTHERS, program: Names::UNKNOWN };
            key = Key { owner, is_silent, why: Why::Unknown, mapping: Mapping::Unknown, site: None };
        }
        let entry = self.rows.entry(key);
        let index = entry.index();
        entry.or_default();
        index
    }

    /// A function that another CPU asked for begins or ends.
    fn handle(&mut self, event: &Event, owner: Owner, edge: Edge, csd: u64) {
        let who = (owner.program, event.comm);
        match edge {
            Edge::Begin => {
                if let Some(row) = self.requests.begin(event.cpu, csd, event.time_ns) {
                    self.rows[row].interrupted.entry(who).or_default().times += 1;
                }
            }
            Edge::End => {
                if let Some(answered) = self.requests.end(event.cpu, event.time_ns) {
                    let counts = &mut self.rows[answered.of];
                    counts.waited_ns = counts.waited_ns.saturating_add(answered.waited_ns);
                    counts.called_ns = counts.called_ns.saturating_add(answered.uncounted_ns);
                    let took_ns = &mut counts.interrupted.entry(who).or_default().took_ns;
                    *took_ns = took_ns.saturating_add(answered.took_ns);
                }
            }
        }
    }

    /// All rows, those that [cost](Counts::cost_ns) most first. One without flushes and faults is of samples alone.
    /// Names of functions are looked up in the files of this machine.
    #[must_use]
    pub fn rows(&self) -> Vec<BlameRow> {
        let row = |(key, counts): (&Key, &Counts)| BlameRow {
            owner: key.owner,
            why: key.why,
            mapping: key.mapping,
            caller: key.site.map(|site| self.sites.text(site).to_owned()),
            counts: counts.clone(),
        };
        let mut rows: Vec<_> = self.rows.iter().filter(|(key, _)| !key.is_silent).map(row).collect();
        let by_purpose: FxHashMap<_, _> =
            rows.iter().enumerate().map(|(at, row)| ((row.owner, row.why, row.mapping), at)).collect();
        for (key @ &(owner, why, mapping), samples) in &self.rowless {
            if let Some(&at) = by_purpose.get(key) {
                rows[at].counts.samples.add(samples);
                continue;
            }
            let counts = Counts { samples: *samples, ..Counts::default() };
            rows.push(BlameRow { owner, why, mapping, caller: None, counts });
        }
        rows.sort_by_key(|row| (std::cmp::Reverse((row.counts.cost_ns(), row.counts.flushes)), row.owner));
        rows
    }

    /// All samples of each process and program; none if the recording has no samples.
    #[must_use]
    pub fn sampled(&self) -> &FxHashMap<Owner, Sampled> {
        &self.sampled
    }

    /// The CPU time of each process and program, in nanoseconds, without idle time.
    #[must_use]
    pub fn cpu_ns(&self) -> FxHashMap<Owner, u64> {
        self.times.owners(self.span_ns.map_or(0, |(_, last)| last))
    }

    /// How many events each process and program had.
    #[must_use]
    pub fn events(&self) -> &FxHashMap<Owner, u64> {
        &self.events
    }

    /// The CPU time from one page fault of a thread to its next, in nanoseconds, in the tenth of all cases in which it
    /// was shortest: then the program does little between them, and this is what a fault takes while it is recorded.
    /// None if there were too few.
    #[must_use]
    pub fn fault_ns(&self) -> Option<u64> {
        self.refaults.shortest_ns()
    }

    /// The time from the first event to the last, in nanoseconds.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.span_ns.map_or(0, |(first, last)| last - first)
    }

    /// One more than the highest number of a CPU that recorded an event.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// For how many flushes it is known what they were for, and who asked for them.
    #[must_use]
    pub fn attribution(&self) -> Attribution {
        self.attribution
    }

    /// The library of an allocator that a process has mapped: what it gives back no caller may tell, as such libraries
    /// have no frame pointers.
    #[must_use]
    pub fn allocator(&self, pid: i32) -> Option<&'static str> {
        self.allocators.get(&pid).copied()
    }

    /// Whether the trace has any event of a flush, also one of a switch of tasks.
    #[must_use]
    pub fn has_flushes(&self) -> bool {
        self.has_flushes
    }
}
