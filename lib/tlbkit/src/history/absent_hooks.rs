//! A protocol without its history: what it would do in the protocol's paths, which is nothing.
#![allow(clippy::unused_self, reason = "they stand where the history has more")]

use crate::address_space::{AddressSpace, Destroyed};
use crate::hardware::Hardware;
use crate::reason::Reason;
use crate::request::Request;
use crate::tlb::Cpu;

impl<H: Hardware> Cpu<'_, '_, H> {
    pub(crate) const fn keep_lazily(&self) {}
    pub(crate) const fn let_go(&self, _space: &AddressSpace<H::Set>) {}
    pub(crate) const fn end_counted(&self, _space: &AddressSpace<H::Set>) -> Option<Destroyed> {
        None
    }
    pub(crate) const fn join_kernel_set(&self) {}
    pub(crate) const fn leave_kernel_set(&self) {}
    pub(crate) const fn clock(&self) -> u64 {
        0
    }
    pub(crate) const fn count(&self, _request: &Request<'_>, _reason: Reason, _responders: u32, _began: u64) {}
}
