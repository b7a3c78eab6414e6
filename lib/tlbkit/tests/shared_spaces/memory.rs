//! Memory: which frames are in use.

use tlbkit::sync::{AtomicU64, Ordering};

const FRAMES: usize = 4096;

/// All frames. A frame that was freed is never given out again, so that its use is seen.
pub(crate) struct Frames {
    next: AtomicU64,
    is_used: Vec<AtomicU64>,
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self { next: AtomicU64::new(1), is_used: (0..FRAMES).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(crate) fn alloc(&self) -> u64 {
        // Relaxed: only the uniqueness of the number matters.
        let frame = self.next.fetch_add(1, Ordering::Relaxed);
        // Relaxed: whoever uses the frame has read its number in an entry that was written later.
        self.is_used[frame as usize].store(1, Ordering::Relaxed);
        frame
    }

    pub(crate) fn free(&self, frame: u64) {
        // Relaxed: the flush has ordered it behind every use; a use that comes later is what the test looks for.
        self.is_used[frame as usize].store(0, Ordering::Relaxed);
    }

    pub(crate) fn access(&self, frame: u64) {
        // Relaxed: as in `free`.
        assert_eq!(self.is_used[frame as usize].load(Ordering::Relaxed), 1, "frame {frame} is used after it was freed");
    }
}
