//! Interrupts by hand: which of them perfect knowledge would have sent.

use tlbkit::Cr3;
use tlbkit_pmap::{Memory, Purpose};

use super::*;
use crate::kernel::{Phys, Pressure};
use crate::mmu::{Access, Overlap, Privilege};

const PAGE: u64 = 0x40_0000_0000;
const OTHER_PAGE: u64 = PAGE + 4096;
const GLOBAL: u64 = 1 << 8;
const KERNEL: Pcid = Pcid(3);
const USER: Pcid = Pcid(0x803);

/// One space with two pages.
struct Space {
    phys: Phys,
    root: PhysAddr,
    last_table: PhysAddr,
}

fn space(leaf_flags: u64) -> Space {
    let phys = Phys::new(Pressure::None);
    // Two frames: a root for each half.
    let root = phys.alloc(13, Purpose::Table).unwrap().at;
    let mut table = root;
    for level in (1..4).rev() {
        let below = phys.alloc(12, Purpose::Table).unwrap().at;
        let index = PAGE >> (12 + 9 * level) & 511;
        phys.store(PhysAddr(table.0 + 8 * index), below.0 | 7);
        if level == 3 {
            phys.store(PhysAddr(table.0 + 4096 + 8 * index), below.0 | 7);
        }
        table = below;
    }
    for (index, va) in [PAGE, OTHER_PAGE].into_iter().enumerate() {
        let frame = phys.alloc(12, Purpose::Data).unwrap().at;
        assert_eq!(va >> 12 & 511, index as u64);
        phys.store(PhysAddr(table.0 + 8 * index as u64), frame.0 | 7 | leaf_flags);
    }
    Space { phys, root, last_table: table }
}

/// A CPU that has used one page of the space under a tag.
fn cpu(space: &Space, va: u64, tag: Pcid) -> Mmu {
    let machine = crate::machine::Machine::builtin("skylake-desktop-pti").unwrap();
    let mut mmu = Mmu::new(machine.mmu());
    let half = if tag == USER { USER_HALF_BYTES } else { 0 };
    mmu.write_cr3(Cr3::flushing(PhysAddr(space.root.0 + half), tag));
    mmu.translate(VirtAddr(va), Access::Read, Privilege::User, Overlap::Dependent, &space.phys).unwrap();
    mmu
}

fn change(owner: Owner) -> Operation {
    Operation::new(owner, Some((PAGE, 1)))
}

#[test]
fn a_cpu_needs_telling_if_it_runs_the_space_and_holds_the_page() {
    let space = space(0);
    let operation = change(Owner::Space(space.root));
    assert!(operation.concerns(&cpu(&space, PAGE, KERNEL), Class::Task));
    assert!(!operation.concerns(&cpu(&space, OTHER_PAGE, KERNEL), Class::Task), "it never used this page");
    assert!(!operation.concerns(&cpu(&space, PAGE, KERNEL), Class::Idle), "no program can use what it holds");
}

#[test]
fn a_cpu_that_has_gone_to_another_space_is_left_alone() {
    let (space, other) = (space(0), space(0));
    let mut mmu = cpu(&space, PAGE, KERNEL);
    mmu.write_cr3(Cr3::flushing(PhysAddr(other.root.0 + (1 << 30)), Pcid(4)));
    assert!(mmu.holds(KERNEL, VirtAddr(PAGE), 1, Stride::Page4K), "its tag still has the entry");
    assert!(!change(Owner::Space(space.root)).concerns(&mmu, Class::Task));
}

#[test]
fn an_entry_of_the_user_half_counts_while_the_kernel_half_is_loaded() {
    let space = space(0);
    let mut mmu = cpu(&space, PAGE, USER);
    mmu.write_cr3(Cr3::keeping(space.root, KERNEL));
    assert!(change(Owner::Space(space.root)).concerns(&mmu, Class::Task));
}

#[test]
fn a_path_through_a_freed_table_concerns_even_an_idle_cpu() {
    let space = space(0);
    let mmu = cpu(&space, OTHER_PAGE, KERNEL);
    let mut operation = change(Owner::Space(space.root));
    operation.note_unhooked(space.root);
    assert!(!operation.concerns(&mmu, Class::Idle), "no path leads to that table");
    operation.note_unhooked(space.last_table);
    assert!(operation.concerns(&mmu, Class::Idle));
}

#[test]
fn an_entry_of_the_kernel_counts_under_every_tag_and_globally() {
    for flags in [0, GLOBAL] {
        let space = space(flags);
        let mut mmu = cpu(&space, PAGE, KERNEL);
        mmu.write_cr3(Cr3::flushing(space.root, Pcid(5)));
        assert!(change(Owner::Kernel).concerns(&mmu, Class::Idle), "flags {flags:#x}");
    }
    assert!(!change(Owner::Kernel).concerns(&cpu(&space(0), OTHER_PAGE, KERNEL), Class::Task));
}
