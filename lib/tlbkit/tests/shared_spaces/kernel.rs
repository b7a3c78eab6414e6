//! What the CPUs of the kernel share: processes in a table, each in an `Arc`.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Barrier, Mutex};

use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, PhysAddr, SpaceToken, Tlb, VirtAddr};
use tlbkit_testkit::Apics;

use super::memory::Frames;

pub(crate) const CPUS: usize = 3;
pub(crate) const PAGES: usize = 4;
const SET_WORDS: usize = <AddressSpace>::set_words(CPUS);

/// What each space keeps its CPUs in.
pub(crate) type SetOfCpus = [AtomicU64; SET_WORDS];

pub(crate) const fn va_of(page: usize) -> VirtAddr {
    VirtAddr(0x40_0000 + 0x1000 * page as u64)
}

/// A process: its tasks share it by `Arc`.
pub(crate) struct Process {
    pub(crate) space: AddressSpace<SetOfCpus>,
    /// The page table, a frame a page; 0 is no entry.
    pub(crate) entries: [AtomicU64; PAGES],
    /// Tasks that have not ended.
    pub(crate) tasks: AtomicUsize,
}

/// The kernel's name of a process: its place in the table.
#[derive(Clone, Copy)]
pub(crate) struct Pid(pub(crate) usize);

impl From<SpaceToken> for Pid {
    fn from(token: SpaceToken) -> Self {
        Self(token.0 as usize)
    }
}

/// What all CPUs share.
pub(crate) struct Kernel {
    pub(crate) tlb: &'static Tlb<'static>,
    pub(crate) processes: Mutex<Vec<Option<Arc<Process>>>>,
    pub(crate) frames: Frames,
    pub(crate) apics: Apics,
    pub(crate) tasks_left: AtomicUsize,
    /// All CPUs begin together.
    pub(crate) start: Barrier,
}

impl Kernel {
    pub(crate) fn new(tlb: &'static Tlb<'static>, tasks: usize) -> Self {
        Self {
            tlb,
            processes: Mutex::new(Vec::new()),
            frames: Frames::new(),
            apics: Apics::new(CPUS),
            tasks_left: AtomicUsize::new(tasks),
            start: Barrier::new(CPUS),
        }
    }

    pub(crate) fn make_process(&self, tasks: usize) -> Arc<Process> {
        let mut processes = self.processes.lock().unwrap();
        let (token, root) = (SpaceToken(processes.len() as u64), PhysAddr(0x1000 * (1 + processes.len() as u64)));
        let process = Arc::new(Process {
            space: AddressSpace::new(self.tlb.fresh_id(), token, root, [const { AtomicU64::new(0) }; SET_WORDS]),
            entries: std::array::from_fn(|_| AtomicU64::new(self.frames.alloc())),
            tasks: AtomicUsize::new(tasks),
        });
        processes.push(Some(Arc::clone(&process)));
        process
    }

    /// The process with this name. The lock is free again when it returns.
    pub(crate) fn process(&self, pid: Pid) -> Arc<Process> {
        self.processes.lock().unwrap()[pid.0].clone().expect("a process that lives")
    }
}
