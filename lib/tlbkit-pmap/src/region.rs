//! The regions of a space, Linux' VMAs: sorted and disjoint, with adjoining regions merged where they are alike.

use crate::lock::WriteGuard;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use tlbkit::{PAGE_BYTES, Stride};

/// The number of regions that a space can have.
pub const MAX_REGIONS: usize = if cfg!(loom) {
    16
} else if cfg!(feature = "many-regions") {
    384
} else {
    192
};

/// The space already has [`MAX_REGIONS`] regions.
#[derive(Debug)]
pub(crate) struct Full;

/// What backs a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Anonymous and private: zero-filled, and copied on write after a fork. Reading a page that was never written maps
    /// the zero page.
    AnonPrivate,
    /// Anonymous and shared: zero-filled, and shared with children.
    AnonShared,
    /// A private file mapping: reads map the page of the file, and the first write copies it.
    FilePrivate,
    /// A shared file mapping.
    FileShared,
}

/// The permissions of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// Nothing.
    None,
    /// Loads.
    Read,
    /// Loads and stores.
    ReadWrite,
}

/// A range of pages with the same backing and permissions: Linux' VMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// First address.
    pub first: u64,
    /// Base pages.
    pub pages: u64,
    /// What backs it.
    pub backing: Backing,
    /// The permissions of the program.
    pub protection: Protection,
    /// [`Stride::Page2M`] if private anonymous memory is to be mapped by large pages where one fits.
    pub stride: Stride,
    /// The file, for the two backings that have one.
    pub file: u32,
    /// The page of the file that is mapped at `first`.
    pub file_first: u64,
}

impl Backing {
    /// True if other spaces see the stores of this one.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::AnonShared | Self::FileShared)
    }

    pub(crate) const fn has_file(self) -> bool {
        matches!(self, Self::FilePrivate | Self::FileShared)
    }
}

impl Region {
    /// A region of base pages, from page 0 of file 0 on. Its address is chosen when it is mapped.
    #[must_use]
    pub const fn new(pages: u64, backing: Backing, protection: Protection) -> Self {
        Self { first: 0, pages, backing, protection, stride: Stride::Page4K, file: 0, file_first: 0 }
    }

    /// The same region, mapped by large pages where one fits.
    #[must_use]
    pub const fn large(self) -> Self {
        Self { stride: Stride::Page2M, ..self }
    }

    /// The addresses that it covers.
    #[must_use]
    pub const fn range(&self) -> Range<u64> {
        self.first..self.first + self.pages * PAGE_BYTES
    }

    /// The page of the file that is mapped at `va`.
    #[must_use]
    pub const fn file_page(&self, va: u64) -> u64 {
        self.file_first + (va - self.first) / PAGE_BYTES
    }

    /// The part of the region that lies in `range`, if any.
    pub(crate) fn cut(&self, range: &Range<u64>) -> Option<Self> {
        let own = self.range();
        let (start, end) = (own.start.max(range.start), own.end.min(range.end));
        let pages = end.checked_sub(start)? / PAGE_BYTES;
        (pages > 0).then(|| Self { first: start, pages, file_first: self.file_page(start), ..*self })
    }

    /// Both regions as one, if `next` adjoins `self` and is alike.
    fn merged(&self, next: &Self) -> Option<Self> {
        let joined = Self { pages: self.pages + next.pages, ..*self };
        let alike = Self { first: self.first, pages: self.pages, file_first: self.file_first, ..*next } == *self;
        let continues = self.range().end == next.first
            && (!self.backing.has_file() || self.file_page(next.first) == next.file_first);
        (alike && continues).then_some(joined)
    }

    fn to_words(self) -> [u64; 4] {
        let kind = self.backing as u64 | (self.protection as u64) << 2 | (self.stride as u64) << 8;
        [self.first, self.pages, kind | u64::from(self.file) << 32, self.file_first]
    }

    fn from_words(words: [u64; 4]) -> Self {
        let kind = words[2];
        let backing = [Backing::AnonPrivate, Backing::AnonShared, Backing::FilePrivate, Backing::FileShared];
        let protection = [Protection::None, Protection::Read, Protection::ReadWrite, Protection::ReadWrite];
        let is_large = kind >> 8 & 0xff == Stride::Page2M as u64;
        Self {
            first: words[0],
            pages: words[1],
            backing: backing[(kind & 3) as usize],
            protection: protection[(kind >> 2 & 3) as usize],
            stride: if is_large { Stride::Page2M } else { Stride::Page4K },
            file: (kind >> 32) as u32,
            file_first: words[3],
        }
    }
}

