//! A PCID that all CPUs share, and INVLPGB: `lib/tlbkit/src/space/shared.rs` and `flush/broadcast.rs`.
//!
//! There is one such PCID, so that spaces have to give it back before another one gets it. An INVLPGB arrives at one
//! CPU after another; the steps of all CPUs come in between.

use crate::deviation::Deviation;
use crate::protocol::Protocol;
use crate::state::{
    ASIDS, Change, CpuNumber, Half, ITEMS, Request, Root, SHARED, SpaceNumber, State, TABLE, Then, TlbEntry,
};
use crate::step::Step;

/// What an INVLPGB invalidates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Invlpgb {
    /// Under the PCID that all CPUs share, the half; under every PCID if there is none.
    half: Option<Half>,
    /// The items.
    items: [bool; ITEMS],
}

impl Invlpgb {
    /// Everything of every PCID.
    pub(crate) const ALL: Self = Self { half: None, items: [true; ITEMS] };
}

/// All CPUs, as bits.
pub(crate) fn all_cpus(state: &State) -> u8 {
    (1 << state.cpus.len()) - 1
}

impl Protocol {
    /// `Cpu::share_pcid`.
    pub(crate) fn begin_move(&self, state: &mut State, cpu: CpuNumber, number: SpaceNumber) {
        let space = &mut state.spaces[number];
        if !space.is_shared && !space.is_moving {
            space.is_moving = true;
            state.cpus[cpu].then(&[Step::TakePcid(number)]);
        }
    }

    pub(crate) fn take_pcid(&self, state: &mut State, cpu: CpuNumber, space: SpaceNumber) {
        if std::mem::replace(&mut state.is_taken, true) {
            return state.cpus[cpu].then(&[Step::EndMove(space)]);
        }
        let mut steps = Vec::new();
        if !self.deviates(Deviation::PcidNotFlushed) {
            steps.extend(self.reaches(state, [true; ITEMS]));
        }
        steps.push(Step::NamePcid(space));
        if !self.deviates(Deviation::MovesWithoutRound) {
            steps.push(Step::Advance(space, Change::Move, Then::Wait));
        }
        steps.push(Step::EndMove(space));
        state.cpus[cpu].then(&steps);
    }

    fn reaches(&self, state: &State, items: [bool; ITEMS]) -> Vec<Step> {
        let user = (self.is_isolated() && !self.deviates(Deviation::UserHalfNotNamed)).then_some(Half::User);
        let halves = [Half::Kernel].into_iter().chain(user);
        halves.map(|half| Step::Reach(Invlpgb { half: Some(half), items }, all_cpus(state))).collect()
    }

    /// True if the flush of this request, which has just advanced the generation, executes INVLPGB.
    pub(crate) fn is_broadcast(&self, state: &State, cpu: CpuNumber, request: Request) -> bool {
        let is_shared = if self.deviates(Deviation::PcidReadApart) {
            state.cpus[cpu].finds_shared
        } else {
            state.spaces[request.space].is_shared
        };
        is_shared && !matches!(request.change, Change::Destroy | Change::Move)
    }

    /// The INVLPGBs of a request.
    pub(crate) fn broadcast(&self, state: &State, request: Request) -> Vec<Step> {
        let mut items = [request.page().is_none(); ITEMS];
        request.change.items().iter().for_each(|&item| items[item] = true);
        items[TABLE] = request.page().is_none() || request.frees_tables() && !self.deviates(Deviation::PathsKept);
        self.reaches(state, items)
    }

    /// An INVLPGB arrives at one CPU, whose hardware reads again at once what it may.
    pub(crate) fn reach(state: &mut State, cpu: CpuNumber, what: Invlpgb, cpus: u8) {
        let target = cpus.trailing_zeros() as CpuNumber;
        let others = cpus & (cpus - 1);
        if others != 0 {
            state.cpus[cpu].then(&[Step::Reach(what, others)]);
        }
        for (half, pcids) in [Half::Kernel, Half::User].into_iter().zip(&mut state.cpus[target].entries) {
            for (pcid, entries) in pcids.iter_mut().enumerate() {
                if what.half.is_none_or(|named| named == half && pcid == SHARED) {
                    let gone = entries.iter_mut().zip(what.items).filter(|(_, is_named)| *is_named);
                    gone.for_each(|(entry, _)| *entry = TlbEntry::default());
                }
            }
        }
        state.fill(target);
    }

    /// Loads the space that the CPU runs, or is about to, under the PCID that all share.
    pub(crate) fn load_shared(state: &mut State, cpu: CpuNumber, space: SpaceNumber) {
        let this = &mut state.cpus[cpu];
        (this.asid, this.newest, this.has_joined) = (ASIDS, 0, false);
        state.load_keeping(cpu, Root { id: state.spaces[space].id, space, pcid: SHARED, half: Half::Kernel });
    }

    pub(crate) fn follow(state: &mut State, cpu: CpuNumber) {
        let space = state.cpus[cpu].root.space;
        Self::load_shared(state, cpu, space);
    }
}
