//! What older choices keep in a gather: the single pages of a packet, and how many pages the space has.

use super::choices::Batching;
use super::state::{List, MAX_PAGES};
use crate::addr::{Stride, VirtAddr};
use crate::policy::{Policy, RangeRule};
use crate::request::Extent;

const TOO_MANY: u32 = u32::MAX;

/// Whether what was named goes out at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sends {
    Now,
    AtUpdate,
}

/// Single pages, in the order in which they were named.
pub(crate) struct Packet {
    /// Written under [`Batching::Packet`] alone.
    list: Option<[VirtAddr; MAX_PAGES]>,
    /// Distinct pages in `list`; [`TOO_MANY`] once they did not fit.
    count: u32,
    /// Something went out at once.
    has_sent: bool,
    active_pages: u64,
}

impl Packet {
    pub(crate) const EMPTY: Self = Self { list: None, count: 0, has_sent: false, active_pages: u64::MAX };

    /// Takes what was named, as the policy's batching says.
    #[inline(always)]
    pub(crate) fn add(&mut self, policy: &Policy, first: u64, pages: u64, stride: Stride) -> Sends {
        match policy.history.batching {
            Batching::None => {
                self.has_sent = true;
                return Sends::Now;
            }
            Batching::Packet(limit) => self.add_pages(first, pages, stride, u32::from(limit)),
            Batching::Range => {}
        }
        Sends::AtUpdate
    }

    #[inline(never)]
    fn add_pages(&mut self, first: u64, pages: u64, stride: Stride, limit: u32) {
        let limit = limit.min(MAX_PAGES as u32);
        let list = self.list.get_or_insert([VirtAddr(0); MAX_PAGES]);
        for n in 0..pages {
            if self.count == TOO_MANY {
                return;
            }
            let Some(va) = first.checked_add(n * stride.bytes()).map(VirtAddr) else {
                return;
            };
            if list[..self.count as usize].contains(&va) {
                continue;
            }
            if self.count == limit {
                self.count = TOO_MANY;
            } else {
                list[self.count as usize] = va;
                self.count += 1;
            }
        }
    }

    /// True if something that was named has been flushed before the update.
    #[inline(always)]
    pub(crate) const fn has_sent(&self) -> bool {
        self.has_sent
    }

    /// The packet, if the policy sends packets.
    #[inline(always)]
    pub(crate) fn extent(&self, policy: &Policy) -> Option<Extent<'_>> {
        if !matches!(policy.history.batching, Batching::Packet(_)) {
            return None;
        }
        let pages = self.list.as_ref().and_then(|list| list.get(..self.count as usize));
        Some(pages.map_or(Extent::Everything, |pages| Extent::List(List(pages))))
    }

    #[inline(always)]
    pub(crate) const fn set_active_pages(&mut self, pages: u64) {
        self.active_pages = pages;
    }

    #[inline(always)]
    pub(crate) const fn active_pages(&self) -> u64 {
        self.active_pages
    }
}

/// True if `rule` wants the page tables searched for large pages before a range is flushed page by page.
pub(crate) const fn wants_walk(rule: &RangeRule) -> bool {
    matches!(rule, RangeRule::FamilyShift(rule) if rule.walks())
}
