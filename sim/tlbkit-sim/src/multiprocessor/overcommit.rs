//! A host that shares its CPUs out among guests: it takes a CPU away wherever it is, and gives it back later.
//!
//! This guest alone is simulated. The others are taken to be like it, so that on each CPU another guest wants to run as
//! often as this guest's own CPUs do at that moment; which ones do is drawn from the seed.

use std::cell::{Cell, RefCell};

use tlbkit::HostFlush;
use tlbkit_arch::SplitMix64;
use tlbkit_machine::Machine;

use super::agenda::NEVER;
use super::system::Multiprocessor;
use crate::observer::{Cause, Class};

/// Whether the guest's kernel has its host flush the CPUs that the host has taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ParavirtualFlush {
    /// It does not, and waits for them.
    #[default]
    Off,
    /// It does, as KVM's guests do since Linux 4.16.
    On,
}

/// One CPU, as its host sees it.
#[derive(Debug)]
struct Lent {
    /// When the host looks whether another guest wants it.
    until: Cell<u64>,
    /// Until when it is taken away; 0 while it runs.
    away_until: Cell<u64>,
    is_to_be_flushed: Cell<bool>,
}

/// The host of this guest.
#[derive(Debug)]
pub(super) struct Overcommit {
    guests: u64,
    slice_cycles: u64,
    random: RefCell<SplitMix64>,
    cpus: Box<[Lent]>,
}

impl Overcommit {
    /// The host of the machine, with so many guests; none if it has but this one.
    pub(super) fn of(machine: &Machine, guests: u64, seed: u64, cpus: usize) -> Option<Self> {
        let host = machine.host.as_ref().filter(|_| guests > 1)?;
        let slice_cycles = (host.period_cycles.cycles() / guests).max(1);
        let mut random = SplitMix64::new(seed ^ 0x4057);
        let lent = |_| Lent {
            until: Cell::new(random.below(slice_cycles)),
            away_until: Cell::new(0),
            is_to_be_flushed: Cell::new(false),
        };
        let cpus = (0..cpus).map(lent).collect();
        Some(Self { guests, slice_cycles, random: RefCell::new(random), cpus })
    }
}

impl Multiprocessor {
    /// When the host looks next whether it takes the CPU away.
    pub(crate) fn lent_until(&self, cpu: usize) -> u64 {
        self.overcommit.as_ref().map_or(NEVER, |host| host.cpus[cpu].until.get())
    }

    /// Until when the host has taken the CPU away: nothing wakes it before.
    pub(super) fn away_until(&self, cpu: usize) -> u64 {
        self.overcommit.as_ref().map_or(0, |host| host.cpus[cpu].away_until.get())
    }

    /// The running CPU has waked up, and gets what is left of a slice: drawn evenly, as CPUs that wake up together are
    /// not taken away together.
    pub(super) fn lend_again(&self) {
        if let Some(host) = &self.overcommit {
            let left = 1 + host.random.borrow_mut().below(host.slice_cycles);
            host.cpus[self.cpu()].until.set(self.running().now() + left);
        }
    }

    /// The slice of the running CPU is over: it is taken away for as long as other guests want it.
    pub(super) fn end_slice(&'static self) {
        let (cpu, processor) = (self.cpu(), self.running());
        let Some(host) = &self.overcommit else { return };
        let lent = &host.cpus[cpu];
        let wanting = self.processors.iter().filter(|other| other.class.get() == Class::Task).count() as u64;
        let all = self.cpus() as u64;
        let others = (1..host.guests).filter(|_| host.random.borrow_mut().below(all) < wanting).count() as u64;
        if others > 0 {
            let back_at = processor.now() + others * host.slice_cycles;
            lent.away_until.set(back_at);
            processor.pauses_until.set(back_at);
            processor.spin.borrow_mut().disturb();
            self.observer.preempted_by_host();
            self.hand_over(back_at);
            processor.advance_to(self.turn_began_at(), Cause::Preempted);
            processor.pauses_until.set(0);
            lent.away_until.set(0);
            if lent.is_to_be_flushed.take() {
                processor.mmu.borrow_mut().flush_by_host();
            }
        }
        lent.until.set(processor.now() + host.slice_cycles);
    }

    /// What the host flushes, if the kernel has it do so.
    pub(super) fn host_flush(&self) -> HostFlush {
        match (&self.overcommit, self.paravirtual_flush) {
            (Some(_), ParavirtualFlush::On) => HostFlush::TranslationsAndPaths,
            _ => HostFlush::None,
        }
    }

    /// Marks the CPU to be flushed before it runs again. False if the host is running it.
    pub(super) fn mark_if_away(&self, cpu: usize) -> bool {
        let now = self.running().now();
        let Some(host) = &self.overcommit else { return false };
        let is_away = host.cpus[cpu].away_until.get() > now;
        if is_away {
            host.cpus[cpu].is_to_be_flushed.set(true);
        }
        is_away
    }
}
