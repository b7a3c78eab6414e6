//! Litmus tests of the machine itself: what x86-64 forbids is never among the outcomes, what it permits always is.

mod errata;
mod faults;
mod scope;
mod shapes;
mod transform;
mod tso;

use tlbkit::Features;
use tlbkit_check::MachineConfig;
use tlbkit_check::bare::{Bare, Seen};

/// A page, one in the same table, and one in another.
const X: u64 = 0x40_0000;
const Y: u64 = 0x40_1000;
const Z: u64 = 0x8000_0000;
/// What the first, the second and a third frame hold.
const OLD: u64 = 1;
const NEW: u64 = 2;

/// A machine of two CPUs, both with the same root under PCID 1, and X mapped to a frame that holds OLD.
struct Rig {
    machine: Bare,
    root: u64,
    /// Where the entry of X lies.
    pte: u64,
    old: u64,
    new: u64,
}

impl Rig {
    fn new(bits: u64) -> Self {
        Self::with(bits, &MachineConfig::default())
    }

    fn with(bits: u64, config: &MachineConfig) -> Self {
        let mut machine = Bare::new(2, config);
        let (root, old, new) = (machine.root(), machine.frame(OLD), machine.frame(NEW));
        let pte = machine.entry(root, X, 1);
        machine.store(0, pte, Bare::leaf(old, bits));
        machine.fence(0);
        [X, Y, Z].into_iter().for_each(|va| machine.watch(va));
        [0, 1].into_iter().for_each(|cpu| machine.load(cpu, root, if config.features.pcid { 1 } else { 0 }));
        Self { machine, root, pte, old, new }
    }

    /// CPU 0 writes the entry of X, and everybody can see it.
    fn set(&mut self, pte: u64) {
        self.machine.store(0, self.pte, pte);
        self.machine.fence(0);
    }

    fn may_see(&self, cpu: usize, what: Seen) -> bool {
        self.machine.loads(cpu, X).contains(&what)
    }
}

const BOTH: Features = Features { pcid: true, invpcid: true };
const NEITHER: Features = Features { pcid: false, invpcid: false };