/// The regions of a space. All accesses are relaxed, because the reader-writer lock of the space orders them: the
/// atomics of `core` only make plain words shareable. Whoever changes them shows that it holds a lock for writing.
pub(crate) struct Regions {
    count: AtomicU64,
    words: [[AtomicU64; 4]; MAX_REGIONS],
}

impl Regions {
    pub(crate) const fn new() -> Self {
        Self { count: AtomicU64::new(0), words: [const { [const { AtomicU64::new(0) }; 4] }; MAX_REGIONS] }
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn get(&self, n: usize) -> Region {
        Region::from_words([0, 1, 2, 3].map(|w| self.words[n][w].load(Ordering::Relaxed)))
    }

    fn set(&self, n: usize, region: Region) {
        for (word, value) in self.words[n].iter().zip(region.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Region> + '_ {
        (0..self.len()).map(|n| self.get(n))
    }

    /// The number of regions that end at or below `va`, which is the index of the first one that may contain it.
    fn index_of(&self, va: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.get(middle).range().end <= va {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    pub(crate) fn find(&self, va: u64) -> Option<Region> {
        let n = self.index_of(va);
        (n < self.len()).then(|| self.get(n)).filter(|region| region.first <= va)
    }

    /// True if nothing is mapped anywhere in `range`.
    pub(crate) fn is_unused(&self, range: &Range<u64>) -> bool {
        let n = self.index_of(range.start);
        n == self.len() || self.get(n).first >= range.end
    }

    /// The lowest address, at least `base` and aligned to `align`, from which `bytes` bytes below `limit` are unmapped.
    pub(crate) fn find_gap(&self, base: u64, limit: u64, bytes: u64, align: u64) -> Option<u64> {
        let mut va = base.next_multiple_of(align);
        for region in self.iter() {
            if region.range().end <= va {
                continue;
            }
            if va.checked_add(bytes)? <= region.first {
                break;
            }
            va = region.range().end.next_multiple_of(align);
        }
        (va.checked_add(bytes)? <= limit).then_some(va)
    }

    /// Adds a region where nothing is mapped.
    pub(crate) fn insert(&self, _writing: &WriteGuard<'_>, region: Region) -> Result<(), Full> {
        let n = self.index_of(region.first);
        let joined = n.checked_sub(1).and_then(|before| self.get(before).merged(&region));
        match joined {
            Some(joined) => self.set(n - 1, joined),
            None if self.len() == MAX_REGIONS => return Err(Full),
            None => self.insert_at(n, region),
        }
        self.merge();
        Ok(())
    }

    fn insert_at(&self, n: usize, region: Region) {
        for later in (n..self.len()).rev() {
            self.set(later + 1, self.get(later));
        }
        self.set(n, region);
        self.count.store(self.len() as u64 + 1, Ordering::Relaxed);
    }

    fn remove_at(&self, n: usize) {
        for later in n + 1..self.len() {
            self.set(later - 1, self.get(later));
        }
        self.count.store(self.len() as u64 - 1, Ordering::Relaxed);
    }

    pub(crate) fn clear(&self, _writing: &WriteGuard<'_>) {
        self.count.store(0, Ordering::Relaxed);
    }

    /// Fails if [`carve`](Self::carve) might need more than [`MAX_REGIONS`]: cutting the regions at both ends of a
    /// range adds at most two.
    pub(crate) fn check_room_to_carve(&self) -> Result<(), Full> {
        if self.len() + 2 > MAX_REGIONS { Err(Full) } else { Ok(()) }
    }

    /// Replaces the part of each region that lies in `range` by what `change` returns for it. Call
    /// [`check_room_to_carve`](Self::check_room_to_carve) first, before anything that cannot be undone.
    pub(crate) fn carve(
        &self,
        _writing: &WriteGuard<'_>,
        range: &Range<u64>,
        change: impl Fn(Region) -> Option<Region>,
    ) {
        let mut n = self.index_of(range.start);
        while n < self.len() && self.get(n).first < range.end {
            let old = self.get(n);
            self.remove_at(n);
            let pieces =
                [old.cut(&(0..range.start)), old.cut(range).and_then(&change), old.cut(&(range.end..u64::MAX))];
            for piece in pieces.into_iter().flatten() {
                self.insert_at(n, piece);
                n += 1;
            }
        }
        self.merge();
    }

    fn merge(&self) {
        let mut n = 1;
        while n < self.len() {
            if let Some(joined) = self.get(n - 1).merged(&self.get(n)) {
                self.set(n - 1, joined);
                self.remove_at(n);
            } else {
                n += 1;
            }
        }
    }
}
