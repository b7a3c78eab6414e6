//! Objects that live as long as one run.
//!
//! The protocol borrows its arrays and its spaces; coroutines may borrow only what is `'static`. So a run's objects
//! are kept here, lent out as `'static`, and freed when the run's world is taken down, which is the last thing that
//! happens.

/// Owns one object and lends it out for the whole run.
pub(crate) struct Keep<T: ?Sized>(*mut T);

impl<T: ?Sized> Keep<T> {
    pub(crate) fn new(object: Box<T>) -> Self {
        Self(Box::into_raw(object))
    }

    /// The object. Only for what is itself gone before the `Keep` is dropped: the coroutines and the world of its run.
    #[expect(unsafe_code, reason = "coroutines hold only 'static borrows")]
    pub(crate) fn get(&self) -> &'static T {
        // SAFETY: the box lives until `drop`. `run::stage` drops every coroutine and uninstalls the world before the
        // first `Keep`, so no borrow is used after that; nothing ever makes an exclusive borrow of it.
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
