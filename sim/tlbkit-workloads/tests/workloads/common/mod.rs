//! A kernel of std threads and hash maps: enough to run any workload, to write down what it asked for, and to lose
//! flushes on purpose.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use tlbkit_arch::SplitMix64;
use tlbkit_workloads::os::{Backing, Channel, Protection, TaskId};
use tlbkit_workloads::pattern::{PAGE_BYTES, file_pattern};
use tlbkit_workloads::{Os, Part, Task, Workload};

/// The flush that the kernel forgets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loses {
    Nothing,
    /// Pages given back still show what they held.
    Dontneed,
    /// A new mapping at a used address still shows the old one.
    Unmap,
    /// Parent and child go on writing the same pages.
    Fork,
}

/// One call of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Map(u64),
    Unmap(u64, u64),
    Protect(u64, u64, Protection),
    Dontneed(u64, u64),
    Read(u64),
    Write(u64),
    Fork,
    Thread,
    Exec,
    Join,
    Pin(u32),
    Wait(u32),
    Post(u32),
    Compute(u64),
    ReadFile(u32, u64),
    Count(u64),
}

struct Region {
    base: u64,
    file: u32,
    backing: Backing,
    protection: Protection,
}

/// One address space; pages are keyed by page number.
#[derive(Default)]
struct Space {
    regions: HashMap<u64, Region>,
    words: HashMap<u64, u64>,
    unused: HashMap<u64, Vec<u64>>,
    next: u64,
}

/// What all tasks of a run share.
struct World {
    loses: Loses,
    cpus: u32,
    over_after: u64,
    asked: AtomicU64,
    score: AtomicU64,
    channels: Mutex<HashMap<u32, u64>>,
    posted: Condvar,
    joins: Mutex<(u32, HashMap<u32, JoinHandle<()>>)>,
    wrong: Mutex<Vec<(u64, u64, u64)>>,
    logs: Mutex<HashMap<u32, Vec<Op>>>,
}

/// What came out of a run.
pub(crate) struct Outcome {
    pub(crate) score: u64,
    pub(crate) wrong: Vec<(u64, u64, u64)>,
    /// The calls of each task by role; of several tasks with one role, one after the other.
    pub(crate) logs: HashMap<u32, Vec<Op>>,
}

struct Fake {
    task: Task,
    world: Arc<World>,
    space: RefCell<Arc<Mutex<Space>>>,
    log: RefCell<Vec<Op>>,
    random: RefCell<SplitMix64>,
}

/// Runs `workload` to its end; the run is over after `over_after` questions whether it is.
pub(crate) fn run(workload: Workload, cpus: u32, over_after: u64, loses: Loses) -> Outcome {
    run_from(workload.first_task(), cpus, over_after, loses)
}

/// The same from any task of a workload on: the one that should have started it is not there.
pub(crate) fn run_from(task: Task, cpus: u32, over_after: u64, loses: Loses) -> Outcome {
    let world = World::new(cpus, over_after, loses);
    run_task(world.clone(), Arc::default(), task);
    assert!(world.joins.lock().unwrap().1.is_empty(), "a task was not joined");
    Outcome {
        score: world.score.load(Ordering::SeqCst),
        wrong: std::mem::take(&mut world.wrong.lock().unwrap()),
        logs: std::mem::take(&mut world.logs.lock().unwrap()),
    }
}

impl World {
    fn new(cpus: u32, over_after: u64, loses: Loses) -> Arc<Self> {
        Arc::new(Self {
            loses,
            cpus,
            over_after,
            asked: AtomicU64::new(0),
            score: AtomicU64::new(0),
            channels: Mutex::default(),
            posted: Condvar::new(),
            joins: Mutex::default(),
            wrong: Mutex::default(),
            logs: Mutex::default(),
        })
    }
}

fn run_task(world: Arc<World>, space: Arc<Mutex<Space>>, task: Task) {
    let random = SplitMix64::new(u64::from(task.part.role));
    let fake = Fake { task, world, space: RefCell::new(space), log: RefCell::default(), random: RefCell::new(random) };
    task.run(&fake);
    let log = fake.log.into_inner();
    fake.world.logs.lock().unwrap().entry(task.part.role).or_default().extend(log);
}

impl Fake {
    fn note(&self, op: Op) {
        self.log.borrow_mut().push(op);
    }

    fn in_space<T>(&self, work: impl FnOnce(&mut Space) -> T) -> T {
        work(&mut self.space.borrow().lock().unwrap())
    }

    fn start(&self, space: Arc<Mutex<Space>>, part: Part) -> TaskId {
        let (world, child) = (self.world.clone(), self.task.starts(part));
        let handle = std::thread::spawn(move || run_task(world, space, child));
        let mut joins = self.world.joins.lock().unwrap();
        joins.0 += 1;
        let id = joins.0;
        joins.1.insert(id, handle);
        TaskId(id)
    }
}

impl Space {
    /// A used address of the same size comes first, as in a kernel that fills the lowest hole.
    fn place(&mut self, pages: u64) -> u64 {
        if let Some(base) = self.unused.get_mut(&pages).and_then(Vec::pop) {
            return base;
        }
        let base = 0x1000 + self.next;
        self.next += pages + 1;
        base
    }

    fn load(&self, page: u64) -> Option<u64> {
        let region = self.regions.get(&page).filter(|region| region.protection != Protection::None)?;
        let fresh = match region.backing {
            Backing::AnonPrivate | Backing::AnonShared => 0,
            Backing::FilePrivate | Backing::FileShared => file_pattern(region.file, page - region.base),
        };
        Some(*self.words.get(&page).unwrap_or(&fresh))
    }

