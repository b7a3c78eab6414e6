//! Does what a trace asks, with the real protocol, on CPUs that answer at once.
//!
//! There is no time but the trace's: an interrupt is taken where it is sent, so nothing waits and nothing races. What
//! is counted is what the protocol decides, which is the same whenever an answer comes.

mod core;
mod port;

use crate::cost::Prices;
use crate::deduce::Deduced;
use crate::op::{Cause, Op, Space, Step};
use crate::tally::{Tally, Who};
use core::Core;
use port::Port;
use std::cell::{Cell, RefCell};
use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, Cpu, CpuId, CpuSetUpkeep, CpuState, IrqsOff, PhysAddr, Policy, Reason, Scope, SpaceToken};
use tlbkit::{Stride, TableFree, Target, Tlb, TlbGather, VirtAddr};
use tlbkit_sim::machine::Machine;
use tlbkit_trace::Syscall;

const KERNEL_ROOT: PhysAddr = PhysAddr(0x1000);
const USER_PAGES: u64 = 1 << 35;

/// CPUs, spaces and counts.
pub(super) struct World<'k> {
    tlb: Tlb<'k>,
    spaces: Vec<AddressSpace<'k>>,
    cores: Vec<Core>,
    tally: RefCell<Tally>,
    prices: Prices,
    /// Most pages that were ever mapped in each space.
    most_pages: &'k [u64],
    now_ns: Cell<u64>,
    /// Who is charged.
    who: Cell<Option<Who>>,
    /// Whose translations are being flushed.
    target: Cell<Option<Space>>,
}

/// Runs what `deduced` asks under `policy`, at the prices of `machine`.
#[must_use]
pub fn replay(deduced: &Deduced, policy: Policy, machine: &Machine) -> Tally {
    let cpus = deduced.cpus as usize;
    let states: Vec<CpuState> = (0..cpus).map(|_| CpuState::new()).collect();
    let zeros = |words: usize| (0..words).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let matrix = zeros(Tlb::matrix_words(cpus));
    let words = AddressSpace::set_words(cpus);
    let sets = zeros(words * deduced.spaces as usize);
    let tlb = Tlb::new(&states, &matrix, KERNEL_ROOT, policy);
    let make = |(n, set)| {
        let root = PhysAddr(0x10_0000 + n as u64 * 0x2000);
        AddressSpace::new(tlb.fresh_id(), SpaceToken(n as u64), root, set)
    };
    let world = World {
        spaces: sets.chunks(words).enumerate().map(make).collect(),
        cores: (0..cpus).map(|_| Core::default()).collect(),
        tally: RefCell::default(),
        prices: Prices::new(machine),
        most_pages: &deduced.most_pages,
        now_ns: Cell::new(0),
        who: Cell::new(None),
        target: Cell::new(None),
        tlb,
    };
    (0..deduced.cpus).for_each(|cpu| world.cpu(cpu, &world.port(cpu)).bring_up(&IrqsOff::assume()));
    world.tally.take();
    deduced.ops.iter().for_each(|op| world.step(op));
    world.tally.into_inner()
}

impl<'k> World<'k> {
    fn port(&self, cpu: u32) -> Port<'_, 'k> {
        Port { world: self, cpu }
    }

    fn cpu<'w>(&'w self, cpu: u32, port: &'w Port<'w, 'k>) -> Cpu<'w, 'k, Port<'w, 'k>> {
        self.tlb.cpu(CpuId(cpu), port)
    }

    fn space(&self, space: Space) -> &AddressSpace<'k> {
        &self.spaces[space.0 as usize]
    }

    fn step(&self, op: &Op) {
        self.now_ns.set(op.time_ns);
        let port = self.port(op.cpu);
        let cpu = self.cpu(op.cpu, &port);
        let irqs = IrqsOff::assume();
        let cause = match op.step {
            Step::Revoke { cause, .. } | Step::Retire { cause, .. } => Some(cause),
            _ => None,
        };
        self.who.set(Some(Who { comm: op.comm, cause }));
        match op.step {
            Step::Run { space } => cpu.switch_to(self.space(space), &irqs),
            Step::Idle => cpu.enter_lazy(&irqs),
            Step::Touch { page } => self.cores[op.cpu as usize].touch(page),
            Step::Revoke { space, page, pages, frees_tables, cause } => {
                let frees_tables = frees_tables || self.fork_frees_tables(cause);
                self.revoke(&cpu, space, page, pages, frees_tables, reason_of(cause));
            }
            Step::Retire { space, .. } => self.retire(&cpu, space, &irqs),
        }
        port.settle();
    }

    fn revoke(&self, cpu: &Cpu<'_, 'k, Port<'_, 'k>>, space: Space, page: u64, pages: u64, tables: bool, why: Reason) {
        self.target.set(Some(space));
        let mut gather = TlbGather::new(Target::Space(self.space(space)), ());
        if tables {
            gather.tables_freed();
        }
        let (first, count) = if pages == u64::MAX { (0, USER_PAGES) } else { (page, pages) };
        gather.range(cpu, VirtAddr(first << 12), count, Stride::Page4K, Scope::Local, why);
        gather.flush(cpu).into_frames();
    }

    /// The last thread has left its space, or holds it lazily from here on; then all of it goes.
    fn retire(&self, cpu: &Cpu<'_, 'k, Port<'_, 'k>>, space: Space, irqs: &IrqsOff) {
        if cpu.is_running(self.space(space)) {
            cpu.enter_lazy(irqs);
        }
        if cpu.is_running(self.space(space)) {
            cpu.load_kernel(irqs);
        }
        self.port(cpu.id().0).settle();
        let at_once = self.tlb.policy().table_free == TableFree::AtOnce;
        self.revoke(cpu, space, 0, u64::MAX, at_once, Reason::RemoveAll);
        // Whether the tables must wait for the last lazy CPU is nobody's business here.
        let _ = cpu.destroy(self.space(space));
    }

    /// Linux 6 flushes at fork as if tables went, though none do.
    fn fork_frees_tables(&self, cause: Cause) -> bool {
        let is_linux_6 = matches!(self.tlb.policy().cpu_set, CpuSetUpkeep::TrimmedWithTables { .. });
        is_linux_6 && cause == Cause::Call(Syscall::Clone)
    }

    /// What the space may have in a TLB, at most: its pages, or what fits.
    fn most_entries(&self, space: usize) -> u64 {
        self.most_pages[space].min(self.prices.entries)
    }
}

const fn reason_of(cause: Cause) -> Reason {
    match cause {
        Cause::CopyOnWrite => Reason::CopyOnWrite,
        Cause::Call(Syscall::Mprotect) => Reason::WriteProtect,
        Cause::Call(Syscall::Clone | Syscall::Clone3 | Syscall::Vfork) => Reason::Fork,
        Cause::Call(Syscall::ExitGroup | Syscall::Execve) => Reason::RemoveAll,
        Cause::Call(_) => Reason::RemovePte,
    }
}
