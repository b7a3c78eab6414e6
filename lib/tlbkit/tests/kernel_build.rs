//! What a kernel's build does by itself, one without the feature `history`: so does `cargo test -p tlbkit` build it.
#![cfg(not(loom))]

use std::cell::OnceCell;
use std::num::NonZeroU32;

use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, Broadcast, CpuId, Hardware, Pcid, PhysAddr, Policy, Reason, SpaceToken, Stride, VirtAddr};
use tlbkit_testkit::{Apics, Delivery, MODERN, Machine, Stepped, TestCpu};

/// CPUs that all run one space.
struct World {
    tlb: tlbkit::Tlb<'static>,
    space: AddressSpace,
    steps: OnceCell<Stepped<&'static Self>>,
}

impl World {
    fn steps(&self) -> &Stepped<&'static Self> {
        self.steps.get().expect("its CPUs")
    }
}

impl Machine for &'static World {
    type Set = &'static [AtomicU64];
    type Token = SpaceToken;
    type Entry = ();
    type Table = ();
    type Kept = ();

    fn tlb(&self) -> &tlbkit::Tlb<'_> {
        &self.tlb
    }

    fn apics(&self) -> &Apics {
        &self.steps().apics
    }

    fn with_space_of<R>(self, _token: SpaceToken, f: impl FnOnce(&AddressSpace) -> R) -> R {
        f(&self.space)
    }

    fn interrupt(self, to: CpuId) {
        self.steps().send_interrupt(to);
    }

    fn relax(self, cpu: &TestCpu<Self>) {
        self.steps().wait_turn(cpu);
    }
}

#[test]
fn a_space_moves_once_a_flush_interrupts_as_many_cpus_as_the_policy_says() {
    let policy = Policy { broadcast: Broadcast::From { cpus: 3 }, ..Policy::DEFAULT };
    for (cpus, moves) in [(3, false), (4, true), (65, true)] {
        let tlb = tlbkit_testkit::tlb(cpus, PhysAddr(0x1000), policy);
        let space = tlbkit_testkit::space(&tlb, cpus, 0, PhysAddr(0x2000));
        let world: &'static World = Box::leak(Box::new(World { tlb, space, steps: OnceCell::new() }));
        let _set_once = world.steps.set(Stepped::new(world, &vec![MODERN; cpus], Delivery::AtOnce));
        let cpus = &world.steps().cpus;
        for core in cpus {
            core.broadcast_pages.set(NonZeroU32::new(8));
            core.with_irqs_off(|irqs| {
                world.tlb.cpu(core.id, core).bring_up(irqs);
                world.tlb.cpu(core.id, core).switch_to(&world.space, irqs);
            });
        }
        let first = world.tlb.cpu(CpuId(0), &cpus[0]);
        first.flush_range(&world.space, VirtAddr(0x40_0000), 1, Stride::Page4K, Reason::WriteProtect);
        let is_shared = |core: &TestCpu<_>| core.cr3.get().pcid() == Pcid(16);
        assert!(cpus.iter().all(|core| is_shared(core) == moves), "{} CPUs", cpus.len());
    }
}
