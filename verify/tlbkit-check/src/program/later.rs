//! More programs with names, for seeds of the later family.

use super::pages::{ALL as EVERY_PAGE, FAR, GIANTS, TOP};
use super::small::{Named, named, shared};
use super::{Access, Content, Op, Program, Rights, own, walk};
use Access::{Read, Write};

/// All of them.
pub(super) const ALL: &[Named] = &[
    named("issue-adopt", "flushes are issued on one CPU and waited for on others, which were interrupted", issue_adopt),
    named("issue-adopt-stopped", "the CPU that issued a flush is stopped while another waits for it", adopt_stopped),
    named("issue-poll", "issued flushes are polled, more of them than a CPU has mailboxes", issue_poll),
    named(
        "kernel-issue",
        "kernel pages are issued, and found gone by a CPU that takes others beside them",
        kernel_issue,
    ),
    named("kernel-issue-race", "CPUs issue kernel pages to each other, wait anywhere or never", kernel_issue_race),
    named("protect-fork-protect", "permissions change, are shared with a child, and change again", protect_fork),
    named("lazy-window", "a kernel mapping is removed under CPUs that left a lazy space for the kernel's", lazy_window),
    named("lazy-twice", "a lazy CPU comes back between two revocations", lazy_twice),
    named("lazy-often", "lazy CPUs come back while page after page is given back", lazy_often),
    named("split-of-a-read-page", "a large page that was only read is split and written", split_of_read),
    named("split-of-a-shared-page", "a large page shared with a child is unmapped in part by both", split_of_shared),
    named("large-page-by-fault", "a fault maps a large page of which the first page is just being given back", head),
    named("two-large-pages", "two whole large pages, and a base page beside them, go in one call", two_large),
    named("ids-that-collide", "spaces whose ids share a hint are switched to while they change", colliding_ids),
    named("all-slots", "more spaces than a CPU has ASIDs, each changed while it is away", all_slots),
    named("far-and-top", "pages 16 TiB apart, and the last ones of the user half, go in one call", far_and_top),
    named("two-giants", "two neighbouring pages of 1 GiB are unmapped by one flush", two_giants),
    named("trees", "page tables of a space and of the kernel are freed by each call that can", own::trees),
    named(
        "kernel-tree",
        "a page table of the kernel goes whose pages CPUs have cached in two spaces",
        own::kernel_tree,
    ),
    named("lazy-trees", "page tables are freed by a batch, a range or a gather while CPUs are lazy", own::lazy_trees),
    named("alone", "a CPU frees page tables and asks nobody, while others are lazy in the space", own::alone),
    named("own-pages", "CPUs flush pages that they alone use", own::own_pages),
    named("flush-range", "a page loses a right by a flush of one range", own::flush_range),
    named("borrow-return", "a space is changed while its CPU uses a foreign one", own::borrow_return),
    named("fork-writers", "two threads write a page while it is shared with a child", own::fork_writers),
    named("fault-around", "pages of a file are mapped around one that another CPU is copying", own::fault_around),
    named("enter-again", "a frame is entered where it is, with fewer rights and with all", own::enter_again),
    named("forgotten-end", "a space ends of which a flush was issued and forgotten", own::forgotten_end),
    named(
        "lazy-kernel-next",
        "a space ends while lazy CPUs leave it for the kernel's tables and go on",
        own::lazy_kernel_next,
    ),
    named("last-holders", "the last CPUs that hold a dead space leave it at the same time", own::last_holders),
    named("lazy-flush", "a lazy CPU flushes what it has loaded just when it must leave that", own::lazy_flush),
    named("walk", "page tables are freed while code that takes no lock reads them", walk::users),
    named("walk-kernel", "the same of the kernel's page tables", walk::of_kernel),
];

fn issue_adopt() -> Program {
    let issuer = [0, 1, 2].map(|page| [Op::Withdraw(page, 1), Op::Touch(page, Write)]).concat();
    let adopter = [Op::Compute(2), Op::Adopt, Op::Touch(0, Read)].repeat(3);
    let other = vec![Op::Withdraw(3, 1), Op::Adopt, Op::DontNeed(3, 1), Op::Idle, Op::Adopt, Op::Run(0), Op::Adopt];
    Program { setup: shared(4, 2), cpus: vec![issuer, adopter, other] }
}

