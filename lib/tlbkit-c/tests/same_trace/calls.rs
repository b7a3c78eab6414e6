//! The calls that are compared, and the order in which they come.

use tlbkit::{LazyReferences, Policy, Reason};

/// One of the two languages.
pub(crate) trait Side {
    /// Makes `step`, and says what it returned, as a number.
    fn make(&self, step: &Step) -> u64;
}

/// A call, and the CPU that makes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub(crate) cpu: u32,
    pub(crate) call: Call,
}

/// Translations of one size from a place on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) va: u64,
    pub(crate) pages: u32,
    /// As the header has it, which knows one more than Rust.
    pub(crate) stride: u32,
}

/// What is or-ed to a stride.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flag {
    None,
    TablesFreed,
    Everything,
}

/// What is put into a gather.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Range(Range),
    Unmap(Range),
    /// With so many pages that nobody has named.
    Table(u64, u64),
    Hold,
    TablesFreed,
    Everything,
}

/// What becomes of a gather.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Finish,
    /// Issued, and waited for.
    Issue,
    /// Issued, polled, and waited for.
    Poll,
    /// On the CPUs that have hooked a table, each a bit; on any, if that is not known.
    #[cfg(feature = "directories")]
    Within(Option<u32>),
}

/// What is put into a batch, of which space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Item {
    Revoke(usize),
    Unmap(usize),
    Table(usize),
    Hold,
}

/// A call. Spaces are numbered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    FlushRange(usize, Range, Flag, Reason),
    FlushRangeAlone(usize, Range, Flag),
    FlushKernelRange(Range, Flag, Reason),
    FlushThisCpu(Range),
    FlushKernelThisCpu(Range),
    FlushLoadedThisCpu,
    FlushAllThisCpu,
    /// Of a space, or of the kernel.
    Gather(Option<usize>, u32, Reason, Vec<Part>, End),
    Batch(Vec<Item>, Reason),
    /// What a batch owes is asked for before it ends.
    Drain(usize),
    /// Each batch is deferred, after which this CPU passes; all are folded into the first, and flushed.
    #[cfg(feature = "reuse")]
    Reuse(Vec<(Vec<Item>, u32)>, Reason),
    /// Each CPU has another top-level table from here on.
    #[cfg(feature = "directories")]
    ReloadRoots(usize),
    /// This CPU has.
    #[cfg(feature = "directories")]
    ReloadRootHere(usize),
    BringUp,
    Offline,
    Stopped(u32),
    Switch(usize),
    EnterLazy,
    LoadKernel,
    EnterKernel,
    ExitToUser,
    Answer,
    IsRunning(usize),
    Loaded,
    Missing,
    SetCeiling(u32),
    /// INVPCID, or else the next CR3 write.
    SetUserFlush(u32),
    Id(usize),
    Generation(usize),
    Destroy(usize),
    DestroyLater(usize),
}

impl Call {
    pub(crate) const fn wants_irqs_off(&self) -> bool {
        use Call::{Answer, BringUp, EnterKernel, EnterLazy, ExitToUser, LoadKernel, Loaded, Offline, Switch};
        #[cfg(feature = "directories")]
        if let Self::ReloadRootHere(_) = self {
            return true;
        }
        matches!(
            self,
            BringUp | Offline | Switch(_) | EnterLazy | LoadKernel | EnterKernel | ExitToUser | Answer | Loaded
        )
    }

