//! Programs with names: the shapes in which kernels have gone wrong.

pub use super::small::Named;
use super::small::{named, shared};
use super::{
    Access, Content, Op, Program, Rights, accessed, broadcast, directories, early, guest, later, reclaim, retire, small,
};
use Access::{Read, Write};

impl Named {
    /// The program called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        all().find(|named| named.name == name)
    }
}

/// All that have a name: those for random schedules, then those small enough for every schedule.
pub fn all() -> impl Iterator<Item = &'static Named> {
    let of_directories = DIRECTORIES.iter().chain(DIRECTORIES_RETIRE);
    let all = ALL.iter().chain(LATER).chain(GUEST).chain(SMALL).chain(BROADCAST).chain(RETIRE).chain(of_directories);
    all.chain(EARLY).chain(ACCESSED).chain(RECLAIM).chain(BROADCAST_OTHERS)
}

/// The program of this number on a machine with INVLPGB: every second one is about that.
pub(crate) fn broadcast_in_turn(number: u64) -> &'static Named {
    let index = (number / 2) as usize;
    if number.is_multiple_of(2) {
        return &BROADCAST[index % BROADCAST.len()];
    }
    let others = || ALL.iter().chain(LATER).chain(GUEST);
    others().nth(index % others().count()).expect("fewer than there are")
}

/// The named programs that seeds of the later family run in turn. They are a list of their own, so that each seed of
/// the first family keeps its program.
pub const LATER: &[Named] = later::ALL;

/// Those that seeds of the guests' family run in turn.
pub const GUEST: &[Named] = guest::ALL;

/// Those about INVLPGB, which seeds of the family with INVLPGB run in turn with the others.
pub const BROADCAST: &[Named] = broadcast::ALL;

/// Those about what is retired, which seeds of that family run in turn.
pub const RETIRE: &[Named] = retire::ALL;

/// Those in which each CPU has its own upper page tables, which seeds of that family run in turn.
pub const DIRECTORIES: &[Named] = directories::ALL;

/// Those in which what is unmapped below such tables is retired, which seeds of that family run in turn.
pub const DIRECTORIES_RETIRE: &[Named] = directories::RETIRING;

/// Those about early acknowledgement, which seeds of that family run in turn with those of all others.
pub const EARLY: &[Named] = early::ALL;

/// Those whose kernel goes by accessed bits, which seeds of that family run in turn.
pub const ACCESSED: &[Named] = accessed::ALL;

/// Those whose kernel reclaims pages of a file, which seeds of that family run in turn.
pub const RECLAIM: &[Named] = reclaim::ALL;

/// Those that reclaim, or have directories, on a machine with INVLPGB, which seeds of that family run in turn.
pub const BROADCAST_OTHERS: &[Named] = broadcast::OTHERS;

/// More of them, small enough for all schedules.
pub const SMALL: &[Named] = small::ALL;

