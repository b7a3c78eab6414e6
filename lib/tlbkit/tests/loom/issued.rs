//! A flush that was issued, with the machine that it borrows from, so that one CPU can leave it to another.

use std::rc::Rc;

use self_cell::self_cell;
use tlbkit::Pending;

use crate::machine::Machine;

/// Where a space keeps its set of CPUs.
pub(crate) type Set = Vec<tlbkit::sync::AtomicU64>;

/// What `issue` returns: it frees these pages of this table.
type Flush<'m> = Option<(usize, Pending<'m, Set, Vec<usize>>)>;

self_cell!(
    /// A flush that was issued. It may be handed to another CPU.
    pub(crate) struct Issued {
        owner: Rc<Machine>,
        #[not_covariant]
        dependent: Flush,
    }
);
