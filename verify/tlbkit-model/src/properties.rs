//! What must hold in every state, and what must be seen in some.
//!
//! Each property is about effects where it can be: what a CPU could use, not which branch it took.

use stateright::{Model, Property};

use crate::protocol::Protocol;
use crate::rules::{
    DEAD, GENERATIONS, HANDLER, KEPT, LAZY_LEFT_ALONE, NOBODY_MISSED, NOT_THE_NEXT, PCIDS, PROMISE, SERVED, USE, WALK,
};
use crate::state::{
    AsidEntry, Cpu, CpuNumber, Fault, Half, Hosted, OTHER_PAGE, PAGE, Pending, Presence, RING, Space, State, TABLE,
    TlbEntry,
};
use crate::step::Step;

/// All of them.
#[must_use]
pub fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always(NOBODY_MISSED, |_, state: &State| state.cpus.iter().all(|cpu| is_up_to_date(state, cpu))),
        Property::always(GENERATIONS, generations_only_rise),
        Property::always(PROMISE, |_, state: &State| state.cpus.iter().all(|cpu| keeps_promises(state, cpu))),
        Property::always(LAZY_LEFT_ALONE, |_, state: &State| state.fault != Some(Fault::LazyInterrupted)),
        Property::always(USE, |_, state: &State| state.cpus.iter().all(|cpu| uses_nothing_old(state, cpu))),
        Property::always(HANDLER, |_, state: &State| state.cpus.iter().all(|cpu| handler_uses_nothing_old(state, cpu))),
        Property::always(WALK, |_, state: &State| state.cpus.iter().all(|cpu| walks_nothing_freed(state, cpu))),
        Property::always(SERVED, |model: &Protocol, state| !is_over(model, state) || is_at_rest(state)),
        Property::always(NOT_THE_NEXT, |model: &Protocol, state: &State| {
            (0..state.cpus.len()).all(|cpu| waits_for_its_own(model, state, cpu))
        }),
        Property::always(PCIDS, |_, state: &State| state.cpus.iter().all(has_its_own_pcid)),
        Property::always(KEPT, |_, state: &State| state.fault != Some(Fault::KeptWithoutRight)),
        Property::always(DEAD, touches_no_dead),
        Property::sometimes("a load keeps its entries", |_, state: &State| state.cpus.iter().any(is_about_to_keep)),
        Property::sometimes("a flush meets a switch", flush_meets_switch),
        Property::sometimes("a flush is over and still owed", |_, state: &State| {
            state.cpus.iter().any(|cpu| cpu.owes_a_flush && !is_flushed(state, cpu))
        }),
        Property::sometimes("a flush finds no mailbox", |_, state: &State| state.pending.iter().any(is_unasked)),
        Property::sometimes("the end is reached", |model: &Protocol, state| is_over(model, state) && is_at_rest(state)),
    ]
}

/// INV-2: a CPU that has looked at the generation, and goes on with the space, knows of every flush that has returned.
/// Under the PCID that all CPUs share it need not: those flushes have reached it.
fn is_up_to_date(state: &State, cpu: &Cpu) -> bool {
    let is_bound = |step: &Step| matches!(step, Step::MarkRunning(_));
    if cpu.is_spared {
        return true; // its host has done what its ASIDs do not know of
    }
    if let Some(Step::LoadRoot(to)) = cpu.steps.last() {
        return cpu.finds_shared || cpu.newest >= state.spaces[*to].completed;
    }
    if !cpu.steps.is_empty() && !cpu.steps.last().is_some_and(is_bound) {
        return true;
    }
    let Presence::Running(id) = cpu.own_presence else { return true };
    let Some(AsidEntry { generation: known, .. }) = cpu.asids.get(cpu.asid).copied() else { return true };
    state.space_named(id).is_none_or(|space| known >= state.spaces[space].completed)
}

/// INV-3: no ASID is ahead of its space, and none ever falls.
fn generations_only_rise(_: &Protocol, state: &State) -> bool {
    let is_behind = |entry: &AsidEntry| {
        state.space_named(entry.id).is_none_or(|space| entry.generation <= state.spaces[space].generation)
    };
    state.fault != Some(Fault::GenerationFell) && state.cpus.iter().flat_map(|cpu| &cpu.asids).all(is_behind)
}

/// INV-4: an ASID that says "flushed up to g" holds nothing that was revoked by g or before, in either half.
fn keeps_promises(state: &State, cpu: &Cpu) -> bool {
    cpu.asids.iter().enumerate().all(|(index, asid)| {
        let Some(space) = state.space_named(asid.id).filter(|_| asid.generation != 0) else { return true };
        let Some(promise) = state.spaces[space].history.get(asid.generation as usize - 1) else { return true };
        let is_kept = |entries: &[TlbEntry]| {
            entries.iter().zip(promise).all(|(entry, oldest)| entry.id != asid.id || entry.version >= *oldest)
        };
        let is_owed = cpu.pending_user & 1 << index != 0;
        is_kept(cpu.cached(Half::Kernel, index + 1)) && (is_owed || is_kept(cpu.cached(Half::User, index + 1)))
    })
}