/// The named programs that seeds of the first family run in turn.
pub const ALL: &[Named] = &[
    named("unmap-3-pages", "one CPU unmaps three pages that three others use", unmap_3_pages),
    named("unmap-1-page", "the same for one page and two CPUs, small enough for all schedules", small::unmap),
    named("protect", "write permission is taken from a page that others write", protect),
    named("fork", "pages are shared with a child and copied when written", fork),
    named("two-senders", "two CPUs flush at once, and each is the other's target", two_senders),
    named("lazy-exit", "a lazy CPU comes back while its space is changed", lazy_exit),
    named("lazy-tables", "page tables are freed while a lazy CPU still has them loaded", lazy_tables),
    named("switch-race", "a CPU switches to a space while it is changed", switch_race),
    named("slot-reuse", "more spaces than PCIDs, with changes in between", slot_reuse),
    named("destroy", "a space ends while a lazy CPU still has it loaded", destroy),
    named("ends", "two spaces end while other CPUs leave them, or are just leaving them", ends),
    named("partial-after-full", "flushes of pages and of everything overtake each other", partial_after_full),
    named("kernel-window", "a kernel mapping is removed that all CPUs use", kernel_window),
    named("window-return", "a kernel mapping is removed, then a CPU returns to another ASID", window_return),
    named("hotplug", "a CPU goes offline and comes back while pages are unmapped", hotplug),
    named("stopped", "a CPU is stopped by force while it is waited for", stopped),
    named("gone", "a CPU is stopped by force while it is waited for, and never comes back", gone),
    named("dontneed-race", "two CPUs give back the same pages at once", dontneed_race),
    named("large-page", "a 2 MiB page is split under its readers", large_page),
    named("mixed-sizes", "a 2 MiB page and base pages beside it are given back by one call", mixed_sizes),
    named("late-dirty", "a clean page is written while its entry is changed", late_dirty),
    named("empty-tables", "page tables without entries are freed beside one with some", empty_tables),
    named("borrow", "the kernel uses a foreign space that is being changed", borrow),
    named("evict", "pages of several spaces are taken at once, while others find them gone", evict),
    named("evict-race", "a page is taken by a batch while another CPU gives it back", evict_race),
    named("evict-join", "a page is taken by a batch while CPUs join its space", evict_join),
    named("issue", "more flushes are issued than a CPU has mailboxes, and waited for later or never", issue),
    named("issue-race", "CPUs that have issued flushes to each other wait, while pages are found gone", issue_race),
    named("isolation-knob", "the way of flushing user halves changes at run time", isolation_knob),
];

const REMAP: [Op; 3] = [Op::Unmap(0, 1), Op::Map(1, Content::Private), Op::Touch(0, Write)];

fn unmap_3_pages() -> Program {
    let user = vec![Op::Compute(6), Op::Touch(0, Read), Op::Touch(2, Write), Op::Idle, Op::Run(0), Op::Compute(6)];
    let unmapper = vec![Op::Touch(1, Write), Op::Unmap(0, 3), Op::Map(3, Content::Private), Op::Touch(0, Write)];
    Program { setup: shared(3, 3), cpus: vec![unmapper, user.clone(), user.clone(), user] }
}

fn protect() -> Program {
    let user = vec![Op::Touch(0, Write), Op::Compute(4), Op::Touch(0, Write), Op::Compute(4)];
    let owner = vec![Op::Protect(0, 2, Rights::Read), Op::Protect(0, 2, Rights::ReadWrite), Op::Touch(0, Write)];
    Program { setup: shared(2, 2), cpus: vec![owner, user.clone(), user] }
}

fn fork() -> Program {
    let thread = vec![Op::Touch(0, Write), Op::Compute(4), Op::Touch(1, Write), Op::Compute(4)];
    let child =
        vec![Op::Run(2), Op::Touch(0, Read), Op::Touch(0, Write), Op::Idle, Op::Run(2), Op::Touch(1, Write), Op::Exit];
    Program { setup: shared(2, 1), cpus: vec![vec![Op::Fork, Op::Touch(0, Write), Op::Touch(1, Read)], thread, child] }
}

fn two_senders() -> Program {
    let sender = |page| vec![Op::Unmap(page, 1), Op::Touch(1 - page, Read), Op::DontNeed(2, 1), Op::Compute(3)];
    Program { setup: shared(3, 2), cpus: vec![sender(0), sender(1), vec![Op::Compute(8), Op::Touch(0, Read)]] }
}

fn lazy_exit() -> Program {
    let lazy = [Op::Idle, Op::KernelMap, Op::Run(0), Op::Compute(1)].repeat(6);
    let changer = [Op::Protect(0, 1, Rights::Read), Op::Protect(0, 1, Rights::ReadWrite), Op::Touch(0, Write)];
    Program { setup: shared(1, 2), cpus: vec![changer.repeat(4), lazy.clone(), lazy] }
}

fn lazy_tables() -> Program {
    let lazy = vec![Op::Idle, Op::KernelMap, Op::KernelUnmap, Op::Run(0), Op::Compute(3)];
    Program { setup: shared(1, 2), cpus: vec![[REMAP, REMAP].concat(), lazy.clone(), lazy] }
}

