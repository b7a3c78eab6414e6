//! Programs whose kernel reclaims clean pages of a file, and flushes when their frames are used again.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use tlbkit::PAGE_BYTES;
use tlbkit_pmap::{CleanEviction, Frame, Memory};

use super::small::{Named, named};
use super::{Access, Content, Op, Program, Rights};
use crate::machine::issued::IssuedFlush;
use crate::machine::world::World;
use Access::{Read, Write};

/// All of them.
pub(super) const ALL: &[Named] = &[
    named(
        "reclaim",
        "pages of a file are reclaimed under their readers, come back in new frames and are copied",
        users,
    ),
    named(
        "reclaim-1-page",
        "a page is reclaimed under its reader and its frame used again, for all schedules",
        one_page,
    ),
    named("reclaim-write", "a page is written by one thread after it was reclaimed, while another one reads it", write),
    named("reclaim-write-1-page", "the same, small enough for all schedules", write_one),
    named(
        "reclaim-fault",
        "pages are read, reclaimed and copied by three CPUs, on which they were not mapped before",
        fault,
    ),
    named("reclaim-switch", "pages are reclaimed while CPUs come, go and idle", switch),
    named("reclaim-spaces", "pages that a parent and its child map are reclaimed from both", spaces),
    named("reclaim-two", "two CPUs reclaim, and each needs the frames that the other took", two),
    named("reclaim-fold", "one flush serves two batches, between which a reader has passed", fold),
    named("reclaim-fold-1-page", "the same of a page each, small enough for all schedules", fold_one),
    named(
        "reclaim-fold-spaces",
        "one flush serves two batches, of which one alone has taken from a child",
        fold_spaces,
    ),
    named("reclaim-passed", "a page is reclaimed that its readers have passed when its frame is needed", passed),
    named("reclaim-calls", "reclaimed pages are unmapped, protected and given back, and found gone", calls),
    named("reclaim-end", "a space ends whose pages were reclaimed, and its frames are used again", end),
    named("reclaim-hotplug", "a CPU that could read what was reclaimed goes offline, or is stopped", hotplug),
];

impl Program {
    /// The random program of `seed` with a kernel that reclaims.
    #[must_use]
    pub fn random_reclaiming(seed: u64) -> Self {
        let mut program = Self::random_later(seed);
        let setup = program.setup.iter_mut().map(|(_, op)| op);
        for op in setup.chain(program.cpus.iter_mut().flatten()) {
            match *op {
                Op::Evict(page, count) | Op::Withdraw(page, count) => *op = Op::Reclaim(page, count),
                Op::Map(count, Content::Private | Content::Shared) => *op = Op::Map(count, Content::File),
                Op::Forget | Op::Poll => *op = Op::Settle,
                _ => {}
            }
        }
        program
    }
}

/// Frames on the way to the free list, which the one who took them can still count.
#[derive(Clone, Default)]
pub(crate) struct Held(Rc<RefCell<Vec<Frame>>>);

impl Extend<Frame> for Held {
    fn extend<I: IntoIterator<Item = Frame>>(&mut self, frames: I) {
        self.0.borrow_mut().extend(frames);
    }
}

impl IntoIterator for Held {
    type Item = Frame;
    type IntoIter = std::vec::IntoIter<Frame>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.take().into_iter()
    }
}

impl Held {
    pub(crate) fn put_all(self, mem: &impl Memory) {
        self.into_iter().for_each(|frame| mem.put(frame));
    }
}

