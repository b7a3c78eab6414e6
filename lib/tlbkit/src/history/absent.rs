//! A protocol without its history: the choices and structures of this folder, with nothing in them.
#![allow(clippy::unused_self, reason = "they stand where the history has more")]

/// As `choices.rs`.
pub(crate) mod choices {
    use crate::history::tables::{Foreign, Nested, SharedDirty, TableFree};
    use crate::words::Word;

    /// What becomes of the CPUs that hold a space lazily when it ends.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub enum LazyReferences {
        /// Each finds a notice when it leaves by itself, and the last one tells the kernel: nobody is interrupted, and
        /// a CPU that goes idle counts nothing.
        Awaited,
        /// They are interrupted, and leave.
        ShotDown,
    }

    impl LazyReferences {
        pub(crate) const WORDS: &[Word<Self>] = &[("awaited", Self::Awaited), ("shot-down", Self::ShotDown)];

        pub(crate) const fn is_counted(self) -> bool {
            false
        }
    }

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

        /// When page-table pages are freed.
        #[must_use]
        pub const fn table_free(&self) -> TableFree {
            TableFree::AtDestroyUnlessLow
        }

        /// How foreign page tables are reached.
        #[must_use]
        pub const fn foreign(&self) -> Foreign {
            Foreign::DirectMap
        }

        /// What operations that overlap flush at their ends.
        #[must_use]
        pub const fn nested(&self) -> Nested {
            Nested::Range
        }

        /// When dirty pages of shared memory are flushed.
        #[must_use]
        pub const fn shared_dirty(&self) -> SharedDirty {
            SharedDirty::AtEnd
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

    pub(crate) struct Counters<'k>(PhantomData<&'k ()>);

    impl Counters<'_> {
        pub(crate) const NONE: Self = Self(PhantomData);
    }
}