fn adopt_stopped() -> Program {
    let issuer = vec![Op::Withdraw(0, 1), Op::Withdraw(1, 1), Op::Stop(6), Op::Run(0), Op::Withdraw(2, 1)];
    let adopter = vec![Op::Compute(2), Op::Adopt, Op::Adopt, Op::Touch(0, Read), Op::Offline(2), Op::Adopt];
    let user = vec![Op::Touch(0, Read), Op::Compute(4), Op::Touch(1, Write), Op::Adopt];
    Program { setup: shared(3, 2), cpus: vec![issuer, adopter, user] }
}

fn issue_poll() -> Program {
    let issued = (0..6).map(|page| Op::Withdraw(page, 1));
    let issuer = issued.chain([Op::Poll, Op::Compute(2), Op::Poll, Op::Touch(0, Write), Op::Poll, Op::Poll]).collect();
    let adopter = vec![Op::Compute(3), Op::Adopt, Op::Poll, Op::Withdraw(5, 1), Op::Poll, Op::Poll];
    Program { setup: shared(6, 2), cpus: vec![issuer, adopter, vec![Op::Compute(6), Op::Touch(1, Write)]] }
}

/// CPU 2 has used the window in two spaces and in the kernel's own tables.
fn kernel_issue() -> Program {
    let mut setup = vec![(0, Op::KernelMap), (0, Op::Run(0)), (1, Op::Run(1))];
    setup.extend([Op::Run(0), Op::Run(1), Op::KernelTables, Op::Run(0)].map(|op| (2, op)));
    let issuer = vec![Op::KernelWithdraw(0, 1), Op::Compute(2), Op::Settle, Op::KernelMap, Op::KernelWithdraw(1, 1)];
    let finder = vec![Op::KernelTake(0, 2), Op::Compute(2), Op::KernelTake(0, 2), Op::KernelUnmap, Op::KernelMap];
    let user = vec![Op::Compute(4), Op::Run(1), Op::Compute(2), Op::Idle, Op::KernelTables, Op::Run(0), Op::Compute(2)];
    Program { setup, cpus: vec![issuer, finder, user] }
}

/// More is issued than a CPU has mailboxes; CPU 2 forgets what it issued, leaves and comes back.
fn kernel_issue_race() -> Program {
    let maps = [(0, Op::KernelMap), (0, Op::KernelMap), (0, Op::KernelMap)];
    let setup = maps.into_iter().chain((0..4).map(|cpu| (cpu, Op::Run(cpu % 2)))).collect();
    let withdraw = |page| Op::KernelWithdraw(page, 1);
    let issuer = vec![withdraw(0), withdraw(1), Op::Poll, Op::KernelUnmap, withdraw(0), withdraw(1), Op::Settle];
    let finder = vec![Op::KernelTake(1, 1), Op::Adopt, Op::KernelTake(0, 2), Op::KernelUnmap, withdraw(0), Op::Adopt];
    let leaver = vec![withdraw(1), Op::Forget, Op::KernelTake(0, 2), Op::Offline(1), withdraw(0), Op::Run(0)];
    let user = vec![Op::Compute(3), Op::Run(0), Op::Idle, Op::Adopt, Op::KernelTables, Op::Run(1), Op::Compute(3)];
    Program { setup, cpus: vec![issuer, finder, leaver, user] }
}

fn protect_fork() -> Program {
    let owner = vec![
        Op::Protect(0, 2, Rights::Read),
        Op::Fork,
        Op::Protect(0, 2, Rights::ReadWrite),
        Op::Touch(0, Write),
        Op::Protect(0, 1, Rights::None),
    ];
    let thread = vec![Op::Touch(0, Write), Op::Compute(2), Op::Touch(1, Write), Op::Touch(0, Read), Op::Compute(2)];
    let child = vec![Op::Compute(6), Op::Run(2), Op::Touch(0, Read), Op::Protect(0, 2, Rights::ReadWrite)];
    let child = [child, vec![Op::Touch(0, Write), Op::Touch(1, Write), Op::Exit]].concat();
    Program { setup: shared(2, 2), cpus: vec![owner, thread, child] }
}