impl World<'_> {
    /// Reclaims the pages in `range` of every space that is alive, as far as they are clean pages of the file.
    pub(super) fn reclaim_pages(&self, cpu: usize, range: &Range<u64>) {
        let spaces: Vec<usize> = (0..self.spaces.len()).filter(|&space| self.kernel.is_alive(space)).collect();
        spaces.iter().for_each(|&space| self.kernel.hold(space));
        // What it takes out itself is all that it promises, when it is flushed. What pages hold does not change.
        self.machine.borrow_mut().begin("reclaim", None, 0..0);
        let held = Held::default();
        let deferred = self.with_cpu(cpu, |handle| {
            let mut eviction = CleanEviction::new(held.clone());
            let pages = (range.end - range.start) / PAGE_BYTES;
            for &space in &spaces {
                let _taken = eviction.take(&handle, &self.bus(), self.vm(space), range.start, pages);
            }
            // Nobody else holds these: the page cache drops them.
            let taken = |at| held.0.borrow().iter().filter(|frame| frame.at == at).count();
            let dropped = self.machine.borrow_mut().memory.drop_cached(taken);
            dropped.into_iter().for_each(|at| eviction.hold(Frame { at, shift: 12 }));
            eviction.defer(&handle, self.periods)
        });
        spaces.iter().for_each(|&space| self.kernel.unhold(space));
        self.leave_outstanding(cpu, IssuedFlush::Reclaimed(Box::new(deferred)));
    }
}

/// Each of `cpus` CPUs runs a space with four pages of the file, and has read the first `pages`.
fn readers(cpus: u8, pages: u8) -> Vec<(u8, Op)> {
    let enter = (0..cpus).map(|cpu| (cpu, Op::Run(0)));
    let read = (0..cpus).flat_map(|cpu| (0..pages).map(move |page| (cpu, Op::Touch(page, Read))));
    enter.chain([(0, Op::Map(4, Content::File))]).chain(read).collect()
}

fn users() -> Program {
    let owner = [Op::Reclaim(0, 2), Op::Touch(0, Read), Op::Settle, Op::Touch(1, Write), Op::Reclaim(0, 2), Op::Settle];
    let user = [Op::Touch(0, Read), Op::Compute(4), Op::Touch(1, Read), Op::Touch(2, Write), Op::Compute(3)].repeat(2);
    let writer = vec![Op::Compute(2), Op::Touch(0, Write), Op::Touch(3, Read), Op::Compute(4), Op::Touch(0, Read)];
    Program { setup: readers(3, 3), cpus: vec![owner.to_vec(), user, writer] }
}

fn one_page() -> Program {
    let owner = vec![Op::Reclaim(0, 1), Op::Settle];
    Program { setup: readers(2, 1), cpus: vec![owner, vec![Op::Compute(2), Op::Touch(0, Read), Op::Compute(1)]] }
}

fn write() -> Program {
    let owner = [Op::Reclaim(0, 2), Op::Touch(0, Write), Op::Touch(1, Read), Op::Settle, Op::Compute(2)].to_vec();
    let user = [Op::Touch(0, Read), Op::Touch(1, Read), Op::Compute(2)].repeat(3);
    let writer = vec![Op::Touch(1, Write), Op::Compute(2), Op::Touch(1, Write), Op::Touch(0, Read)];
    Program { setup: readers(3, 2), cpus: vec![owner, user, writer] }
}

fn write_one() -> Program {
    let owner = vec![Op::Reclaim(0, 1), Op::Touch(0, Write)];
    Program { setup: readers(2, 1), cpus: vec![owner, vec![Op::Touch(0, Read), Op::Touch(0, Read)]] }
}

/// The reader goes on until the writer has its copy, before the taker needs the frames.
fn fault() -> Program {
    let writer = vec![Op::Touch(0, Write), Op::Touch(1, Write)];
    let reader = [Op::Touch(0, Read), Op::Touch(1, Read), Op::Compute(8)].repeat(4);
    let taker = vec![Op::Touch(0, Read), Op::Touch(1, Read), Op::Reclaim(0, 2), Op::Compute(40)];
    Program { setup: readers(3, 0), cpus: vec![writer, reader, taker] }
}

