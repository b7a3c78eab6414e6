//! What came out of several runs, side by side: by policies, over seeds.
//!
//! [`quantity`] says what is compared, [`difference`] how far two policies are apart, [`policies`] has their tables and
//! the sentence that sums them up.

pub(crate) mod difference;
pub(crate) mod policies;
pub(crate) mod quantity;
