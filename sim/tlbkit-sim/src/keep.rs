//! Objects that live as long as one run.
//!
//! The protocol borrows its arrays and its spaces; coroutines may borrow only what is `'static`. So a run's objects
//! are kept here, lent out as `'static`, and freed when the run's kernel and machine are taken down, which is the last
//! thing that happens.

use tlbkit::sync::AtomicU64;

/// Words of one cache line.
const LINE_WORDS: usize = 8;

/// Owns one object and lends it out for the whole run.
pub(crate) struct Keep<T: ?Sized>(*mut T);

impl<T: ?Sized> Keep<T> {
    pub(crate) fn new(object: Box<T>) -> Self {
        Self(Box::into_raw(object))
    }

    /// The object. Only for what is itself gone before the `Keep` is dropped: the coroutines, the kernel and the
    /// machine of its run.
    #[expect(unsafe_code, reason = "coroutines hold only 'static borrows")]
    pub(crate) fn get(&self) -> &'static T {
        // SAFETY: the box lives until `drop`. `run::stage` drops every coroutine and takes the machine off the thread
        // before the first `Keep`, so no borrow is used after that; nothing ever makes an exclusive borrow of it.
        unsafe { &*self.0 }
    }
}

impl<T: ?Sized> Drop for Keep<T> {
    #[expect(unsafe_code, reason = "takes back what `new` gave away")]
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::into_raw` and is taken back once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Words for the protocol that share no cache line with anything else: which words share lines must not depend on the
/// host's allocator.
pub(crate) struct KeptWords {
    storage: Keep<[AtomicU64]>,
    words: usize,
}

impl KeptWords {
    /// So many words, all zero.
    pub(crate) fn zeroed(words: usize) -> Self {
        let storage = (0..words.next_multiple_of(LINE_WORDS) + LINE_WORDS).map(|_| AtomicU64::new(0)).collect();
        Self { storage: Keep::new(storage), words }
    }

    /// The words, from a line's boundary on. See [`Keep::get`].
    pub(crate) fn get(&self) -> &'static [AtomicU64] {
        let all = self.storage.get();
        let first = (0..LINE_WORDS).find(|&at| (&raw const all[at]).addr().is_multiple_of(64)).unwrap_or(0);
        &all[first..first + self.words]
    }
}