fn switch() -> Program {
    let owner = vec![Op::Reclaim(0, 1), Op::Compute(2), Op::Settle, Op::Reclaim(1, 1), Op::Touch(0, Write), Op::Settle];
    let switcher = vec![Op::Run(1), Op::Run(0), Op::Touch(1, Read), Op::Run(1), Op::Run(0), Op::Compute(3)];
    let lazy = vec![Op::Idle, Op::KernelMap, Op::Run(0), Op::Compute(3), Op::KernelTables, Op::Run(0), Op::Compute(2)];
    Program { setup: readers(3, 2), cpus: vec![owner, switcher, lazy] }
}

fn spaces() -> Program {
    let parent = vec![Op::Fork, Op::Reclaim(0, 2), Op::Touch(0, Write), Op::Settle, Op::Reclaim(0, 2), Op::Settle];
    let child = vec![Op::Compute(3), Op::Run(2), Op::Touch(0, Read), Op::Touch(1, Write), Op::Compute(3), Op::Run(0)];
    let thread = vec![Op::Touch(1, Read), Op::Compute(3), Op::Run(2), Op::Touch(0, Read), Op::Compute(3)];
    Program { setup: readers(3, 2), cpus: vec![parent, child, thread] }
}

fn two() -> Program {
    let owner =
        |page| vec![Op::Reclaim(page, 1), Op::Adopt, Op::Touch(page, Read), Op::Reclaim(page, 1), Op::Compute(2)];
    let other = [Op::Touch(0, Read), Op::Compute(2), Op::Adopt, Op::Touch(1, Read), Op::Compute(2)].repeat(2);
    Program { setup: readers(3, 2), cpus: vec![owner(0), owner(1), other] }
}

fn fold() -> Program {
    let owner = vec![Op::Reclaim(0, 1), Op::Compute(2), Op::Reclaim(1, 1), Op::Settle, Op::Touch(0, Read)];
    let user = [Op::Touch(1, Read), Op::Compute(2), Op::Touch(0, Read), Op::Compute(2)].repeat(2);
    let switcher = vec![Op::Touch(1, Read), Op::Run(1), Op::Run(0), Op::Touch(1, Read), Op::Compute(2)];
    Program { setup: readers(3, 2), cpus: vec![owner, user, switcher] }
}

fn fold_one() -> Program {
    let owner = vec![Op::Reclaim(0, 1), Op::Reclaim(1, 1), Op::Settle];
    Program { setup: readers(2, 2), cpus: vec![owner, vec![Op::Compute(1), Op::Touch(1, Read)]] }
}

/// Page 0 is mapped in space 0 alone, page 1 in its child too.
fn fold_spaces() -> Program {
    let enter = (0..3).map(|cpu| (cpu, Op::Run(0)));
    let map = [(0, Op::Map(4, Content::File)), (0, Op::Touch(1, Read)), (0, Op::Fork)];
    let child = [1, 2].into_iter().flat_map(|cpu| [(cpu, Op::Run(2)), (cpu, Op::Touch(1, Read))]);
    let setup = enter.chain(map).chain(child).chain([(0, Op::Touch(0, Read))]).collect();
    let owner = vec![Op::Reclaim(0, 1), Op::Reclaim(1, 1), Op::Settle];
    let writer = vec![Op::Compute(2), Op::Touch(1, Write), Op::Touch(1, Write)];
    Program { setup, cpus: vec![owner, writer, [Op::Touch(1, Read)].repeat(4)] }
}

/// CPU 2 finds the page gone when its flush is over, and only by what CPU 1 has done.
fn passed() -> Program {
    let owner = vec![Op::Reclaim(0, 1), Op::Compute(2), Op::Settle];
    let finder = vec![Op::Compute(3), Op::DontNeed(0, 1), Op::Touch(0, Write), Op::Compute(1)];
    Program { setup: readers(3, 1), cpus: vec![owner, vec![Op::Touch(0, Read), Op::Compute(2)], finder] }
}