    /// The functions of the header that it calls.
    pub(crate) fn functions(&self) -> Vec<&'static str> {
        match self {
            Self::FlushRange(..) => vec!["flush_range"],
            Self::FlushRangeAlone(..) => vec!["flush_range_alone"],
            Self::FlushKernelRange(..) => vec!["flush_kernel_range"],
            Self::FlushThisCpu(_) => vec!["flush_this_cpu"],
            Self::FlushKernelThisCpu(_) => vec!["flush_kernel_this_cpu"],
            Self::FlushLoadedThisCpu => vec!["flush_loaded_this_cpu"],
            Self::FlushAllThisCpu => vec!["flush_all_this_cpu"],
            Self::Gather(.., parts, end) => {
                let ends: &[_] = match end {
                    End::Finish => &["gather_finish"],
                    End::Issue => &["gather_issue", "gather_is_done", "gather_wait"],
                    End::Poll => &["gather_issue", "gather_poll", "gather_wait"],
                    #[cfg(feature = "directories")]
                    End::Within(_) => &[
                        "sharers_hook",
                        "reach_begin",
                        "reach_add",
                        "reach_everybody",
                        "gather_finish_within",
                        "sharers_may_include",
                        "sharers_clear",
                    ],
                };
                let parts = parts.iter().map(|part| match part {
                    Part::Range(_) => "gather_range",
                    Part::Unmap(_) => "gather_unmap",
                    Part::Table(..) => "gather_unmap_table",
                    Part::Hold => "gather_hold",
                    Part::TablesFreed => "gather_tables_freed",
                    Part::Everything => "gather_everything",
                });
                parts.chain(["gather_begin"]).chain(ends.iter().copied()).collect()
            }
            Self::Batch(items, _) => {
                let items = items.iter().map(|item| match item {
                    Item::Revoke(_) => "batch_revoke",
                    Item::Unmap(_) => "batch_unmap",
                    Item::Table(_) => "batch_unmap_table",
                    Item::Hold => "batch_hold",
                });
                items.chain(["batch_begin", "batch_flush", "batch_finish"]).collect()
            }
            Self::Drain(_) => vec!["drain"],
            #[cfg(feature = "reuse")]
            Self::Reuse(..) => vec!["grace_periods_init", "batch_defer", "pass", "deferred_fold", "deferred_flush"],
            #[cfg(feature = "directories")]
            Self::ReloadRoots(_) => vec!["reload_roots"],
            #[cfg(feature = "directories")]
            Self::ReloadRootHere(_) => vec!["reload_root_here"],
            Self::BringUp => vec!["bring_up"],
            Self::Offline => vec!["offline"],
            Self::Stopped(_) => vec!["declare_stopped"],
            Self::Switch(_) => vec!["switch_to"],
            Self::EnterLazy => vec!["enter_lazy"],
            Self::LoadKernel => vec!["load_kernel"],
            Self::EnterKernel => vec!["enter_kernel"],
            Self::ExitToUser => vec!["exit_to_user"],
            Self::Answer => vec!["answer"],
            Self::IsRunning(_) => vec!["is_running"],
            Self::Loaded => vec!["loaded"],
            Self::Missing => vec!["missing"],
            Self::SetCeiling(_) => vec!["set_ceiling"],
            Self::SetUserFlush(_) => vec!["set_user_flush"],
            Self::Id(_) => vec!["space_id"],
            Self::Generation(_) => vec!["space_generation"],
            Self::Destroy(_) => vec!["space_destroy"],
            Self::DestroyLater(_) => vec!["space_destroy_later"],
        }
    }
}

/// log2 of the sizes that the header has.
const STRIDES: [u32; 4] = [12, 21, 30, 39];
const USER_VA: u64 = 127 << 39;
const KERNEL_VA: u64 = 0xffff_9000_0000_0000;
/// Fewer than a ceiling, and more.
const PAGES: [u32; 3] = [1, 3, 40];

fn user(pages: u32, stride: u32) -> Range {
    Range { va: USER_VA, pages, stride }
}

fn kernel(pages: u32, stride: u32) -> Range {
    Range { va: KERNEL_VA, pages, stride }
}

/// All calls in a row, on one machine under `policy`.
pub(crate) fn all(policy: &Policy) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |cpu, call| steps.push(Step { cpu, call });
    (0..3).for_each(|cpu| add(cpu, Call::BringUp));
    tour(&mut add);
    for stride in STRIDES {
        for pages in PAGES {
            flushes(stride, pages, &mut add);
        }
        gathers(stride, &mut add);
    }
    batches(&mut add);
    #[cfg(feature = "reuse")]
    reuse(&mut add);
    #[cfg(feature = "directories")]
    directories(&mut add);
    for why in Reason::ALL {
        add(0, Call::FlushRange(0, user(1, 12), Flag::None, why));
    }
    knobs(&mut add);
    away(&mut add);
    ends(policy, &mut add);
    steps
}

/// CPUs 0 and 1 run space 0 in the end, and CPU 2 holds it lazily.
fn tour(add: &mut impl FnMut(u32, Call)) {
    for cpu in 0..3 {
        for space in [0, 1, 0] {
            add(cpu, Call::Switch(space));
            add(cpu, Call::ExitToUser);
            add(cpu, Call::EnterKernel);
            add(cpu, Call::IsRunning(space));
            add(cpu, Call::Loaded);
        }
    }
    add(2, Call::EnterLazy);
    add(2, Call::Loaded);
    add(0, Call::Id(0));
}

fn flushes(stride: u32, pages: u32, add: &mut impl FnMut(u32, Call)) {
    for flag in [Flag::None, Flag::TablesFreed, Flag::Everything] {
        // One CPU runs the space, or is gone from it, and one holds it lazily.
        for space in [0, 1] {
            add(1, Call::Switch(space));
            add(0, Call::FlushRangeAlone(0, user(pages, stride), flag));
        }
        add(1, Call::Switch(0));
        add(0, Call::FlushRange(0, user(pages, stride), flag, Reason::WriteProtect));
        add(0, Call::FlushKernelRange(kernel(pages, stride), flag, Reason::KernelRemove));
        add(1, Call::ExitToUser);
        add(1, Call::EnterKernel);
        // It has left the space if it was told.
        add(2, Call::Switch(0));
        add(2, Call::EnterLazy);
    }
    add(0, Call::FlushRange(1, user(pages, stride), Flag::None, Reason::Fork));
    add(0, Call::FlushRangeAlone(1, user(pages, stride), Flag::None));
    add(0, Call::FlushThisCpu(user(pages, stride)));
    add(0, Call::FlushKernelThisCpu(kernel(pages, stride)));
    add(0, Call::FlushLoadedThisCpu);
    add(0, Call::FlushAllThisCpu);
    add(0, Call::Generation(0));
    add(0, Call::Missing);
    add(1, Call::Answer);
}

