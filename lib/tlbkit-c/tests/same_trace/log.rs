//! What both sides write into: instructions, interrupts, frames that are freed. One machine at a time on a thread, with
//! interrupts that arrive while somebody waits.

use std::cell::RefCell;

use tlbkit::Features;

/// CPUs of the machine.
pub(crate) const CPUS: u32 = 3;

/// Something that a side has done, on which CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Did {
    Cr3(u32, u64),
    Invlpg(u32, u64),
    Invpcid(u32, u64, u16, u64),
    TogglePge(u32),
    Interrupt(u32, u32),
    InterruptOthers(u32),
    IrqsOff(u32),
    IrqsOn(u32),
    /// The number of a space is told.
    LastReference(u32, u64),
    Frees(u64),
    /// The answer of the call.
    Says(u64),
}

impl Did {
    /// The kinds of all, in order.
    pub(crate) const KINDS: [&'static str; 11] = [
        "Cr3",
        "Frees",
        "Interrupt",
        "InterruptOthers",
        "Invlpg",
        "Invpcid",
        "IrqsOff",
        "IrqsOn",
        "LastReference",
        "Says",
        "TogglePge",
    ];

    pub(crate) fn kind(&self) -> String {
        let text = format!("{self:?}");
        text.split('(').next().unwrap_or_default().to_owned()
    }
}

/// Whether a CPU takes interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Irqs {
    Off = 0,
    On = 1,
}

struct Machine {
    features: Features,
    done: Vec<Did>,
    irqs: [Irqs; CPUS as usize],
    is_interrupted: [bool; CPUS as usize],
    /// How often each CPU got other top-level tables.
    roots: [u64; CPUS as usize],
}

thread_local! {
    static MACHINE: RefCell<Machine> = const {
        RefCell::new(Machine {
            features: Features { pcid: false, invpcid: false },
            done: Vec::new(),
            irqs: [Irqs::On; CPUS as usize],
            is_interrupted: [false; CPUS as usize],
            roots: [0; CPUS as usize],
        })
    };
}

fn with<R>(f: impl FnOnce(&mut Machine) -> R) -> R {
    MACHINE.with_borrow_mut(f)
}

/// A new machine.
pub(crate) fn begin(features: Features) {
    with(|machine| {
        machine.features = features;
        machine.done.clear();
        (machine.irqs, machine.is_interrupted) = ([Irqs::On; CPUS as usize], [false; CPUS as usize]);
        machine.roots = [0; CPUS as usize];
    });
}

pub(crate) fn features() -> Features {
    with(|machine| machine.features)
}

pub(crate) fn did(what: Did) {
    with(|machine| machine.done.push(what));
}

/// What was done since the last call.
pub(crate) fn take() -> Vec<Did> {
    with(|machine| std::mem::take(&mut machine.done))
}

pub(crate) fn irqs(cpu: u32) -> Irqs {
    with(|machine| machine.irqs[cpu as usize])
}

/// Returns what was before.
pub(crate) fn set_irqs(cpu: u32, irqs: Irqs) -> Irqs {
    with(|machine| std::mem::replace(&mut machine.irqs[cpu as usize], irqs))
}

/// The instruction that turns them off; what was before.
pub(crate) fn save(cpu: u32) -> Irqs {
    did(Did::IrqsOff(cpu));
    set_irqs(cpu, Irqs::Off)
}

/// The one that turns them on again.
pub(crate) fn restore(cpu: u32, before: Irqs) {
    if before == Irqs::On {
        did(Did::IrqsOn(cpu));
    }
    set_irqs(cpu, before);
}

/// These CPUs load others of their own than before.
#[cfg(feature = "directories")]
pub(crate) fn change_roots(cpus: std::ops::Range<u32>) {
    with(|machine| cpus.for_each(|cpu| machine.roots[cpu as usize] += 1 + u64::from(cpu)));
}

/// What `cpu` loads of a space whose top-level table is `shared`.
pub(crate) fn root(cpu: u32, shared: u64) -> u64 {
    shared + 0x2000 * with(|machine| machine.roots[cpu as usize])
}

pub(crate) fn interrupt(from: u32, to: u32) {
    did(Did::Interrupt(from, to));
    with(|machine| machine.is_interrupted[to as usize] = true);
}

pub(crate) fn interrupt_others(from: u32) {
    did(Did::InterruptOthers(from));
    with(|machine| (0..CPUS).filter(|&to| to != from).for_each(|to| machine.is_interrupted[to as usize] = true));
}

/// `cpu` waits: whoever was interrupted meanwhile answers, by `answer`.
pub(crate) fn deliver(cpu: u32, answer: impl Fn(u32)) {
    for to in (0..CPUS).filter(|&to| to != cpu) {
        let is_taken = with(|machine| {
            machine.irqs[to as usize] == Irqs::On && std::mem::take(&mut machine.is_interrupted[to as usize])
        });
        if is_taken {
            set_irqs(to, Irqs::Off);
            answer(to);
            set_irqs(to, Irqs::On);
        }
    }
}
