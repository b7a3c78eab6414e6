//! A gather without history: nothing is kept in it beside one range.
#![allow(clippy::unused_self, reason = "they stand where the history has more")]

use crate::addr::Stride;
use crate::policy::{Policy, RangeRule};
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

    pub(crate) const fn has_sent(&self) -> bool {
        false
    }

    pub(crate) const fn extent(&self, _policy: &Policy) -> Option<Extent<'_>> {
        None
    }

    pub(crate) const fn set_active_pages(&mut self, _pages: u64) {}

    pub(crate) const fn active_pages(&self) -> u64 {
        u64::MAX
    }
}

pub(crate) const fn wants_walk(_rule: &RangeRule) -> bool {
    false
}