fn switch_race() -> Program {
    let switcher = vec![Op::Run(1), Op::Run(0), Op::Compute(3), Op::Run(1), Op::Run(0), Op::Compute(3)];
    let changer = vec![Op::DontNeed(0, 1), Op::Touch(0, Write), Op::DontNeed(0, 2)];
    Program { setup: shared(2, 2), cpus: vec![changer, switcher.clone(), switcher] }
}

fn slot_reuse() -> Program {
    let mut tour = vec![Op::Fork, Op::Fork, Op::Fork, Op::Fork];
    for space in [2, 3, 1, 4, 5, 0, 2, 0] {
        tour.extend([Op::Run(space), Op::Touch(0, Write), Op::Touch(1, Read)]);
    }
    let changer = vec![Op::DontNeed(0, 2), Op::Touch(0, Write), Op::Run(2), Op::Touch(0, Read), Op::DontNeed(0, 1)];
    Program { setup: shared(2, 1), cpus: vec![tour, changer] }
}

fn destroy() -> Program {
    let lazy = vec![Op::Idle, Op::Compute(1), Op::Run(1), Op::Map(1, Content::Private), Op::Touch(0, Write), Op::Idle];
    let last = vec![Op::Touch(0, Write), Op::Exit, Op::Run(1), Op::Exit, Op::KernelTables];
    Program { setup: shared(2, 2), cpus: vec![last.clone(), lazy, last] }
}

/// CPUs 0 and 1 end a space each, at about the same time; CPUs 2 and 3 hold one of them and then the other.
fn ends() -> Program {
    let setup = vec![(0, Op::Run(0)), (1, Op::Run(1)), (2, Op::Run(0)), (2, Op::Idle), (3, Op::Run(1)), (3, Op::Idle)];
    let first = vec![Op::Fork, Op::Exit, Op::Run(2)];
    let second = vec![Op::Exit, Op::Run(2), Op::Exit];
    let leaver = vec![Op::Run(2), Op::Idle, Op::KernelTables, Op::Run(2), Op::Idle];
    let wanderer = vec![Op::Run(0), Op::Idle, Op::Run(2), Op::Idle, Op::Offline(1)];
    Program { setup, cpus: vec![first, second, leaver, wanderer] }
}

fn partial_after_full() -> Program {
    let pages = vec![Op::DontNeed(0, 1), Op::Touch(0, Write), Op::DontNeed(0, 1)];
    let everything = vec![Op::Ceiling(1), Op::DontNeed(1, 3), Op::Touch(1, Write), Op::Protect(1, 2, Rights::Read)];
    let user = vec![Op::Compute(6), Op::Touch(1, Read), Op::Compute(6)];
    Program { setup: shared(4, 3), cpus: vec![pages, everything, user.clone(), user] }
}

fn kernel_window() -> Program {
    let mapper = vec![Op::KernelMap, Op::Touch(0, Read), Op::KernelUnmap, Op::KernelMap, Op::KernelUnmap];
    let user = vec![Op::Run(0), Op::Compute(3), Op::Run(1), Op::Compute(3), Op::Idle, Op::Run(0), Op::Compute(2)];
    Program { setup: shared(1, 2), cpus: vec![mapper.clone(), user, mapper] }
}

/// CPU 1 has used the window in two spaces, and comes back to the one that it had left when the window went.
fn window_return() -> Program {
    let mut setup = vec![(0, Op::Run(0)), (0, Op::KernelMap)];
    setup.extend([0, 1, 0].into_iter().flat_map(|space| [(1, Op::Run(space)), (1, Op::Compute(2))]));
    let user = vec![Op::Compute(2), Op::Run(1), Op::Compute(3)];
    Program { setup, cpus: vec![vec![Op::KernelUnmap, Op::KernelMap], user] }
}

fn hotplug() -> Program {
    let leaver = vec![Op::Offline(8), Op::Run(0), Op::Compute(3), Op::Offline(1), Op::Run(0), Op::Compute(3)];
    let changer = vec![Op::DontNeed(0, 2), Op::KernelMap, Op::KernelUnmap, Op::Touch(0, Write), Op::Unmap(0, 2)];
    Program { setup: shared(2, 2), cpus: vec![changer, leaver.clone(), leaver] }
}

