//! Carries out the operations of a trace.

use super::core::Core;
use super::port::Port;
use super::state::Replay;
use crate::deduce::{Deduced, Held};
use crate::op::{Cause, Op, OpKind, Space, Taken};
use tlbkit::{Cpu, CpuSetUpkeep, Isolation, Reason, Scope, TableFree, TlbGather, Translations, VirtAddr};
use tlbkit_trace::Syscall;

const USER_PAGES: u64 = 1 << 35;

impl<'k> Replay<'k> {
    pub(super) fn port(&self, cpu: u32) -> Port<'_, 'k> {
        Port { replay: self, cpu }
    }

    /// Brings the CPUs up, and has them hold what they held when the trace began. This is charged to no caller.
    pub(super) fn begin(&self, deduced: &Deduced) {
        let off = |cpu: u32| &self.cores[cpu as usize];
        (0..deduced.cpus).for_each(|cpu| off(cpu).with_irqs_off(|irqs| self.port(cpu).cpu().bring_up(irqs)));
        for resident in deduced.residents.iter().rev() {
            let port = self.port(resident.cpu);
            let cpu = port.cpu();
            off(resident.cpu).with_irqs_off(|irqs| {
                cpu.switch_to(self.space(resident.space), irqs);
                cpu.enter_lazy(irqs);
                if resident.how == Held::Tagged {
                    cpu.load_kernel(irqs);
                }
            });
        }
        self.cores.iter().for_each(|core| _ = core.take_work());
    }

    pub(super) fn step(&self, op: &Op) {
        self.now_ns.set(op.time_ns);
        let core = &self.cores[op.cpu as usize];
        core.pass(op.time_ns);
        // Without isolation the way into the kernel and back writes no register. Three of four operations are only
        // that.
        let is_no_switch = matches!(op.kind, OpKind::Touch { .. } | OpKind::Call);
        if is_no_switch && self.tlb.policy().isolation == Isolation::Off && !core.has_worked() {
            core.is_user.set(core.is_busy.get());
        } else {
            self.who.set(Some(op.caller()));
            self.port(op.cpu).in_kernel(|cpu| {
                self.obey(cpu, core, op);
                self.port(op.cpu).settle();
            });
        }
        if let OpKind::Touch { page } = op.kind {
            core.touch(page);
        }
    }

    fn obey(&self, cpu: &Cpu<'_, 'k, Port<'_, 'k>>, core: &Core, op: &Op) {
        match op.kind {
            OpKind::Run { space } => {
                core.is_busy.set(true);
                core.party.set(op.party);
                core.with_irqs_off(|irqs| cpu.switch_to(self.space(space), irqs));
            }
            OpKind::Idle => {
                core.is_busy.set(false);
                core.with_irqs_off(|irqs| cpu.enter_lazy(irqs));
            }
            OpKind::Touch { .. } | OpKind::Call => {}
            OpKind::Revoke { space, taken, cause } => {
                let frees_tables = taken.frees_tables || self.asks_all(taken, cause);
                self.revoke(cpu, space, Taken { frees_tables, ..taken }, reason_of(cause));
            }
            OpKind::Retire { space, .. } => self.retire(cpu, space),
        }
    }

    fn revoke(&self, cpu: &Cpu<'_, 'k, Port<'_, 'k>>, space: Space, taken: Taken, why: Reason) {
        let (first, base_pages) = if taken.is_all() { (0, USER_PAGES) } else { (taken.page, taken.pages) };
        self.target.set(Some(space));
        self.revoked.set((first, first + base_pages));
        let mut gather = TlbGather::new(Translations::OfSpace(self.space(space)), ());
        if taken.frees_tables {
            gather.tables_freed();
        }
        let translations = base_pages * 4096 / taken.stride.bytes();
        gather.range(cpu, VirtAddr(first << 12), translations, taken.stride, Scope::NonGlobal, why);
        gather.flush(cpu).into_frames();
        self.target.set(None);
    }

    /// The last thread of a space has left it or holds it lazily from now on. The space is destroyed.
    fn retire(&self, cpu: &Cpu<'_, 'k, Port<'_, 'k>>, space: Space) {
        self.let_go(cpu, space);
        let has_switched = |other: &u32| *other != cpu.id().0 && self.port(*other).cpu().is_running(self.space(space));
        (0..self.cores.len() as u32).filter(has_switched).for_each(|other| {
            self.pass(other);
            self.port(other).in_kernel(|other| self.let_go(other, space));
        });
        let frees_tables = self.tlb.policy().history.table_free() == TableFree::AtOnce;
        self.revoke(cpu, space, Taken { frees_tables, ..Taken::ALL }, Reason::RemoveAll);
        // Nothing is freed here, so it does not matter whether the tables must wait for the last lazy CPU.
        let _ = cpu.destroy(self.space(space));
    }

    /// The CPU leaves the space, of which no program runs there any more. This is needed when a thread ended on another
    /// CPU: no event tells that it had left this CPU before, and the switch comes later or was lost.
    fn let_go(&self, cpu: &Cpu<'_, 'k, Port<'_, 'k>>, space: Space) {
        let core = &self.cores[cpu.id().0 as usize];
        if cpu.is_running(self.space(space)) {
            core.is_busy.set(false);
            core.with_irqs_off(|irqs| cpu.enter_lazy(irqs));
        }
        if cpu.is_running(self.space(space)) {
            core.with_irqs_off(|irqs| cpu.load_kernel(irqs));
        }
        self.port(cpu.id().0).settle();
    }

    /// Whether Linux 6 also asks CPUs of the set that do not run the space, and that then leave the set, although no
    /// table is freed. It does so at a fork, where it flushes as if tables were freed, and where the trace shows it.
    fn asks_all(&self, taken: Taken, cause: Cause) -> bool {
        let is_linux_6 = matches!(self.tlb.policy().cpu_set, CpuSetUpkeep::TrimmedWithTables { .. });
        is_linux_6 && (taken.trims || cause == Cause::Call(Syscall::Clone))
    }
}

const fn reason_of(cause: Cause) -> Reason {
    match cause {
        Cause::CopyOnWrite => Reason::CopyOnWrite,
        Cause::Call(Syscall::Mprotect) => Reason::WriteProtect,
        Cause::Call(Syscall::Clone | Syscall::Clone3 | Syscall::Vfork) => Reason::Fork,
        Cause::Call(Syscall::ExitGroup | Syscall::Execve) => Reason::RemoveAll,
        Cause::Call(_) | Cause::DontNeed | Cause::Free => Reason::RemovePte,
    }
}