fn gathers(stride: u32, add: &mut impl FnMut(u32, Call)) {
    let of_space = [
        vec![Part::Range(user(2, stride))],
        vec![Part::Range(user(40, stride)), Part::Hold],
        vec![Part::Unmap(user(1, stride)), Part::Table(USER_VA, 0)],
        vec![Part::Table(USER_VA, 512)],
        vec![Part::TablesFreed, Part::Unmap(user(1, stride))],
        vec![Part::Everything],
        vec![Part::Hold],
        vec![],
    ];
    for end in [End::Finish, End::Issue, End::Poll] {
        for scope in [0, 1] {
            for parts in &of_space {
                add(0, Call::Gather(Some(0), scope, Reason::RemovePte, parts.clone(), end));
                add(2, Call::Switch(0));
                add(2, Call::EnterLazy);
            }
            let parts = vec![Part::Range(kernel(3, stride)), Part::Hold];
            add(0, Call::Gather(None, scope, Reason::KernelRemove, parts, end));
        }
    }
}

fn batches(add: &mut impl FnMut(u32, Call)) {
    for items in [
        vec![Item::Revoke(0)],
        vec![Item::Unmap(0), Item::Unmap(1), Item::Hold],
        vec![Item::Table(0), Item::Revoke(1)],
        vec![Item::Hold],
        vec![],
    ] {
        add(0, Call::Batch(items, Reason::Migrate));
        add(0, Call::Drain(0));
        add(2, Call::Switch(1));
        add(2, Call::Switch(0));
        add(2, Call::EnterLazy);
    }
}

/// CPU 1 has passed for the first one alone, then for both, then all others have.
#[cfg(feature = "reuse")]
fn reuse(add: &mut impl FnMut(u32, Call)) {
    for passing in [[1, 2], [0, 1], [1, 1]] {
        let batches = [vec![Item::Unmap(0)], vec![Item::Unmap(1), Item::Hold, Item::Unmap(0)]];
        add(0, Call::Reuse(batches.into_iter().zip(passing).collect(), Reason::Migrate));
        add(2, Call::Switch(0));
    }
    add(2, Call::EnterLazy);
}

#[cfg(feature = "directories")]
fn directories(add: &mut impl FnMut(u32, Call)) {
    add(0, Call::ReloadRoots(0));
    add(2, Call::Switch(0));
    for sharers in [Some(0), Some(1), Some(2), Some(6), Some(7), None] {
        for parts in [vec![Part::Unmap(user(1, 12))], vec![Part::Range(user(40, 12))], vec![Part::Table(USER_VA, 1)]] {
            add(0, Call::Gather(Some(0), 0, Reason::RemovePte, parts, End::Within(sharers)));
        }
    }
    add(1, Call::ReloadRootHere(0));
    add(1, Call::Loaded);
    add(1, Call::FlushLoadedThisCpu);
    add(2, Call::EnterLazy);
    add(1, Call::ReloadRoots(0));
    add(2, Call::Switch(0));
    add(2, Call::EnterLazy);
}

fn knobs(add: &mut impl FnMut(u32, Call)) {
    for ceiling in [0, 100] {
        add(0, Call::SetCeiling(ceiling));
        add(0, Call::FlushRange(0, user(40, 12), Flag::None, Reason::Enter));
    }
    for how in [1, 0] {
        add(0, Call::SetUserFlush(how));
        add(0, Call::FlushRange(0, user(3, 12), Flag::None, Reason::Enter));
        add(0, Call::ExitToUser);
        add(0, Call::EnterKernel);
    }
}

fn away(add: &mut impl FnMut(u32, Call)) {
    add(1, Call::Offline);
    add(0, Call::FlushRange(0, user(1, 12), Flag::None, Reason::Enter));
    add(1, Call::BringUp);
    add(1, Call::Switch(0));
    add(0, Call::Stopped(1));
    add(0, Call::FlushRange(0, user(1, 12), Flag::None, Reason::Enter));
    add(1, Call::BringUp);
}

/// CPU 2 holds the space lazily that ends, and then lets go.
fn ends(policy: &Policy, add: &mut impl FnMut(u32, Call)) {
    for cpu in [0, 1, 2] {
        add(cpu, Call::LoadKernel);
    }
    for space in [1, 0] {
        add(2, Call::Switch(space));
        add(2, Call::EnterLazy);
        let is_later = space == 0 && policy.lazy_references != LazyReferences::ShotDown;
        add(0, if is_later { Call::DestroyLater(space) } else { Call::Destroy(space) });
        add(2, Call::LoadKernel);
    }
}
