//! Policies: half of them published, half any other point of the space that the fields span.
//!
//! The fields are independent of each other, so every point must be right; and the small ones (one ASID, a set trimmed
//! at each flush, a ceiling of one page) reach in a short run what the published ones reach after hours.

use tlbkit::{
    Accounting, Acknowledgement, Batching, Broadcast, Compare, CpuSetUpkeep, Directories, FamilyShift, Foreign,
    History, Isolation, KernelSet, LargePageWalk, Lazy, LazyReferences, LocalFlush, Nested, PRESETS, Policy, RangeRule,
    Reclaim, SharedDirty, TableFree, Tags, Unaccessed, Unmapping, UserFlush,
};

use crate::digest;
use tlbkit_arch::SplitMix64;

/// A policy at random.
pub(crate) fn draw(random: &mut SplitMix64) -> Policy {
    match random.below(2) {
        // These differ in nothing that the protocol knows of; without them each seed keeps its policy.
        0 => {
            let awaiting = || {
                PRESETS.iter().filter(|preset| {
                    let Policy { unmapping, directories, acknowledgement, unaccessed, reclaim, .. } = preset.policy;
                    let awaits = (unmapping, directories, reclaim)
                        == (Unmapping::Awaited, Directories::Shared, Reclaim::Awaited);
                    awaits && (acknowledgement, unaccessed) == (Acknowledgement::AfterFlush, Unaccessed::Flushed)
                })
            };
            let number = random.below(awaiting().count() as u64) as usize;
            awaiting().nth(number).expect("fewer than there are").policy
        }
        _ => point(random),
    }
}

fn one_of<T: Copy>(random: &mut SplitMix64, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize]
}

/// The order of the draws is that of the seeds that have been searched.
fn point(random: &mut SplitMix64) -> Policy {
    let tags = tags(random);
    let lazy = one_of(random, &[Lazy::Off, Lazy::InterruptOnce, Lazy::SkipUnlessTablesFreed]);
    let cpu_set = cpu_set(random);
    let kernel_set = one_of(random, &[KernelSet::Unwritten, KernelSet::Written]);
    let (range, batching) = (range(random), batching(random));
    let table_free = one_of(random, &[TableFree::AtOnce, TableFree::AtDestroyUnlessLow]);
    let foreign = one_of(random, &[Foreign::Window, Foreign::TemporarySwitch, Foreign::DirectMap]);
    let isolation = one_of(random, &[Isolation::Off, Isolation::On]);
    let user_flush = one_of(random, &[UserFlush::Invpcid, UserFlush::DeferredCr3]);
    let local_flush = one_of(random, &[LocalFlush::BeforeRemote, LocalFlush::WhileRemote]);
    let lazy_references = one_of(random, &[LazyReferences::Counted, LazyReferences::ShotDown, LazyReferences::Awaited]);
    let accounting = one_of(random, &[Accounting::Off, Accounting::On]);
    let (nested, shared_dirty) = overlaps(*random);
    let history = History { kernel_set, batching, table_free, foreign, accounting, nested, shared_dirty };
    let broadcast = Broadcast::Off;
    // Programs say what they retire and defer, whether CPUs have directories, and whether their kernel goes by accessed
    // bits.
    let (unmapping, directories) = (Unmapping::Awaited, Directories::Shared);
    Policy {
        tags,
        lazy,
        lazy_references,
        cpu_set,
        range,
        isolation,
        user_flush,
        local_flush,
        broadcast,
        unmapping,
        directories,
        acknowledgement: Acknowledgement::AfterFlush,
        unaccessed: Unaccessed::Flushed,
        reclaim: Reclaim::Awaited,
        history,
    }
}

/// The same on a machine with INVLPGB: it is used soon, so that short runs meet it.
pub(crate) fn with_broadcast(policy: Policy, random: &mut SplitMix64) -> Policy {
    let tags = if policy.tags == Tags::Off { Tags::RoundRobin(2) } else { policy.tags };
    Policy { tags, broadcast: Broadcast::From { cpus: one_of(random, &[1, 1, 2]) }, ..policy }
}

/// These are drawn from random numbers of their own, so that what a seed draws after its policy does not change.
fn overlaps(random: SplitMix64) -> (Nested, SharedDirty) {
    let mut own = digest::random(digest::mix(0, { random }.bits()));
    let nested = one_of(&mut own, &[Nested::Range, Nested::Everything]);
    (nested, one_of(&mut own, &[SharedDirty::AtEnd, SharedDirty::UnderLock]))
}

fn tags(random: &mut SplitMix64) -> Tags {
    let asids = one_of(random, &[1, 2, 3, 15]);
    one_of(random, &[Tags::Off, Tags::RoundRobin(asids), Tags::RoundRobin(asids), Tags::LeastRecent(asids)])
}

fn cpu_set(random: &mut SplitMix64) -> CpuSetUpkeep {
    let every = one_of(random, &[0, 1, 2]);
    let trimmed = CpuSetUpkeep::Trimmed { every };
    one_of(random, &[CpuSetUpkeep::Exact, trimmed, trimmed, CpuSetUpkeep::TrimmedWithTables { every }])
}

fn range(random: &mut SplitMix64) -> RangeRule {
    let pages = one_of(random, &[0, 1, 2, 33, 4096]);
    let compare = one_of(random, &[Compare::Above, Compare::AtLeast]);
    let walk = one_of(random, &[LargePageWalk::Walk, LargePageWalk::Skip]);
    let shift = one_of(random, &[-1, 0, 1, 2]);
    let ceiling = RangeRule::Ceiling { pages, compare };
    one_of(random, &[ceiling, ceiling, ceiling, RangeRule::FamilyShift(FamilyShift { shift, entries: 512, walk })])
}

fn batching(random: &mut SplitMix64) -> Batching {
    let packet = Batching::Packet(one_of(random, &[1, 2, 6, 16]));
    one_of(random, &[Batching::None, packet, Batching::Range, Batching::Range])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_and_other_policies_are_drawn_and_all_are_valid() {
        let mut random = digest::random(0);
        let drawn: Vec<_> = (0..1000).map(|_| draw(&mut random)).collect();
        let is_published = |policy: &Policy| PRESETS.iter().any(|preset| preset.policy == *policy);
        let published = drawn.iter().filter(|policy| is_published(policy)).count();
        assert!((400..600).contains(&published), "{published}");
        assert!(drawn.iter().all(|policy| (1..=15).contains(&policy.asids())));
        assert!(drawn.iter().any(|policy| policy.cpu_set == CpuSetUpkeep::Trimmed { every: 1 }));
        let rules = |policy: &Policy| (policy.history.nested as u8, policy.history.shared_dirty as u8);
        assert!([(0, 0), (0, 1), (1, 0), (1, 1)].iter().all(|rule| drawn.iter().any(|policy| rules(policy) == *rule)));
    }
}
