//! CPUs that are threads: each makes its own [`TestCpu`], and takes its interrupts where it looks for them.

use std::cell::RefCell;

use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, Cr3, PhysAddr, Policy, SpaceToken, Tlb};
use tlbkit_arch::Instruction;

use crate::apics::Apics;
use crate::cpu::{Machine, TestCpu};

/// What the threads share, where spaces live as long as the machine does.
pub struct Threads {
    /// The protocol's part of the machine.
    pub tlb: Tlb<'static>,
    /// The interrupts between its CPUs.
    pub apics: Apics,
    /// By token.
    pub spaces: Vec<AddressSpace>,
}

impl Threads {
    /// As many CPUs as that, and one space for each of `roots`.
    #[must_use]
    pub fn new(policy: Policy, cpus: usize, kernel_root: PhysAddr, roots: &[PhysAddr]) -> Self {
        let tlb = crate::tlb(cpus, kernel_root, policy);
        let spaces = roots.iter().enumerate().map(|(n, root)| crate::space(&tlb, cpus, n, *root)).collect();
        Self { tlb, apics: Apics::new(cpus), spaces }
    }
}

impl Machine for &Threads {
    type Set = &'static [AtomicU64];
    type Token = SpaceToken;
    type Entry = usize;
    type Table = ();
    /// What is done after each CR3 write, with interrupts off.
    type Kept = RefCell<Option<Box<dyn Fn(Cr3)>>>;

    fn tlb(&self) -> &Tlb<'_> {
        &self.tlb
    }

    fn apics(&self) -> &Apics {
        &self.apics
    }

    fn with_space_of<R>(self, token: SpaceToken, f: impl FnOnce(&AddressSpace) -> R) -> R {
        f(&self.spaces[token.0 as usize])
    }

    fn after(self, cpu: &TestCpu<Self>, instruction: Instruction) {
        if let (Instruction::WriteCr3(cr3), Some(act)) = (instruction, &*cpu.kept.borrow()) {
            act(cr3);
        }
    }
}
