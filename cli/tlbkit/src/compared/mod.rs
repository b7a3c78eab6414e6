//! What came out of several runs, side by side: by policies, over seeds.
//!
//! [`quantity`] says what is compared, [`difference`] how far two policies are apart, [`policies`] has their tables and
//! the sentence that sums them up. [`work`] executes the runs, and [`kept`] keeps what came out.

pub(crate) mod difference;
pub(crate) mod kept;
pub(crate) mod policies;
pub(crate) mod quantity;
pub(crate) mod work;