/// Space 2 is a child, whose CPUs stay below what it takes to move.
pub(super) fn both() -> Program {
    let mut setup = readers(3, 2);
    setup.extend([(0, Op::Fork), (2, Op::Run(2)), (2, Op::Touch(0, Read)), (2, Op::Touch(1, Read)), (0, Op::Share)]);
    let owner = [Op::Reclaim(0, 2), Op::Compute(2), Op::Settle, Op::Touch(0, Read), Op::Touch(1, Write)].repeat(2);
    let user = [Op::Touch(0, Read), Op::Compute(2), Op::Touch(1, Read), Op::Compute(2)].repeat(2);
    let child = [Op::Compute(2), Op::Touch(0, Read), Op::Run(0), Op::Touch(1, Read), Op::Run(2)].repeat(2);
    Program { setup, cpus: vec![owner, user, child] }
}

pub(super) fn both_one() -> Program {
    let mut setup = readers(3, 1);
    setup.extend([(0, Op::Fork), (2, Op::Run(2)), (2, Op::Touch(0, Read)), (0, Op::Share)]);
    let owner = vec![Op::Reclaim(0, 1), Op::Compute(1), Op::Settle];
    let reader = vec![Op::Touch(0, Read), Op::Touch(0, Read), Op::Touch(0, Read)];
    Program { setup, cpus: vec![owner, reader, vec![Op::Compute(1), Op::Touch(0, Read)]] }
}

pub(super) fn moving() -> Program {
    let owner = vec![Op::Reclaim(0, 1), Op::Compute(3), Op::Reclaim(1, 1), Op::Settle, Op::Touch(0, Write), Op::Settle];
    let mover = vec![Op::Touch(0, Read), Op::Share, Op::Touch(0, Read), Op::Compute(2), Op::Touch(1, Write)];
    let switcher = vec![Op::Run(1), Op::Run(0), Op::Touch(0, Read), Op::Touch(1, Read), Op::Run(1), Op::Run(0)];
    Program { setup: readers(3, 2), cpus: vec![owner, mover, switcher] }
}

fn calls() -> Program {
    let owner =
        vec![Op::Reclaim(0, 3), Op::Compute(3), Op::Settle, Op::Touch(0, Read), Op::Reclaim(0, 1), Op::Compute(3)];
    let caller = vec![Op::Protect(0, 1, Rights::None), Op::DontNeed(1, 1), Op::Unmap(2, 1), Op::Compute(2)];
    let again = vec![Op::Protect(0, 1, Rights::ReadWrite), Op::Touch(0, Write), Op::Map(1, Content::Private)];
    let user = [Op::Touch(1, Read), Op::Compute(3), Op::Touch(2, Read), Op::Touch(0, Read), Op::Compute(3)].repeat(2);
    Program { setup: readers(3, 3), cpus: vec![owner, [caller, again].concat(), user] }
}

fn end() -> Program {
    let owner = vec![Op::Reclaim(0, 2), Op::Idle, Op::Compute(3), Op::Settle, Op::Run(1), Op::Map(2, Content::File)];
    let last = vec![Op::Compute(2), Op::Exit, Op::Run(1), Op::Map(1, Content::Private), Op::Touch(0, Write)];
    let lazy = vec![Op::Idle, Op::Compute(2), Op::Adopt, Op::Run(1), Op::Touch(0, Read), Op::Compute(2)];
    Program { setup: readers(3, 2), cpus: vec![owner, last, lazy] }
}

fn hotplug() -> Program {
    let owner = vec![Op::Reclaim(0, 1), Op::Compute(2), Op::Settle, Op::Reclaim(1, 1), Op::Settle, Op::Touch(0, Read)];
    let leaver = vec![Op::Compute(2), Op::Offline(3), Op::Run(0), Op::Compute(3)];
    let stopped = vec![Op::Compute(2), Op::Stop(4), Op::Run(0), Op::Touch(1, Read), Op::Compute(3)];
    Program { setup: readers(3, 2), cpus: vec![owner, leaver, stopped] }
}