fn loaded<'s>(state: &'s State, cpu: &Cpu) -> Option<&'s Space> {
    Some(&state.spaces[cpu.root.space]).filter(|space| cpu.root.id != 0 && space.id == cpu.root.id)
}

/// INV-6: a program that can run at this moment finds nothing whose flush has returned.
fn uses_nothing_old(state: &State, cpu: &Cpu) -> bool {
    let is_running = cpu.steps.is_empty() && cpu.task.is_some() && cpu.host == Hosted::Running;
    let Some(space) = loaded(state, cpu).filter(|_| is_running) else { return true };
    [PAGE, OTHER_PAGE].iter().all(|&item| is_usable(cpu.reachable()[item], space, item))
}

/// INV-6, C-54: nor does a handler that comes between any two steps, if the CPU says that the space runs and that it
/// owes no flush.
fn handler_uses_nothing_old(state: &State, cpu: &Cpu) -> bool {
    let Some(space) = loaded(state, cpu).filter(|space| cpu.own_presence == Presence::Running(space.id)) else {
        return true;
    };
    if cpu.host != Hosted::Running || cpu.owes_a_flush {
        return true;
    }
    let cached = cpu.cached(Half::Kernel, cpu.root.pcid);
    [PAGE, OTHER_PAGE].iter().all(|&item| is_usable(cached[item], space, item))
}

/// INV-6: hardware, which may walk at any time whatever root is loaded, finds no way to a table that is freed.
fn walks_nothing_freed(state: &State, cpu: &Cpu) -> bool {
    cpu.host != Hosted::Running
        || loaded(state, cpu).is_none_or(|space| is_usable(cpu.reachable()[TABLE], space, TABLE))
}

fn is_usable(entry: TlbEntry, space: &Space, item: usize) -> bool {
    entry.id != space.id || entry.version >= space.floor[item]
}

/// True if nothing can happen any more.
fn is_over(model: &Protocol, state: &State) -> bool {
    let mut actions = Vec::new();
    model.actions(state, &mut actions);
    actions.is_empty()
}

/// INV-7: nobody waits for anybody, and nothing is left undone.
fn is_at_rest(state: &State) -> bool {
    let is_heard = |cpu: &Cpu| cpu.own_presence == Presence::Absent || cpu.inbox == 0 && !cpu.has_interrupt;
    let is_idle = |cpu: &Cpu| cpu.steps.is_empty() && cpu.outboxes == [0; RING] && is_heard(cpu);
    state.fault.is_some() || state.cpus.iter().all(is_idle)
}

/// INV-7: a CPU that waits for a request whose mailbox holds another one by now goes on, whichever CPU answers that.
fn waits_for_its_own(model: &Protocol, state: &State, cpu: CpuNumber) -> bool {
    let Some(Step::WaitFor(asked)) = state.cpus[cpu].steps.last() else { return true };
    let is_used_again = state.cpus[asked.by].mailboxes[asked.mailbox] != Some(asked.request);
    !is_used_again || model.can_step(state, cpu)
}

/// INV-8: a space's PCID is not 0, and holds the entries of the loaded space alone.
fn has_its_own_pcid(cpu: &Cpu) -> bool {
    let is_own = |entry: &TlbEntry| entry.id == 0 || entry.id == cpu.root.id;
    cpu.root.id == 0 || cpu.root.pcid != 0 && cpu.reachable().iter().all(is_own)
}

/// INV-1: no root of a space that has ended is loaded, and nobody writes to one.
fn touches_no_dead(_: &Protocol, state: &State) -> bool {
    let is_alive =
        |cpu: &Cpu| cpu.root.id == 0 || cpu.host != Hosted::Running || state.spaces[cpu.root.space].id == cpu.root.id;
    state.fault != Some(Fault::TouchedTheDead) && state.cpus.iter().all(is_alive)
}

fn is_about_to_keep(cpu: &Cpu) -> bool {
    matches!(cpu.steps.last(), Some(Step::LoadRoot(_)))
        && cpu.asids.get(cpu.asid).is_some_and(|asid| asid.generation == cpu.newest)
}

fn flush_meets_switch(_: &Protocol, state: &State) -> bool {
    let looks_at = |cpu: &Cpu| match cpu.steps.last() {
        Some(Step::ReadPresence { unread, .. }) => Some(unread.trailing_zeros() as usize),
        _ => None,
    };
    state.cpus.iter().filter_map(looks_at).any(|target| state.cpus[target].presence == Presence::Switching)
}

/// False if it runs a space, and is behind a flush of it that has returned.
fn is_flushed(state: &State, cpu: &Cpu) -> bool {
    let known = cpu.asids.get(cpu.asid).map(|asid| asid.generation);
    known.zip(loaded(state, cpu)).is_none_or(|(known, space)| known >= space.completed)
}

const fn is_unasked(pending: &Pending) -> bool {
    matches!(pending, Pending::Announced(_))
}
