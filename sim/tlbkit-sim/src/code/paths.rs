//! What each call executes under one policy, by the code that carries it out: in instructions, or in what these cost.

use tlbkit::{CpuSetUpkeep, Lazy, LazyReferences, Policy, Tags};

use super::{Code, CountedSwitch, Slots};

/// What each call executes under one policy. Each count of instructions is converted for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Paths<T> {
    /// A switch to the space that runs.
    pub(crate) same_space: T,
    /// Going idle.
    pub(crate) enter_lazy: T,
    /// Back to the space that was kept lazily.
    pub(crate) leave_lazy: T,
    /// A switch that keeps the slot's entries.
    pub(crate) current_slot: T,
    /// A switch that flushes. A stale slot, hardly dearer than a current one, is not told from a new one.
    pub(crate) new_slot: T,
    /// A flush, up to the decision whether others must be asked.
    pub(crate) flush_begin: T,
    /// Its half on this CPU.
    pub(crate) flush_local: T,
    /// What is in its place where INVLPGB reaches everybody.
    pub(crate) flush_broadcast: T,
    /// Looking for CPUs to ask.
    pub(crate) flush_choose: T,
    /// Each that is left alone.
    pub(crate) flush_skipped: T,
    /// Each that is told.
    pub(crate) flush_told: T,
    /// Telling any, and waiting.
    pub(crate) flush_ask: T,
    /// An interrupt, whatever it finds.
    pub(crate) handler: T,
    /// A request that is carried out.
    pub(crate) request: T,
}

impl<T> Paths<T> {
    /// The paths of `policy`, each number of instructions as what `convert` makes of it.
    pub(crate) fn of(policy: &Policy, code: Code, convert: impl Fn(u32) -> T) -> Self {
        let counts = code.counts();
        let (switch, flush, answer) = (&counts.switch, &counts.flush, &counts.answer);
        let is_counted = policy.lazy_references == LazyReferences::Counted;
        let references = switch.counted.as_ref().filter(|_| is_counted);
        let (current_slot, new_slot) = slots(policy, switch);
        let enter_lazy = match (policy.lazy, references) {
            (Lazy::Off, _) => switch.enter_kernel_tables,
            (_, Some(counted)) => counted.enter_lazy,
            _ => switch.enter_lazy,
        };
        Self {
            same_space: convert(switch.same_space),
            enter_lazy: convert(enter_lazy),
            leave_lazy: convert(references.map_or(switch.leave_lazy, |counted| counted.leave_lazy)),
            current_slot: convert(current_slot),
            new_slot: convert(new_slot),
            flush_begin: convert(flush.begin),
            flush_local: convert(flush.local),
            flush_broadcast: convert(counts.broadcast.as_ref().map_or(flush.local, |broadcast| broadcast.flush)),
            flush_choose: convert(flush.choose),
            flush_skipped: convert(flush.skipped),
            flush_told: convert(flush.told),
            flush_ask: convert(flush.ask),
            handler: convert(answer.handler),
            request: convert(answer.request),
        }
    }
}

/// Instructions of a switch that keeps the slot's entries, and of one that flushes.
fn slots(policy: &Policy, switch: &CountedSwitch) -> (u32, u32) {
    if policy.tags == Tags::Off {
        return (switch.no_tags, switch.no_tags);
    }
    let both = |slots: &Slots| (slots.current_slot, slots.new_slot);
    let plain = (switch.current_slot, switch.new_slot);
    let is_counted = policy.lazy_references == LazyReferences::Counted;
    let (current_slot, new_slot) = match (&switch.exact, &switch.counted) {
        (Some(exact), _) if policy.cpu_set == CpuSetUpkeep::Exact => both(exact),
        (_, Some(counted)) if is_counted => (counted.current_slot, counted.new_slot),
        _ => plain,
    };
    // Keeping the order of last use takes as many more whatever else the policy does. Those of places further back
    // are left out: which place a space has only the protocol knows.
    match (policy.tags, &switch.by_use) {
        (Tags::LeastRecent(_), Some(by_use)) => {
            let (keeping, taking) = both(by_use);
            (current_slot + (keeping - plain.0), new_slot + (taking - plain.1))
        }
        _ => (current_slot, new_slot),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instructions(policy: &Policy, code: Code) -> Paths<u32> {
        Paths::of(policy, code, |instructions| instructions)
    }

    fn of(preset: &str) -> Paths<u32> {
        instructions(&Policy::preset(preset).unwrap(), Code::of_preset(preset))
    }

    #[test]
    fn each_policy_of_our_own_code_has_the_counts_of_what_it_does() {
        let of = |preset: &str| instructions(&Policy::preset(preset).unwrap(), Code::TLBKIT);
        let c = &Code::TLBKIT.counts().switch;
        let [counted, exact, by_use] = [
            c.counted.as_ref().map(|it| (it.current_slot, it.new_slot)),
            c.exact.as_ref().map(|it| (it.current_slot, it.new_slot)),
            c.by_use.as_ref().map(|it| (it.current_slot, it.new_slot)),
        ]
        .map(Option::unwrap);
        let (ours, counting) = (of("tlbkit"), of("linux-6.18"));
        assert_eq!((ours.enter_lazy, ours.leave_lazy), (c.enter_lazy, c.leave_lazy));
        assert_eq!((ours.current_slot, ours.new_slot), by_use);
        let in_turn = Policy { tags: Tags::RoundRobin(6), ..Policy::preset("tlbkit").unwrap() };
        let in_turn = instructions(&in_turn, Code::TLBKIT);
        assert_eq!((in_turn.current_slot, in_turn.new_slot), (c.current_slot, c.new_slot));
        let references = c.counted.as_ref().unwrap();
        assert_eq!((counting.enter_lazy, counting.leave_lazy), (references.enter_lazy, references.leave_lazy));
        assert_eq!((counting.current_slot, counting.new_slot), counted);
        let old = of("linux-4.14");
        assert_eq!(old.enter_lazy, c.enter_kernel_tables);
        assert_eq!((old.current_slot, old.new_slot), exact);
        assert_eq!(of("netbsd-5.0").current_slot, c.no_tags);
    }

    #[test]
    fn another_kernel_has_its_own_counts() {
        let (old, new) = (of("linux-4.20"), of("linux-6.18"));
        assert_eq!((old.current_slot, old.flush_begin + old.flush_local), (116, 146));
        assert_eq!((new.current_slot, new.flush_begin + new.flush_local), (134, 178));
        assert_eq!(of("netbsd-10").current_slot, 106);
    }
}
