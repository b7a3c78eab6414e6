//! Memory whose words are loom's atomics. What a frame holds is a plain cell: a CPU that reaches it must come before
//! the free by happens-before, and after it was zeroed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use loom::cell::UnsafeCell;
use tlbkit::PhysAddr;
use tlbkit::sync::{AtomicU32, AtomicU64, Ordering};
use tlbkit_pmap::{Frame, Memory, Purpose};

/// A frame that was had: freed or not.
pub(crate) struct Held {
    references: AtomicU32,
    content: UnsafeCell<()>,
    is_freed: Cell<bool>,
}

impl Held {
    /// Somebody reaches what it holds.
    pub(crate) fn touch(&self) {
        assert!(!self.is_freed.get(), "INV-1: what was freed is reached");
        self.content.with(|_| ());
    }
}

/// All memory. No address is given out twice.
#[derive(Default)]
pub(crate) struct Words {
    words: RefCell<HashMap<u64, Rc<AtomicU64>>>,
    frames: RefCell<HashMap<u64, Rc<Held>>>,
    next: Cell<u64>,
    /// True while one CPU alone has tables to look through: a word that was never used is 0, whatever other CPUs do.
    pub(crate) has_one_user: Cell<bool>,
}

impl Words {
    /// The frame that begins at `at`.
    pub(crate) fn frame(&self, at: PhysAddr) -> Rc<Held> {
        Rc::clone(&self.frames.borrow()[&at.0])
    }

    /// The word at `at`, of a frame that its reader must not find freed.
    fn word(&self, at: PhysAddr) -> Rc<AtomicU64> {
        self.frame(PhysAddr(at.0 & !0xfff)).touch();
        let new = || Rc::new(AtomicU64::new(0));
        Rc::clone(self.words.borrow_mut().entry(at.0).or_insert_with(new))
    }

    /// What the walker does to an entry through which a program has stored, if it still says what was cached.
    pub(crate) fn set_bit(&self, at: PhysAddr, cached: u64, bit: u64) -> bool {
        self.compare_exchange(at, cached, cached | bit).is_ok()
    }
}

impl Memory for Words {
    fn load(&self, at: PhysAddr) -> u64 {
        if self.has_one_user.get() && !self.words.borrow().contains_key(&at.0) {
            self.frame(PhysAddr(at.0 & !0xfff)).touch();
            return 0;
        }
        // Acquire: as a load is on x86-64; partner is the Release of the stores and exchanges below.
        self.word(at).load(Ordering::Acquire)
    }

    fn store(&self, at: PhysAddr, value: u64) {
        // Release: as a store is on x86-64; partner is the Acquire in `load`.
        self.word(at).store(value, Ordering::Release);
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        // AcqRel: partners are `load` and `store`.
        self.word(at).swap(value, Ordering::AcqRel)
    }

    fn compare_exchange(&self, at: PhysAddr, current: u64, new: u64) -> Result<u64, u64> {
        // AcqRel and Acquire: partners are `load` and `store`.
        self.word(at).compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    fn copy(&self, from: PhysAddr, to: PhysAddr, _shift: u8) {
        self.frame(from).touch();
        self.frame(to).content.with_mut(|_| ());
    }

    fn alloc(&self, shift: u8, _purpose: Purpose) -> Option<Frame> {
        let at = self.next.get().max(0x40_0000).next_multiple_of(1 << shift);
        self.next.set(at + (1 << shift));
        for page in (at..at + (1 << shift)).step_by(4096) {
            let held = Held { references: AtomicU32::new(1), content: UnsafeCell::new(()), is_freed: Cell::new(false) };
            held.content.with_mut(|_| ());
            self.frames.borrow_mut().insert(page, Rc::new(held));
        }
        Some(Frame { at: PhysAddr(at), shift })
    }

    fn free(&self, frame: Frame) {
        for page in (frame.at.0..frame.at.0 + (1 << frame.shift)).step_by(4096) {
            let held = self.frame(PhysAddr(page));
            assert!(!held.is_freed.replace(true), "freed twice");
            held.content.with_mut(|_| ());
        }
    }

    fn is_low(&self) -> bool {
        false
    }

    fn share(&self, at: PhysAddr) {
        // Relaxed: the caller already owns a reference.
        self.frame(at).references.fetch_add(1, Ordering::Relaxed);
    }

    fn release(&self, at: PhysAddr) -> bool {
        // AcqRel: the last comes after all others; partner is itself.
        self.frame(at).references.fetch_sub(1, Ordering::AcqRel) == 1
    }

    fn references(&self, at: PhysAddr) -> u32 {
        // Acquire: the only holder is ordered after all former ones; partner is the AcqRel in `release`.
        self.frame(at).references.load(Ordering::Acquire)
    }

    fn split(&self, _at: PhysAddr) {
        unreachable!("no large pages here");
    }

    fn file_page(&self, _file: u32, _index: u64) -> PhysAddr {
        unreachable!("no files here");
    }

    fn zero_page(&self) -> PhysAddr {
        unreachable!("nobody reads what was never written");
    }
}
