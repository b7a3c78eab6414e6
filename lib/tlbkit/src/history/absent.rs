//! A protocol without its history: the names of this folder, with nothing in them.
#![allow(clippy::unused_self, reason = "they stand where the history has more")]

use crate::address_space::AddressSpace;
use crate::cpu_state::Cpu;
use crate::hardware::Hardware;
use crate::reason::Reason;
use crate::request::Request;
use crate::shootdown::Destroyed;

/// As `choices.rs`.
pub(crate) mod choices {
    /// What a policy takes from older kernels: nothing, without the feature `history`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub struct History {}

    impl History {
        /// Nothing.
        pub const NONE: Self = Self {};

        /// True if a gather flushes what is named to it at once, and not at its end: it does not.
        #[must_use]
        pub const fn sends_at_once(&self) -> bool {
            false
        }

        pub(crate) const fn flags(&self) -> u32 {
            0
        }
    }

    /// A rule of older kernels: there is none without the feature `history`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum FamilyShift {}

    impl FamilyShift {
        pub(crate) const fn is_everything(&self, _pages: u64, _active_pages: u64) -> bool {
            match *self {}
        }
    }

    /// No bits: what is tested for them is not compiled.
    pub(crate) mod flag {
        pub(crate) const COUNTED: u32 = 0;
        pub(crate) const KERNEL_SET: u32 = 0;
        pub(crate) const COUNTS: u32 = 0;
    }
}

/// As `state.rs`.
pub(crate) mod state {
    use crate::addr::VirtAddr;
    use core::convert::Infallible;
    use core::marker::PhantomData;

    pub(crate) const ROWS: usize = 0;

    /// A list of single pages: there is none.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) struct List<'l>(Infallible, PhantomData<&'l ()>);

    impl List<'_> {
        pub(crate) const fn count(&self) -> u32 {
            match self.0 {}
        }

        pub(crate) const fn each(&self, _f: impl FnMut(VirtAddr)) {
            match self.0 {}
        }

        pub(crate) const fn is_below(&self, _end: u64) -> bool {
            match self.0 {}
        }
    }

    pub(crate) struct Room;

    impl Room {
        pub(crate) const fn new() -> Self {
            Self
        }
    }

    pub(crate) struct SharedList;

    impl SharedList {
        pub(crate) const fn new() -> Self {
            Self
        }

        pub(crate) const fn post(&self, list: List<'_>) -> Option<u64> {
            match list.0 {}
        }

        pub(crate) const fn read<'l>(&self, _lowest: u64, _count: u32, _room: &'l mut Room) -> Option<List<'l>> {
            None
        }
    }

    pub(crate) struct LazyCount;

    impl LazyCount {
        pub(crate) const fn new() -> Self {
            Self
        }
    }

    pub(crate) struct Counters<'k>(PhantomData<&'k ()>);

    impl Counters<'_> {
        pub(crate) const NONE: Self = Self(PhantomData);
    }
}

/// As `packet.rs`.
pub(crate) mod packet {
    use crate::addr::Stride;
    use crate::cpu_state::Cpu;
    use crate::gather::TlbGather;
    use crate::hardware::Hardware;
    use crate::policy::Policy;
    use crate::request::Extent;

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Sends {
        #[allow(dead_code, reason = "nothing is sent before the update")]
        Now,
        AtUpdate,
    }

    pub(crate) struct Packet;

    impl Packet {
        pub(crate) const EMPTY: Self = Self;

        pub(crate) const fn add(&mut self, _policy: &Policy, _first: u64, _pages: u64, _stride: Stride) -> Sends {
            Sends::AtUpdate
        }

        pub(crate) const fn extent(&self, _policy: &Policy) -> Option<Extent<'_>> {
            None
        }

        pub(crate) const fn active_pages(&self) -> u64 {
            u64::MAX
        }
    }

    impl<F> TlbGather<'_, '_, F> {
        /// Nothing: no rule asks for it without the feature `history`.
        #[inline(always)]
        pub const fn set_active_pages(&mut self, _pages: u64) {}

        /// Never: no rule wants it without the feature `history`.
        #[must_use]
        #[inline(always)]
        pub const fn wants_large_page_walk<H: Hardware>(&self, _cpu: &Cpu<'_, '_, H>) -> bool {
            false
        }
    }
}

impl<H: Hardware> Cpu<'_, '_, H> {
    pub(crate) const fn keep_lazily(&self) {}
    pub(crate) const fn let_go(&self, _space: &AddressSpace<'_>) {}
    pub(crate) const fn end_counted(&self, _space: &AddressSpace<'_>) -> Option<Destroyed> {
        None
    }
    pub(crate) const fn join_kernel_set(&self) {}
    pub(crate) const fn leave_kernel_set(&self) {}
    pub(crate) const fn clock(&self) -> u64 {
        0
    }
    pub(crate) const fn count(&self, _request: &Request<'_>, _reason: Reason, _told: u32, _began: u64) {}
}
