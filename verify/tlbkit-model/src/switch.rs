//! A CPU joins a space, goes lazy, comes back, or leaves for the kernel's tables: `lib/tlbkit/src/switch/mod.rs`.

use tlbkit::Lazy;

use crate::deviation::Deviation;
use crate::protocol::Protocol;
use crate::state::{ASIDS, AsidEntry, CpuNumber, Fault, Half, Id, Presence, Root, SpaceNumber, State, Store};
use crate::step::Step;

impl Protocol {
    /// `Cpu::switch_to`, as far as the first access to what others share.
    pub(crate) fn begin_switch(&self, state: &mut State, cpu: CpuNumber, to: SpaceNumber) {
        let id = state.spaces[to].id;
        if state.cpus[cpu].own_presence == Presence::Lazy(id) {
            return self.begin_return(state, cpu, to);
        }
        let has_asid = state.cpus[cpu].asids.iter().any(|entry| entry.id == id);
        let is_member = state.spaces[to].members & 1 << cpu != 0;
        let join = (!is_member && (!has_asid || self.is_exact())).then_some(Step::Join(to));
        let fence = (!self.deviates(Deviation::JoinerUnfenced)).then_some(Step::Fence);
        let mut first = vec![Step::MarkSwitching(to)];
        let mut last = vec![Step::LoadRoot(to), Step::MarkRunning(to)];
        let leave = self.after_leaving(state, cpu);
        if self.deviates(Deviation::LeavesSetEarly) {
            first.splice(0..0, leave)
        } else {
            last.splice(2..2, leave)
        };
        let read = [Step::ReadGeneration(to)];
        let steps: Vec<Step> = if self.deviates(Deviation::ReadsBeforeJoin) {
            read.into_iter().chain(join).chain(first).chain(fence).chain(last).collect()
        } else {
            join.into_iter().chain(first).chain(fence).chain(read).chain(last).collect()
        };
        state.cpus[cpu].then(&steps);
    }

    fn begin_return(&self, state: &mut State, cpu: CpuNumber, to: SpaceNumber) {
        let fence = (!self.deviates(Deviation::LazyExitUnfenced)).then_some(Step::Fence);
        let last = [Step::Recheck(to), Step::MarkRunning(to)];
        let steps: Vec<Step> = [Step::MarkBack(to)].into_iter().chain(fence).chain(last).collect();
        state.cpus[cpu].then(&steps);
    }

    /// `Cpu::enter_lazy`.
    pub(crate) fn begin_lazy(&self, state: &mut State, cpu: CpuNumber) {
        if self.world.policy.lazy == Lazy::Off {
            return self.begin_kernel(state, cpu);
        }
        let left = state.cpus[cpu].leaving.filter(|_| self.is_counted() && !self.deviates(Deviation::LazyUncounted));
        let count = left.map(Step::Count);
        let steps: Vec<Step> = count.into_iter().chain([Step::MarkLazy]).collect();
        state.cpus[cpu].then(&steps);
    }

    /// `Cpu::load_kernel`.
    pub(crate) fn begin_kernel(&self, state: &mut State, cpu: CpuNumber) {
        let leave = self.after_leaving(state, cpu);
        let steps: Vec<Step> =
            [Step::MarkLeaving, Step::LoadKernel, Step::MarkKernel].into_iter().chain(leave).collect();
        state.cpus[cpu].then(&steps);
    }

    /// What the policy owes the space that is left.
    fn after_leaving(&self, state: &State, cpu: CpuNumber) -> Vec<Step> {
        let (root, left) = (state.cpus[cpu].root, state.cpus[cpu].own_presence);
        let mut steps = Vec::new();
        if left == Presence::Kernel {
            return steps;
        }
        if self.is_exact() {
            steps.push(Step::LeaveSet(root.space, root.id));
        }
        if matches!(left, Presence::Lazy(_)) && self.is_counted() {
            steps.push(Step::Uncount(root.space, root.id));
        }
        steps
    }

    pub(crate) fn mark_back(&self, state: &mut State, cpu: CpuNumber, to: SpaceNumber) {
        let running = Presence::Running(state.spaces[to].id);
        let is_early = self.deviates(Deviation::RunsTooEarly);
        state.cpus[cpu].store(Store::Presence(if is_early { running } else { Presence::Switching }));
    }

    pub(crate) fn mark_switching(&self, state: &mut State, cpu: CpuNumber, to: SpaceNumber) {
        let id = state.spaces[to].id;
        let asids = self.world.policy.asids();
        let cpu = &mut state.cpus[cpu];
        cpu.asid = cpu.asids.iter().position(|entry| entry.id == id).unwrap_or_else(|| {
            let taken = cpu.next_asid;
            cpu.next_asid = (taken + 1) % asids;
            let kept = if self.deviates(Deviation::RecycledKept) { cpu.asids[taken].generation } else { 0 };
            cpu.asids[taken] = AsidEntry { id, generation: kept };
            taken
        });
        cpu.store(Store::Presence(Presence::Switching));
    }