fn lazy_window() -> Program {
    let mut setup = shared(1, 2);
    setup.push((0, Op::KernelMap));
    let mapper = vec![Op::KernelUnmap, Op::KernelMap, Op::DontNeed(0, 1), Op::KernelUnmap, Op::KernelMap];
    let lazy = vec![Op::Idle, Op::KernelTables, Op::Idle, Op::Run(0), Op::Compute(2), Op::KernelTables, Op::Run(0)];
    let other = vec![Op::KernelTables, Op::Run(1), Op::Idle, Op::KernelTables, Op::Run(0), Op::Compute(3)];
    Program { setup, cpus: vec![mapper, lazy, other] }
}

fn lazy_twice() -> Program {
    let mut setup = shared(2, 1);
    setup.push((1, Op::Idle));
    let changer = vec![Op::DontNeed(0, 1), Op::DontNeed(1, 1), Op::Touch(0, Write)];
    Program { setup, cpus: vec![changer, vec![Op::Run(0), Op::Compute(3), Op::Idle, Op::Run(0), Op::Compute(3)]] }
}

fn lazy_often() -> Program {
    let mut setup = shared(3, 3);
    setup.extend([1, 2, 3].map(|cpu| (cpu, Op::Idle)));
    let changer = (0..3).map(|page| Op::DontNeed(page, 1)).collect();
    let lazy = vec![Op::Run(0), Op::Compute(16)];
    Program { setup, cpus: vec![changer, lazy.clone(), lazy.clone(), lazy] }
}

/// CPUs 0 and 1 have read a large page, which nobody has written.
fn read_large() -> Vec<(u8, Op)> {
    let mut setup = vec![(0, Op::Run(0)), (0, Op::Map(1, Content::Large)), (0, Op::Touch(0, Read))];
    setup.extend([(1, Op::Run(0)), (1, Op::Touch(1, Read))]);
    setup
}

fn split_of_read() -> Program {
    let splitter = vec![Op::Protect(1, 1, Rights::Read), Op::Touch(0, Write), Op::Unmap(0, 1), Op::DontNeed(2, 1)];
    let user = vec![Op::Touch(1, Read), Op::Touch(2, Write), Op::Compute(3), Op::Touch(3, Write), Op::Touch(2, Read)];
    Program { setup: read_large(), cpus: vec![splitter, user] }
}

fn split_of_shared() -> Program {
    let mut setup = read_large();
    setup.extend([(1, Op::Touch(1, Write)), (0, Op::Fork), (2, Op::Run(2)), (2, Op::Touch(1, Read))]);
    let parent = vec![Op::Unmap(0, 1), Op::Touch(1, Write), Op::Touch(2, Read), Op::DontNeed(1, 2)];
    let thread = vec![Op::Touch(1, Read), Op::Touch(2, Write), Op::Compute(3), Op::Touch(1, Write)];
    let child = vec![Op::Touch(2, Write), Op::Unmap(1, 1), Op::Touch(0, Read), Op::Touch(3, Write), Op::Exit];
    Program { setup, cpus: vec![parent, thread, child] }
}

fn head() -> Program {
    let mut setup = vec![(0, Op::Run(0)), (0, Op::Map(1, Content::Large))];
    setup.extend([1, 2].map(|cpu| (cpu, Op::Run(0))));
    let owner = vec![Op::DontNeed(0, 1), Op::DontNeed(0, 1), Op::Touch(0, Write), Op::DontNeed(0, 4)];
    let user = |page| vec![Op::Touch(page, Write), Op::Touch(page, Read), Op::Compute(2), Op::Touch(page, Read)];
    Program { setup, cpus: vec![owner, user(2), user(3)] }
}

