//! The little kernel carries out programs: what each CPU does when.

use tlbkit::{Hardware, UserFlush};

use super::{Op, pages};
use crate::machine::core::Progress;
use crate::machine::world::World;

/// Brings the machine up and does what comes before everything else.
pub(crate) fn set_up(world: &World<'_>) {
    for cpu in 0..world.kernel.program.cpus.len() {
        world.machine.borrow_mut().current = cpu;
        world.with_cpu(cpu, |handle| handle.hardware().with_irqs_off(|irqs| handle.bring_up(irqs)));
    }
    for _ in 0..2 {
        world.make_space().into_iter().for_each(|space| world.kernel.set_alive(space));
    }
    for &(cpu, op) in &world.kernel.program.setup {
        world.machine.borrow_mut().current = usize::from(cpu);
        world.carry_out(usize::from(cpu), op);
    }
}

/// What the fiber of `cpu` does: its program, then idling and answering until all programs are over.
pub(crate) fn cpu_body(world: &World<'_>, cpu: usize) {
    // The first step was granted before this fiber was resumed.
    world.point();
    for &op in &world.kernel.program.cpus[cpu] {
        if !world.carry_out_issued(cpu, op) {
            world.carry_out(cpu, op);
        }
        world.reclaim(cpu);
        if world.is_gone(cpu) {
            break;
        }
    }
    if !world.is_gone(cpu) {
        world.settle_all(cpu);
    }
    world.kernel.busy.set(world.kernel.busy.get() - 1);
    {
        let mut machine = world.machine.borrow_mut();
        machine.cpus[cpu].act();
        machine.cpus[cpu].progress = Progress::Idle;
        machine.record_change();
    }
    world.with_cpu(cpu, |handle| {
        while world.kernel.busy.get() > 0 {
            handle.hardware().relax();
        }
    });
    world.machine.borrow_mut().cpus[cpu].progress = Progress::Ended;
}

impl World<'_> {
    /// One operation of one CPU; what may stay outstanding is carried out elsewhere.
    fn carry_out(&self, cpu: usize, op: Op) {
        // What the kernel remembers decides what an operation does.
        let digest = self.kernel.digest();
        self.machine.borrow_mut().learn(digest);
        match op {
            Op::Run(space) => self.run_space(cpu, usize::from(space) % self.spaces.len()),
            Op::Idle => self.leave(cpu, |handle, irqs| handle.enter_lazy(irqs)),
            Op::KernelTables => self.leave(cpu, |handle, irqs| handle.load_kernel(irqs)),
            Op::Borrow(space) => self.borrow_space(cpu, usize::from(space) % self.spaces.len()),
            Op::Offline(steps) => self.offline(cpu, steps),
            Op::Stop(steps) => self.stop(cpu, steps),
            Op::Die(steps) => self.die(cpu, steps),
            Op::KernelMap => self.map_window(cpu),
            Op::KernelUnmap => self.unmap_window(cpu),
            Op::KernelTreeEnter(leaves) => self.enter_tree(None, leaves),
            Op::KernelTreeTake(by) => self.take_tree(cpu, None, by),
            Op::OwnPage(by) => self.change_own_page(cpu, by),
            Op::KernelWalk => self.walk_in_software(cpu, self.kernel_map.root(), pages::KERNEL_TREE.start),
            Op::KernelTake(page, count) => self.take_from_window(cpu, page, count),
            Op::KernelWithdraw(page, count) => self.withdraw_from_window(cpu, page, count),
            Op::Evict(page, count) => self.evict(cpu, &pages::range(page, count)),
            Op::FlushHere(page, count) => self.flush_here(cpu, &pages::range(page, count)),
            Op::FaultAround(pages) => self.machine.borrow_mut().fault_around = u64::from(pages),
            Op::Ceiling(pages) => self.tlb.knobs().set_ceiling(u32::from(pages)),
            Op::PassIds(count) => (0..count).for_each(|_| _ = self.tlb.fresh_id()),
            Op::Host(host) => self.machine.borrow_mut().host = host,
            Op::SpareUnaccessed => {}
            Op::Isolate => self.machine.borrow_mut().isolate(cpu),
            Op::DeferUserFlush => self.tlb.knobs().set_user_flush(UserFlush::DeferredCr3),
            _ => {
                if let Some(space) = self.kernel.runs(cpu) {
                    self.carry_out_in(cpu, space, op);
                }
            }
        }
    }

    /// One operation of a task of `space`.
    fn carry_out_in(&self, cpu: usize, space: usize, op: Op) {
        match op {
            Op::Map(count, content) => self.map(cpu, space, count, content),
            Op::Touch(page, access) => self.touch(cpu, space, pages::address(page), access),
            Op::Walk(page) => self.walk_in_software(cpu, self.vm(space).space().root(), pages::address(page)),
            Op::Compute(steps) => self.compute(cpu, steps),
            Op::Unmap(page, count) => self.unmap(cpu, space, &pages::range(page, count)),
            Op::Protect(page, count, rights) => self.protect(cpu, space, &pages::range(page, count), rights),
            Op::DontNeed(page, count) => self.dontneed(cpu, space, &pages::range(page, count)),
            Op::Age(page, count) => self.age(cpu, space, &pages::range(page, count)),
            Op::Reenter(page, rights) => self.enter_again(cpu, space, pages::address(page), rights),
            Op::Clear => self.clear(cpu, space),
            Op::Fork => self.fork(cpu, space),
            Op::Share => self.share(cpu, space),
            Op::Directories => self.convert(cpu, space),
            Op::Exit => self.exit(cpu, space),
            Op::GiantMap => self.map_giants(space),
            Op::GiantUnmap => self.unmap_giants(cpu, space),
            Op::TreeEnter(leaves) => self.enter_tree(Some(space), leaves),
            Op::TreeProtect => self.protect_tree(cpu, space),
            Op::TreeTake(by) => self.take_tree(cpu, Some(space), by),
            _ => {}
        }
    }
}
