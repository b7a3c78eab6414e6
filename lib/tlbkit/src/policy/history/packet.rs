//! What choices of older kernels keep in a gather: the single pages of a packet, and how many pages the space has.

use super::ENABLED;
use super::choices::Batching;
use super::state::{List, MAX_PAGES, ROOM};
use crate::addr::{Stride, VirtAddr};
use crate::flush::request::Extent;
use crate::policy::{Policy, RangeRule};

const TOO_MANY: u32 = u32::MAX;

/// Whether what was recorded is flushed at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sends {
    Now,
    AtUpdate,
}

/// It has no size without the feature.
pub(crate) struct Packet([State; ENABLED as usize]);

/// Single pages, in the order in which they were recorded.
#[derive(Clone, Copy)]
struct State {
    /// Written under [`Batching::Packet`] alone.
    list: Option<[VirtAddr; ROOM]>,
    /// Distinct pages in `list`; [`TOO_MANY`] once they did not fit.
    count: u32,
    /// Something was flushed at once.
    has_sent: bool,
    active_pages: u64,
}

impl Packet {
    pub(crate) const EMPTY: Self =
        Self([State { list: None, count: 0, has_sent: false, active_pages: u64::MAX }; ENABLED as usize]);

    /// Takes what was recorded, as the policy's batching says.
    pub(crate) fn add(&mut self, policy: &Policy, first: u64, pages: u64, stride: Stride) -> Sends {
        let Some(state) = self.0.first_mut() else { return Sends::AtUpdate };
        match policy.history.batching {
            Batching::None => {
                state.has_sent = true;
                return Sends::Now;
            }
            Batching::Packet(limit) => state.add_pages(first, pages, stride, u32::from(limit)),
            Batching::Range => {}
        }
        Sends::AtUpdate
    }

    /// True if something has been flushed before the update.
    #[inline(always)]
    pub(crate) fn has_sent(&self) -> bool {
        self.0.first().is_some_and(|state| state.has_sent)
    }

    /// The packet, if the policy sends packets.
    #[inline(always)]
    pub(crate) fn extent(&self, policy: &Policy) -> Option<Extent<'_>> {
        let state = self.0.first()?;
        if !matches!(policy.history.batching, Batching::Packet(_)) {
            return None;
        }
        let pages = state.list.as_ref().and_then(|list| list.get(..state.count as usize));
        Some(pages.and_then(List::new).map_or(Extent::Everything, Extent::List))
    }

    pub(crate) const fn set_active_pages(&mut self, pages: u64) {
        if let Some(state) = self.0.first_mut() {
            state.active_pages = pages;
        }
    }

    #[inline(always)]
    pub(crate) fn active_pages(&self) -> u64 {
        self.0.first().map_or(u64::MAX, |state| state.active_pages)
    }
}

impl State {
    fn add_pages(&mut self, first: u64, pages: u64, stride: Stride, limit: u32) {
        let limit = limit.min(MAX_PAGES as u32);
        let list = self.list.get_or_insert([VirtAddr(0); ROOM]);
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
}

/// True if `rule` wants the page tables searched for large pages before a range is flushed page by page.
pub(crate) const fn wants_walk(rule: &RangeRule) -> bool {
    ENABLED && matches!(rule, RangeRule::FamilyShift(rule) if rule.walks())
}
