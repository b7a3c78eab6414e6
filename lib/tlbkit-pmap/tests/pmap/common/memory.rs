//! Frames in a map, counted; freeing one that a running CPU still translates to fails the test (INV-1).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use tlbkit::{PhysAddr, Sharers};
use tlbkit_pmap::{Frame, Memory, Purpose};

struct Held {
    shift: u8,
    references: u32,
    is_table: bool,
}

/// What happened to memory, in order, beside the flushes of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Flushed,
    Freed { is_table: bool },
}

/// Called before a frame is freed: first byte, log2 of its size, whether it is a table.
pub(crate) type Judge = Box<dyn Fn(u64, u8, bool)>;

/// Host-side physical memory.
#[derive(Default)]
pub(crate) struct TestMemory {
    words: RefCell<HashMap<u64, u64>>,
    frames: RefCell<HashMap<u64, Held>>,
    files: RefCell<HashMap<(u32, u64), u64>>,
    /// Of each table that was asked for, leaked.
    sharers: RefCell<HashMap<u64, &'static Sharers>>,
    next: Cell<u64>,
    pub(crate) judge: RefCell<Option<Judge>>,
    pub(crate) log: RefCell<Vec<Event>>,
    pub(crate) is_low: Cell<bool>,
    /// Pages that a load's fault maps; none for one.
    pub(crate) around: Cell<Option<u64>>,
    /// Loads made, and those that passing over empty entries stands for.
    pub(crate) loads: Cell<u64>,
    /// Whether it knows of empty entries without a walk to each.
    pub(crate) knows_empty: Cell<bool>,
    /// Frames left; none for no limit.
    pub(crate) left: Cell<Option<u32>>,
    /// What another CPU does, once, while this one fetches a frame for data.
    pub(crate) during_alloc: RefCell<Option<Box<dyn FnOnce()>>>,
}

impl TestMemory {
    pub(crate) fn new() -> Self {
        let memory = Self::default();
        memory.next.set(0x40_0000);
        memory
    }

    /// Frames that are not free, without the page cache's.
    pub(crate) fn used(&self) -> usize {
        self.frames.borrow().len() - self.files.borrow().len()
    }

    /// Whoever still reads it finds nonsense, not what was there, nor zeros.
    fn litter(&self, at: u64, shift: u8) {
        let mut words = self.words.borrow_mut();
        (at..at + (1 << shift)).step_by(4096).for_each(|word| {
            words.insert(word, 0xdead_0000);
        });
    }

    fn set_zero(&self, at: u64, shift: u8) {
        let mut words = self.words.borrow_mut();
        if shift < 21 {
            (at..at + (1 << shift)).step_by(8).for_each(|word| {
                words.remove(&word);
            });
        } else {
            (at..at + (1 << shift)).step_by(4096).for_each(|word| {
                words.remove(&word);
            });
        }
    }
}

impl Memory for TestMemory {
    fn load(&self, at: PhysAddr) -> u64 {
        self.loads.set(self.loads.get() + 1);
        self.words.borrow().get(&at.0).copied().unwrap_or(0)
    }

    fn store(&self, at: PhysAddr, value: u64) {
        self.words.borrow_mut().insert(at.0, value);
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        self.words.borrow_mut().insert(at.0, value).unwrap_or(0)
    }

    fn compare_exchange(&self, at: PhysAddr, current: u64, new: u64) -> Result<u64, u64> {
        let found = self.load(at);
        if found != current {
            return Err(found);
        }
        self.store(at, new);
        Ok(found)
    }

    fn copy(&self, from: PhysAddr, to: PhysAddr, shift: u8) {
        assert!(self.frames.borrow().contains_key(&from.0), "copying {from:?}, which is free");
        for offset in (0..1 << shift).step_by(4096) {
            self.store(PhysAddr(to.0 + offset), self.load(PhysAddr(from.0 + offset)));
        }
    }

    fn alloc(&self, shift: u8, purpose: Purpose) -> Option<Frame> {
        if purpose != Purpose::Table
            && let Some(during) = self.during_alloc.take()
        {
            during();
        }
        if let Some(left) = self.left.get() {
            self.left.set(Some(left.checked_sub(1)?));
        }
        let at = self.next.get().next_multiple_of(1 << shift);
        self.next.set(at + (1 << shift));
        if purpose == Purpose::Copy {
            self.litter(at, shift);
        } else {
            self.set_zero(at, shift);
        }
        let held = Held { shift, references: 1, is_table: purpose == Purpose::Table };
        self.frames.borrow_mut().insert(at, held);
        Some(Frame { at: PhysAddr(at), shift })
    }

    fn free(&self, frame: Frame) {
        let held = self.frames.borrow_mut().remove(&frame.at.0).expect("freed twice");
        assert_eq!((held.references, held.shift), (0, frame.shift), "{frame:?}");
        if let Some(judge) = &*self.judge.borrow() {
            judge(frame.at.0, frame.shift, held.is_table);
        }
        self.log.borrow_mut().push(Event::Freed { is_table: held.is_table });
        self.litter(frame.at.0, frame.shift);
    }

    fn is_low(&self) -> bool {
        self.is_low.get()
    }

    fn share(&self, at: PhysAddr) {
        self.frames.borrow_mut().get_mut(&at.0).expect("sharing a free frame").references += 1;
    }

    fn release(&self, at: PhysAddr) -> bool {
        let mut frames = self.frames.borrow_mut();
        let held = frames.get_mut(&at.0).unwrap_or_else(|| panic!("releasing {at:?}, which is free"));
        held.references = held.references.checked_sub(1).expect("released too often");
        held.references == 0
    }

    fn references(&self, at: PhysAddr) -> u32 {
        self.frames.borrow()[&at.0].references
    }

    fn split(&self, at: PhysAddr) {
        let mut frames = self.frames.borrow_mut();
        let whole = frames.remove(&at.0).expect("splitting a free frame");
        assert_eq!((whole.shift, whole.references), (21, 1));
        for n in 0..512 {
            frames.insert(at.0 + n * 4096, Held { shift: 12, references: 1, is_table: false });
        }
    }

    fn file_page(&self, file: u32, index: u64) -> PhysAddr {
        if let Some(at) = self.files.borrow().get(&(file, index)) {
            return PhysAddr(*at);
        }
        let at = self.alloc(12, Purpose::Data).expect("page cache").at;
        self.files.borrow_mut().insert((file, index), at.0);
        at
    }

    /// No frame is given out twice, so none has sharers from before.
    fn sharers(&self, table: PhysAddr) -> Option<&Sharers> {
        Some(*self.sharers.borrow_mut().entry(table.0).or_insert_with(|| Box::leak(Box::default())))
    }

    fn zero_page(&self) -> PhysAddr {
        PhysAddr(0x1000)
    }

    fn pass_empty(&self, at: PhysAddr, most: u64, loads: u32) -> u64 {
        if !self.knows_empty.get() {
            return 0;
        }
        let words = self.words.borrow();
        assert!(at.0 >> 12 == (at.0 + 8 * most.saturating_sub(1)) >> 12, "{most} entries from {at:?} leave the table");
        let is_empty = |entry: &u64| words.get(&(at.0 + 8 * entry)).is_none_or(|&word| word == 0);
        let passed = (0..most).take_while(is_empty).count() as u64;
        self.loads.set(self.loads.get() + passed * u64::from(loads));
        passed
    }

    fn fault_around(&self) -> u64 {
        self.around.get().unwrap_or(1)
    }
}