fn stopped() -> Program {
    let victim = vec![Op::Compute(2), Op::Stop(12), Op::Run(0), Op::Compute(3), Op::Stop(3), Op::Run(0)];
    let changer = vec![Op::DontNeed(0, 2), Op::KernelMap, Op::KernelUnmap, Op::Touch(0, Write), Op::Unmap(0, 2)];
    Program { setup: shared(2, 2), cpus: vec![changer, victim.clone(), victim] }
}

fn gone() -> Program {
    let changer = vec![Op::DontNeed(0, 2), Op::KernelMap, Op::KernelUnmap, Op::Touch(0, Write), Op::Unmap(0, 2)];
    let other = vec![Op::Compute(4), Op::Touch(1, Read), Op::Idle, Op::Run(0), Op::Touch(0, Read)];
    Program { setup: shared(2, 2), cpus: vec![changer, vec![Op::Compute(3), Op::Die(12)], other] }
}

fn dontneed_race() -> Program {
    let racer = vec![Op::DontNeed(0, 3), Op::Compute(2), Op::Touch(0, Write), Op::DontNeed(0, 1)];
    Program { setup: shared(3, 2), cpus: vec![racer.clone(), racer, vec![Op::Compute(10), Op::Touch(0, Read)]] }
}

fn large_page() -> Program {
    let mut setup = vec![(0, Op::Run(0)), (0, Op::Map(1, Content::Large)), (0, Op::Touch(0, Write))];
    setup.extend([(1, Op::Run(0)), (1, Op::Touch(1, Read))]);
    let splitter = vec![Op::Protect(1, 1, Rights::Read), Op::Unmap(0, 1), Op::DontNeed(2, 1), Op::Unmap(0, 4)];
    Program { setup, cpus: vec![splitter, vec![Op::Touch(1, Write), Op::Compute(4), Op::Touch(2, Write)]] }
}

fn mixed_sizes() -> Program {
    let user = [Op::Touch(0, Read), Op::Touch(4, Write), Op::Touch(5, Write)];
    let map = [Op::Run(0), Op::Map(1, Content::Large), Op::Map(2, Content::Private)];
    let mut setup: Vec<_> = map.into_iter().chain(user).map(|op| (0, op)).collect();
    setup.extend([Op::Run(0)].into_iter().chain(user).map(|op| (1, op)));
    let owner = vec![Op::DontNeed(0, 6), Op::Touch(5, Write), Op::Unmap(0, 6)];
    Program { setup, cpus: vec![owner, [vec![Op::Compute(6)], user.to_vec(), vec![Op::Compute(6)]].concat()] }
}

fn late_dirty() -> Program {
    let reads = [Op::Touch(0, Read), Op::Touch(1, Read)];
    let mut setup = vec![(0, Op::Run(0)), (0, Op::Map(2, Content::Shared)), (1, Op::Run(0))];
    setup.extend([0, 1].into_iter().flat_map(|cpu| reads.map(|op| (cpu, op))));
    let owner = vec![Op::Protect(0, 1, Rights::Read), Op::Protect(1, 1, Rights::None), Op::Fork];
    Program { setup, cpus: vec![owner, vec![Op::Touch(0, Write), Op::Touch(1, Write)]] }
}

fn empty_tables() -> Program {
    let mut setup = shared(6, 0);
    setup.extend([(0, Op::DontNeed(4, 2)), (1, Op::Run(0)), (1, Op::Touch(0, Read))]);
    let user = vec![Op::Touch(0, Read), Op::Compute(6), Op::Touch(1, Read), Op::Compute(6)];
    Program { setup, cpus: vec![vec![Op::DontNeed(1, 3), Op::Unmap(0, 6), Op::Map(1, Content::Private)], user] }
}

fn borrow() -> Program {
    let borrower = vec![Op::Run(1), Op::Borrow(0), Op::Idle, Op::Borrow(0), Op::Run(0), Op::Compute(3)];
    let changer = vec![Op::DontNeed(0, 2), Op::Touch(0, Write), Op::Unmap(0, 2)];
    Program { setup: shared(2, 2), cpus: vec![changer, borrower.clone(), borrower] }
}