    pub(crate) fn read_generation(&self, state: &mut State, cpu: CpuNumber, to: SpaceNumber) {
        let space = &state.spaces[to];
        let is_member = space.members & 1 << cpu != 0;
        let (newest, is_shared) = (space.generation, space.is_shared);
        let cpu = &mut state.cpus[cpu];
        cpu.newest = newest;
        cpu.finds_shared = is_shared;
        cpu.has_joined = is_member && cpu.presence == Presence::Switching;
    }

    pub(crate) fn load_root(&self, state: &mut State, cpu: CpuNumber, to: SpaceNumber) {
        if std::mem::take(&mut state.cpus[cpu].finds_shared) {
            return Self::load_shared(state, cpu, to);
        }
        let root = self.root_of(state, cpu, to);
        let this = &mut state.cpus[cpu];
        let (newest, has_joined) = (std::mem::take(&mut this.newest), std::mem::take(&mut this.has_joined));
        let is_current = this.asids[this.asid].generation == newest;
        if is_current || self.deviates(Deviation::KeepsStale) {
            if !is_current || !has_joined {
                state.fault = Some(Fault::KeptWithoutRight);
            }
            state.load_keeping(cpu, root);
        } else {
            self.flush_asid(state, cpu, newest);
            state.load_flushing(cpu, root);
        }
    }

    fn root_of(&self, state: &State, cpu: CpuNumber, to: SpaceNumber) -> Root {
        let asid = state.cpus[cpu].asid;
        let pcid = if self.deviates(Deviation::AsidZeroIsPcidZero) { asid } else { asid + 1 };
        Root { id: state.spaces[to].id, space: to, pcid, half: Half::Kernel }
    }

    /// The flush of the user half is pending, and the ASID is current up to `newest` once its kernel half is flushed.
    pub(crate) fn flush_asid(&self, state: &mut State, cpu: CpuNumber, newest: u8) {
        let this = &mut state.cpus[cpu];
        if self.is_isolated() && !self.deviates(Deviation::UserHalfForgotten) {
            this.pending_user |= 1 << this.asid;
        }
        self.set_generation(state, cpu, newest);
    }

    pub(crate) fn set_generation(&self, state: &mut State, cpu: CpuNumber, newest: u8) {
        let this = &mut state.cpus[cpu];
        let held = &mut this.asids[this.asid].generation;
        if *held > newest && !self.deviates(Deviation::GenerationWraps) {
            state.fault = Some(Fault::GenerationFell);
        }
        *held = newest;
    }

    pub(crate) fn recheck(&self, state: &mut State, cpu: CpuNumber, to: SpaceNumber) {
        let newest = state.spaces[to].generation;
        let uncount = self.is_counted().then_some(Step::Uncount(to, state.spaces[to].id));
        if state.cpus[cpu].asid == ASIDS {
            let steps: Vec<Step> = uncount.into_iter().collect();
            return state.cpus[cpu].then(&steps);
        }
        let this = &mut state.cpus[cpu];
        let reload = (this.asids[this.asid].generation != newest).then_some(Step::Reload(newest));
        let steps: Vec<Step> = uncount.into_iter().chain(reload).collect();
        this.then(&steps);
    }

    pub(crate) fn reload(&self, state: &mut State, cpu: CpuNumber, newest: u8) {
        self.flush_asid(state, cpu, newest);
        let root = state.cpus[cpu].root;
        state.load_flushing(cpu, root);
    }

    pub(crate) fn load_kernel(state: &mut State, cpu: CpuNumber) {
        state.load_keeping(cpu, Root { id: 0, space: 0, pcid: 0, half: Half::Kernel });
    }

    /// `Cpu::exit_to_user`.
    pub(crate) fn exit_to_user(state: &mut State, cpu: CpuNumber) {
        let this = &mut state.cpus[cpu];
        let (root, bit) = (Root { half: Half::User, ..this.root }, 1 << this.asid);
        let is_owed = this.pending_user & bit != 0 && this.asid != ASIDS;
        this.pending_user &= !bit;
        if is_owed { state.load_flushing(cpu, root) } else { state.load_keeping(cpu, root) }
    }

    /// `Cpu::enter_kernel`.
    pub(crate) fn enter_kernel(state: &mut State, cpu: CpuNumber) {
        state.cpus[cpu].root.half = Half::Kernel;
        state.fill(cpu);
    }

    /// Something is done to a space of which the kernel said that it is alive.
    pub(crate) fn touch(state: &mut State, space: SpaceNumber, id: Id) {
        if state.spaces[space].id != id {
            state.fault = Some(Fault::TouchedTheDead);
        }
    }

    pub(crate) fn leave_set(state: &mut State, cpu: CpuNumber, space: SpaceNumber, id: Id) {
        Self::touch(state, space, id);
        state.spaces[space].members &= !(1 << cpu);
    }

    pub(crate) fn uncount(&self, state: &mut State, space: SpaceNumber, id: Id) {
        Self::touch(state, space, id);
        let Some(left) = state.spaces[space].lazy_references.checked_sub(1) else {
            // Only a deviation counts too few.
            return state.fault = Some(Fault::TouchedTheDead);
        };
        state.spaces[space].lazy_references = left;
        if left == 0 && state.spaces[space].is_dying {
            self.end(state, space);
        }
    }
}
