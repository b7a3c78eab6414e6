//! Random programs on two CPUs against a plain map of what each page must hold. The machine's TLBs forget nothing by
//! themselves, so a missing flush shows as a wrong value or as a frame freed too early (INV-1).

use crate::common::Machine;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tlbkit::PRESETS;
use tlbkit_pmap::{Backing, ChildFill, Error, Fault, Protection, Region, Vm};

const PAGE: u64 = 4096;

#[derive(Clone, Copy, Debug)]
enum Op {
    Map(Region),
    Unmap(u64, u64),
    Protect(u64, u64, Protection),
    DontNeed(u64, u64),
    Write(u64),
    Read(u64),
    Fork,
    Exec,
    Exit,
}

fn region(pages: u64, backing: Backing) -> Region {
    Region::new(pages, backing, Protection::ReadWrite)
}

fn op() -> impl Strategy<Value = Op> {
    let protection = prop_oneof![
        Just(Protection::None),
        Just(Protection::Read),
        Just(Protection::ReadWrite),
        Just(Protection::ReadWrite)
    ];
    let backing = prop_oneof![Just(Backing::AnonPrivate), Just(Backing::FilePrivate)];
    let place = || (0..2000u64, 1..40u64);
    prop_oneof![
        3 => (1..20u64, backing).prop_map(|(pages, backing)| Op::Map(region(pages, backing))),
        1 => (512..700u64).prop_map(|pages| Op::Map(region(pages, Backing::AnonPrivate).large())),
        3 => place().prop_map(|(at, pages)| Op::Unmap(at, pages)),
        3 => (place(), protection).prop_map(|((at, pages), p)| Op::Protect(at, pages, p)),
        3 => place().prop_map(|(at, pages)| Op::DontNeed(at, pages)),
        12 => (0..2000u64).prop_map(Op::Write),
        12 => (0..2000u64).prop_map(Op::Read),
        2 => Just(Op::Fork),
        1 => Just(Op::Exec),
        1 => Just(Op::Exit),
    ]
}

#[derive(Clone, Copy)]
struct Page {
    value: u64,
    protection: Protection,
}

/// A space and what its pages must hold.
struct Program {
    vm: &'static Vm<'static>,
    pages: BTreeMap<u64, Page>,
}

impl Program {
    /// The `n`-th mapped page, counted round.
    fn page(&self, n: u64) -> Option<u64> {
        let count = self.pages.len().max(1);
        self.pages.keys().nth(n as usize % count).copied()
    }

    fn map(&mut self, m: &'static Machine, n: u32, region: Region) {
        let Ok(va) = self.vm.map_region(&m.cpu(n), region) else { return };
        let fresh = Page { value: 0, protection: region.protection };
        let before = self.pages.len();
        self.pages.extend((0..region.pages).map(|page| (va + page * PAGE, fresh)));
        assert_eq!(self.pages.len(), before + region.pages as usize, "a mapping over another");
    }

    fn inside(&mut self, va: u64, pages: u64) -> impl Iterator<Item = &mut Page> {
        self.pages.range_mut(va..va + pages * PAGE).map(|(_, page)| page)
    }
}

struct World {
    m: &'static Machine,
    programs: Vec<Program>,
    stamp: u64,
}

impl World {
    fn step(&mut self, who: usize, n: u32, op: Op) {
        let m = self.m;
        if self.programs.is_empty() {
            self.programs.push(Program { vm: m.space(), pages: BTreeMap::new() });
        }
        let who = who % self.programs.len();
        let has_room = self.programs.len() < 4;
        let program = &mut self.programs[who];
        let vm = program.vm;
        m.run(n, vm);
        match op {
            Op::Map(region) => program.map(m, n, region),
            Op::Unmap(at, pages) => {
                let Some(va) = program.page(at) else { return };
                match vm.unmap(&m.cpu(n), m.mem, va, pages) {
                    Ok(()) => program.pages.retain(|page, _| !(va..va + pages * PAGE).contains(page)),
                    Err(error) => assert_eq!(error, Error::TooManyRegions),
                }
            }
            Op::Protect(at, pages, protection) => {
                let Some(va) = program.page(at) else { return };
                if vm.protect(&m.cpu(n), m.mem, va, pages, protection).is_ok() {
                    program.inside(va, pages).for_each(|page| page.protection = protection);
                }
            }
            Op::DontNeed(at, pages) => {
                let Some(va) = program.page(at) else { return };
                vm.dontneed(&m.cpu(n), m.mem, va, pages).unwrap();
                program.inside(va, pages).for_each(|page| page.value = 0);
            }
            Op::Write(at) => {
                let Some(va) = program.page(at) else { return };
                self.stamp += 1;
                let page = program.pages.get_mut(&va).unwrap();
                let may = page.protection == Protection::ReadWrite;
                page.value = if may { self.stamp } else { page.value };
                let expected = if may { Ok(()) } else { Err(Fault::Bad) };
                assert_eq!(m.write(n, vm, va, self.stamp), expected);
            }
            Op::Read(at) => {
                let Some(va) = program.page(at) else { return };
                let page = program.pages[&va];
                let may = page.protection != Protection::None;
                assert_eq!(m.read(n, vm, va), if may { Ok(page.value) } else { Err(Fault::Bad) });
            }
            Op::Fork if has_room => {
                let child = Program { vm: m.space(), pages: program.pages.clone() };
                vm.fork(&m.cpu(n), m.mem, child.vm, ChildFill::ByPolicy).unwrap();
                self.programs.push(child);
            }
            Op::Fork => {}
            Op::Exec => {
                vm.clear(&m.cpu(n), m.mem);
                program.pages.clear();
            }
            Op::Exit => self.exit(who, n),
        }
    }

    /// Reads every page, so that what a flush missed cannot hide, and ends the program.
    fn exit(&mut self, who: usize, n: u32) {
        let (m, program) = (self.m, self.programs.swap_remove(who));
        for (va, page) in program.pages.iter().filter(|(_, page)| page.protection != Protection::None) {
            assert_eq!(m.read(n, program.vm, *va), Ok(page.value));
        }
        // The other CPU must not run a program that ends.
        m.idle(1 - n);
        m.end(n, program.vm);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn inv_1_random_programs_read_what_they_wrote_and_leak_nothing(
        preset in 0..PRESETS.len(),
        steps in prop::collection::vec((0..4usize, 0..2u32, op()), 1..120),
    ) {
        let mut world = World { m: Machine::new(2, PRESETS[preset].policy), programs: Vec::new(), stamp: 0 };
        for (who, n, op) in steps {
            world.step(who, n, op);
        }
        while !world.programs.is_empty() {
            world.exit(0, 0);
        }
        prop_assert_eq!(world.m.used(), 0, "frames leaked under {}", PRESETS[preset].name);
    }
}
