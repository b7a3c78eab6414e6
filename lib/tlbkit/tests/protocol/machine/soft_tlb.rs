//! One CPU's TLB: it keeps every entry until an instruction drops it, and drops exactly what the manual promises.

use tlbkit::{Invpcid, Pcid, Stride, VirtAddr};

/// A cached translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) pcid: Pcid,
    pub(crate) start: u64,
    pub(crate) stride: Stride,
    /// Which mapping it was made from.
    pub(crate) stamp: usize,
    pub(crate) holds: Holds,
}

/// Whether an entry is bound to its tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holds {
    Tagged,
    Global,
}

impl Entry {
    fn covers(&self, va: u64) -> bool {
        va & !(self.stride.bytes() - 1) == self.start
    }

    /// True if a CPU that has `pcid` loaded can use it.
    pub(crate) fn is_usable(&self, pcid: Pcid) -> bool {
        self.holds == Holds::Global || self.pcid == pcid
    }
}

/// A cached pointer to the table of 4 KiB entries of one 2 MiB region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Path {
    pub(crate) pcid: Pcid,
    pub(crate) region: u64,
    pub(crate) table: usize,
}

/// All that a CPU has cached.
#[derive(Default)]
pub(crate) struct SoftTlb {
    pub(crate) entries: Vec<Entry>,
    pub(crate) paths: Vec<Path>,
}

impl SoftTlb {
    pub(crate) fn hit(&self, pcid: Pcid, va: u64) -> Option<Entry> {
        self.entries.iter().find(|e| e.is_usable(pcid) && e.covers(va)).copied()
    }

    pub(crate) fn path(&self, pcid: Pcid, region: u64) -> Option<usize> {
        self.paths.iter().find(|p| p.pcid == pcid && p.region == region).map(|p| p.table)
    }

    /// INVLPG: the page in the loaded tag, globals for it, all paths of the loaded tag.
    pub(crate) fn invlpg(&mut self, loaded: Pcid, va: u64) {
        self.entries.retain(|e| !(e.is_usable(loaded) && e.covers(va)));
        self.paths.retain(|p| p.pcid != loaded);
    }

    /// A CR3 write that flushes: the new tag's, globals stay.
    pub(crate) fn drop_tag(&mut self, pcid: Pcid) {
        self.entries.retain(|e| e.holds == Holds::Global || e.pcid != pcid);
        self.paths.retain(|p| p.pcid != pcid);
    }

    /// A CR3 write without PCIDs, or INVPCID 3: all but globals.
    pub(crate) fn drop_tagged(&mut self) {
        self.entries.retain(|e| e.holds == Holds::Global);
        self.paths.clear();
    }

    pub(crate) fn drop_all(&mut self) {
        self.entries.clear();
        self.paths.clear();
    }

    pub(crate) fn invpcid(&mut self, what: Invpcid) {
        match what {
            Invpcid::Address(pcid, VirtAddr(va)) => {
                self.entries.retain(|e| e.holds == Holds::Global || e.pcid != pcid || !e.covers(va));
                self.paths.retain(|p| p.pcid != pcid || p.region != va >> 21);
            }
            Invpcid::Single(pcid) => self.drop_tag(pcid),
            Invpcid::AllAndGlobals => self.drop_all(),
            Invpcid::All => self.drop_tagged(),
        }
    }
}
