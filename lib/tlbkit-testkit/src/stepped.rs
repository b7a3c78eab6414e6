//! CPUs that all run on one thread: one acts when the test says so, or while another one waits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use tlbkit::{CpuId, Features};

use crate::apics::Apics;
use crate::cpu::{Did, Machine, TestCpu};

/// Rounds of waiting after which nothing will ever happen.
const PATIENCE: u32 = 100_000;

/// When an interrupt arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// When it is sent, if the CPU has interrupts on.
    AtOnce,
    /// When the sender waits, or a test says so.
    Queued,
    /// Never.
    Lost,
}

/// What another CPU does while one waits.
type Act<M> = Box<dyn FnOnce(M)>;

/// The CPUs of such a machine.
pub struct Stepped<M: Machine> {
    /// Each of them, by number.
    pub cpus: Vec<TestCpu<M>>,
    /// The interrupts between them.
    pub apics: Apics,
    /// When interrupts arrive from now on.
    pub delivery: Cell<Delivery>,
    /// One is done in each round of waiting, until all are done; pending interrupts arrive after them.
    pub meanwhile: RefCell<VecDeque<Act<M>>>,
    waits: Cell<u32>,
}

impl<M: Machine> Stepped<M> {
    /// One CPU for each of `features`.
    #[must_use]
    pub fn new(machine: M, features: &[Features], delivery: Delivery) -> Self {
        let apics = Apics::new(features.len());
        Self {
            cpus: apics.cpus().zip(features).map(|(id, features)| TestCpu::new(machine, id, *features)).collect(),
            apics,
            delivery: Cell::new(delivery),
            meanwhile: RefCell::default(),
            waits: Cell::new(0),
        }
    }

    /// [`Machine::interrupt`] of these CPUs.
    pub fn send_interrupt(&self, to: CpuId) {
        if self.delivery.get() != Delivery::Lost {
            self.apics.send(to);
        }
        if self.delivery.get() == Delivery::AtOnce {
            self.deliver(to.0 as usize);
        }
    }

    /// The interrupt of `cpu` arrives, if one is pending and the CPU takes it.
    pub fn deliver(&self, cpu: usize) {
        self.cpus[cpu].take_interrupt();
    }

    /// [`Machine::relax`] of these CPUs: what a test planned for this round, or else every pending interrupt arrives.
    ///
    /// # Panics
    /// After very many rounds, since nothing will ever happen then (INV-7).
    pub fn wait_turn(&self, waiter: &TestCpu<M>) {
        self.waits.set(self.waits.get() + 1);
        assert!(self.waits.get() < PATIENCE, "INV-7: cpu{} waits for ever", waiter.id.0);
        let planned = self.meanwhile.borrow_mut().pop_front();
        match planned {
            Some(act) => act(waiter.machine),
            None => self.cpus.iter().for_each(TestCpu::take_interrupt),
        }
    }

    /// Adds to what is done [meanwhile](Self::meanwhile).
    pub fn plan(&self, act: impl FnOnce(M) + 'static) {
        self.meanwhile.borrow_mut().push_back(Box::new(act));
    }

    /// What `cpu` has done since the last call.
    pub fn log(&self, cpu: usize) -> Vec<Did> {
        self.cpus[cpu].log.take()
    }

    /// Empties the log of every CPU.
    pub fn forget_logs(&self) {
        self.cpus.iter().for_each(|cpu| cpu.log.borrow_mut().clear());
    }
}