fn evict() -> Program {
    let mut setup = shared(2, 3);
    setup.extend([
        (3, Op::Run(1)),
        (3, Op::Map(2, Content::Private)),
        (3, Op::Touch(0, Write)),
        (3, Op::Touch(1, Read)),
    ]);
    let evictor = vec![Op::Evict(0, 2), Op::Touch(0, Write), Op::FlushHere(0, 2), Op::Evict(0, 1), Op::Compute(2)];
    let finder = vec![Op::DontNeed(0, 1), Op::Touch(1, Write), Op::Unmap(0, 2), Op::Compute(2)];
    let lazy = vec![Op::Compute(2), Op::Idle, Op::Run(0), Op::Touch(0, Read), Op::Run(1), Op::Compute(3)];
    let other = vec![Op::Compute(3), Op::Touch(0, Read), Op::Protect(0, 1, Rights::Read), Op::Run(0), Op::Compute(2)];
    Program { setup, cpus: vec![evictor, finder, lazy, other] }
}

fn evict_race() -> Program {
    let evictor = [Op::Evict(0, 1), Op::Touch(0, Write)].repeat(3);
    let finder = [Op::DontNeed(0, 1), Op::Touch(0, Read)].repeat(3);
    let user = [Op::FlushHere(1, 1), Op::Compute(2)].repeat(5);
    Program { setup: shared(1, 2), cpus: vec![evictor, finder, user] }
}

fn evict_join() -> Program {
    let joiner = vec![Op::Run(0), Op::Compute(2)];
    let evictor = vec![Op::Evict(0, 1), Op::Touch(0, Write), Op::Evict(0, 1)];
    Program { setup: shared(1, 0), cpus: vec![evictor, joiner.clone(), joiner.clone(), joiner] }
}

/// CPU 0 issues one flush a page and fills its mailboxes; CPU 1 drops what it issued, and others use the pages.
fn issue() -> Program {
    let pages = |first: u8, last: u8| (first..=last).map(|page| Op::Withdraw(page, 1));
    let mut issuer: Vec<_> = pages(0, 2).chain([Op::Settle, Op::Touch(0, Write)]).chain(pages(0, 3)).collect();
    issuer.extend([Op::Settle; 3].into_iter().chain([Op::Run(1), Op::Settle, Op::Run(0)]).chain(pages(2, 3)));
    let dropper = vec![Op::Withdraw(3, 1), Op::Forget, Op::Compute(2), Op::Withdraw(0, 2), Op::DontNeed(3, 1)];
    let user = vec![Op::Compute(3), Op::Touch(1, Write), Op::Idle, Op::Run(0), Op::Compute(3), Op::Touch(0, Read)];
    let leaver = vec![Op::Touch(2, Read), Op::Compute(2), Op::Offline(2), Op::Run(0), Op::Compute(2)];
    Program { setup: shared(4, 3), cpus: vec![issuer, dropper, user, leaver] }
}

/// What is issued is waited for in the order of issue, by two CPUs, each the other's responder.
fn issue_race() -> Program {
    let issuer = |page| {
        let again = [Op::Touch(page, Write), Op::Withdraw(page, 1), Op::Compute(1), Op::Withdraw(1 - page, 1)];
        [again.to_vec(), vec![Op::Settle, Op::DontNeed(page, 1)], again.to_vec()].concat()
    };
    let finder = [Op::DontNeed(0, 2), Op::Touch(0, Write), Op::Touch(1, Read)].repeat(2);
    Program { setup: shared(2, 2), cpus: vec![issuer(0), issuer(1), finder] }
}

fn isolation_knob() -> Program {
    let user = vec![Op::Compute(3), Op::Run(1), Op::Run(0), Op::Compute(3), Op::Touch(0, Read)];
    let changer =
        vec![Op::DontNeed(0, 1), Op::DeferUserFlush, Op::DontNeed(1, 1), Op::Touch(0, Write), Op::Unmap(0, 2)];
    Program { setup: shared(2, 2), cpus: vec![changer, user.clone(), user] }
}