    fn copy(&self) -> Self {
        let region = |r: &Region| Region { base: r.base, file: r.file, backing: r.backing, protection: r.protection };
        Self {
            regions: self.regions.iter().map(|(page, r)| (*page, region(r))).collect(),
            words: self.words.clone(),
            unused: self.unused.clone(),
            next: self.next,
        }
    }
}

impl Os for Fake {
    fn map_file(&self, file: u32, pages: u64, backing: Backing, protection: Protection) -> u64 {
        assert!(pages > 0, "an empty mapping");
        self.note(Op::Map(pages));
        self.in_space(|space| {
            let base = space.place(pages);
            for page in base..base + pages {
                space.regions.insert(page, Region { base, file, backing, protection });
            }
            base * PAGE_BYTES
        })
    }

    fn unmap(&self, va: u64, pages: u64) {
        self.note(Op::Unmap(va, pages));
        self.in_space(|space| {
            let base = va / PAGE_BYTES;
            for page in base..base + pages {
                assert!(space.regions.remove(&page).is_some(), "unmapped twice: {va:#x}");
                if self.world.loses != Loses::Unmap {
                    space.words.remove(&page);
                }
            }
            space.unused.entry(pages).or_default().push(base);
        });
    }

    fn protect(&self, va: u64, pages: u64, protection: Protection) {
        self.note(Op::Protect(va, pages, protection));
        self.in_space(|space| {
            for page in va / PAGE_BYTES..va / PAGE_BYTES + pages {
                space.regions.get_mut(&page).expect("protect of a hole").protection = protection;
            }
        });
    }

    fn dontneed(&self, va: u64, pages: u64) {
        self.note(Op::Dontneed(va, pages));
        if self.world.loses == Loses::Dontneed {
            return;
        }
        self.in_space(|space| {
            for page in va / PAGE_BYTES..va / PAGE_BYTES + pages {
                let region = space.regions.get(&page).expect("dontneed of a hole");
                // What was stored in a file is still there.
                if region.backing != Backing::FileShared {
                    space.words.remove(&page);
                }
            }
        });
    }

    fn read(&self, va: u64) -> u64 {
        self.note(Op::Read(va));
        self.in_space(|space| space.load(va / PAGE_BYTES)).expect("a read of a hole")
    }

    fn write(&self, va: u64, value: u64) {
        self.note(Op::Write(va));
        self.in_space(|space| {
            let region = space.regions.get(&(va / PAGE_BYTES)).expect("a write to a hole");
            assert_eq!(region.protection, Protection::ReadWrite, "a write to {va:#x}");
            space.words.insert(va / PAGE_BYTES, value);
        });
    }

    fn chase(&self, va: u64) -> u64 {
        self.read(va)
    }

    fn fork(&self, part: Part) -> TaskId {
        self.note(Op::Fork);
        let mine = self.space.borrow().clone();
        let copy =
            if self.world.loses == Loses::Fork { mine } else { Arc::new(Mutex::new(mine.lock().unwrap().copy())) };
        self.start(copy, part)
    }

    fn thread(&self, part: Part) -> TaskId {
        self.note(Op::Thread);
        let mine = self.space.borrow().clone();
        self.start(mine, part)
    }

    fn exec(&self) {
        self.note(Op::Exec);
        *self.space.borrow_mut() = Arc::default();
    }

    fn join(&self, task: TaskId) {
        self.note(Op::Join);
        let handle = self.world.joins.lock().unwrap().1.remove(&task.0).expect("joined twice");
        handle.join().expect("a task panicked");
    }

    fn pin(&self, cpu: u32) {
        self.note(Op::Pin(cpu));
    }

    fn wait(&self, channel: Channel) {
        self.note(Op::Wait(channel.0));
        let channels = self.world.channels.lock().unwrap();
        let is_empty = |channels: &mut HashMap<u32, u64>| channels.get(&channel.0).copied().unwrap_or(0) == 0;
        let timeout = std::time::Duration::from_secs(300);
        let (mut channels, result) = self.world.posted.wait_timeout_while(channels, timeout, is_empty).unwrap();
        assert!(!result.timed_out(), "nobody posts {channel:?}");
        *channels.get_mut(&channel.0).unwrap() -= 1;
    }

    fn post(&self, channel: Channel) {
        self.note(Op::Post(channel.0));
        *self.world.channels.lock().unwrap().entry(channel.0).or_default() += 1;
        self.world.posted.notify_all();
    }

    fn yield_now(&self) {
        std::thread::yield_now();
    }

    fn compute(&self, cycles: u64) {
        self.note(Op::Compute(cycles));
        std::thread::yield_now();
    }

    fn read_file(&self, file: u32, pages: u64) {
        self.note(Op::ReadFile(file, pages));
    }

    fn count(&self, units: u64) {
        self.note(Op::Count(units));
        self.world.score.fetch_add(units, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.world.asked.fetch_add(1, Ordering::SeqCst) >= self.world.over_after
    }

    fn random(&self) -> u64 {
        self.random.borrow_mut().bits() >> 8
    }

    fn cpus(&self) -> u32 {
        self.world.cpus
    }

    fn wrong_value(&self, va: u64, found: u64, expected: u64) {
        self.world.wrong.lock().unwrap().push((va, found, expected));
    }
}