fn two_large() -> Program {
    let map = [Op::Run(0), Op::Map(1, Content::Large), Op::Map(1, Content::Large), Op::Map(2, Content::Private)];
    let user = [Op::Touch(0, Write), Op::Touch(4, Read), Op::Touch(6, Write), Op::Touch(8, Write)];
    let mut setup: Vec<_> = map.into_iter().chain(user).map(|op| (0, op)).collect();
    setup.extend([Op::Run(0)].into_iter().chain(user).map(|op| (1, op)));
    let owner = vec![Op::DontNeed(0, 9), Op::Touch(4, Write), Op::Unmap(0, 9), Op::Map(2, Content::Private)];
    Program { setup, cpus: vec![owner, [vec![Op::Compute(6)], user.to_vec(), vec![Op::Compute(6)]].concat()] }
}

/// An ASID is found by a hint on the low bits of the id: the child's are those of its parent.
fn colliding_ids() -> Program {
    let mut setup = shared(2, 1);
    // Ids 1 and 2 are taken: the next space has 33, and the one after it 65.
    setup.extend([(0, Op::PassIds(30)), (0, Op::Fork), (0, Op::PassIds(31)), (0, Op::Fork)]);
    let tour = [2, 0, 3, 0, 2, 3].map(|space| [Op::Run(space), Op::Touch(0, Write), Op::Compute(1)]).concat();
    let changer = vec![Op::DontNeed(0, 1), Op::Run(2), Op::DontNeed(0, 2), Op::Run(3), Op::DontNeed(1, 1), Op::Run(0)];
    Program { setup, cpus: vec![tour, [changer, vec![Op::Touch(0, Read), Op::DontNeed(0, 2)]].concat()] }
}

fn all_slots() -> Program {
    const LAST: u8 = 17;
    let mut setup = shared(1, 1);
    setup.extend((2..=LAST).map(|_| (0, Op::Fork)));
    // CPU 1 has been in every one of them: the first ones have lost their ASIDs again.
    setup.extend((0..=LAST).flat_map(|space| [(1, Op::Run(space)), (1, Op::Touch(0, Read))]));
    let changer = [LAST, 16, 4, 3].map(|space| [Op::Run(space), Op::DontNeed(0, 1), Op::Touch(0, Write)]).concat();
    let tour = [LAST, 3, 16, 2, 4].map(|space| [Op::Run(space), Op::Touch(0, Read), Op::Compute(1)]).concat();
    Program { setup, cpus: vec![changer, tour] }
}

/// The first call spans 2^32 pages and one more.
fn far_and_top() -> Program {
    let pages = [Op::Touch(0, Write), Op::Touch(FAR, Write)];
    let mut setup = vec![(0, Op::Run(0)), (0, Op::Map(EVERY_PAGE, Content::Private)), (1, Op::Run(0))];
    setup.extend([0, 1].into_iter().flat_map(|cpu| pages.map(|op| (cpu, op))));
    let again = [Op::Touch(0, Write), Op::Touch(TOP, Write), Op::Touch(TOP + 1, Write)];
    let owner = [vec![Op::DontNeed(0, EVERY_PAGE)], again.to_vec(), vec![Op::Protect(TOP, 2, Rights::Read)]];
    let owner = [owner.concat(), vec![Op::Unmap(TOP + 1, 1), Op::Touch(FAR, Read), Op::Unmap(0, EVERY_PAGE)]].concat();
    let user = [Op::Compute(4), Op::Touch(FAR, Write), Op::Touch(TOP + 1, Write), Op::Compute(4), Op::Touch(0, Read)];
    Program { setup, cpus: vec![owner, user.to_vec()] }
}

fn two_giants() -> Program {
    let giants = [Op::Touch(GIANTS, Write), Op::Touch(GIANTS + 1, Write)];
    let mut setup = shared(1, 2);
    setup.push((0, Op::GiantMap));
    setup.extend([0, 1].into_iter().flat_map(|cpu| giants.map(|op| (cpu, op))));
    let owner = vec![Op::GiantUnmap, Op::DontNeed(0, 1), Op::GiantMap, Op::Touch(GIANTS, Read), Op::GiantUnmap];
    let user = [vec![Op::Compute(3)], giants.to_vec(), vec![Op::Idle, Op::Run(0), Op::Compute(3)]].concat();
    let other = vec![Op::Touch(GIANTS + 1, Read), Op::Run(1), Op::Run(0), Op::GiantUnmap, Op::Compute(2)];
    Program { setup, cpus: vec![owner, user, other] }
}
