//! A flush in two steps: `issue` announces and asks, `wait` waits.
//!
//! `issue` never waits, so it may be called with interrupts off and under a spin lock. When all mailboxes are being
//! read it asks nobody: it has announced the flush and flushes here, and whoever waits for it later asks first.
//!
//! What a request needs of its space while it is carried out, only CPUs need that have the space loaded. So a request
//! that nobody ever waits for is harmless, even when its space is gone. One that trims the set is different: a CPU that
//! runs something else takes itself out of the set of that space. Such a request is asked by whoever waits for it.

use crate::address_space::{Generation, Translations};
use crate::hardware::{Event, Hardware};
use crate::reason::Reason;
use crate::request::{Needs, Request};
use crate::ring::Asked;
use crate::shootdown::Others;
use crate::tlb::Cpu;

/// How far a flush has come that was announced.
#[derive(Debug)]
pub(crate) enum Ticket {
    /// It is over.
    Over,
    /// Its responders were asked.
    Asked(Asked),
    /// Nobody was asked yet; its generation.
    Announced(Generation),
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Begins what [`shootdown`](Self::shootdown) does, and leaves the wait to [`wait_for`](Self::wait_for).
    pub(crate) fn issue(
        &self,
        translations: Translations<'_, H::Set>,
        mut request: Request<'_>,
        reason: Reason,
    ) -> Ticket {
        if self.announce(translations, &mut request) == Others::None {
            return Ticket::Over;
        }
        if !request.needs(Needs::TRIM)
            && let Some(ticket) = self.ask_if_free(translations, &request, reason)
        {
            return ticket;
        }
        self.flush_here(&request);
        self.hardware.event(Event::FlushIssued);
        Ticket::Announced(request.generation)
    }

    /// Asks for a flush that was announced, and flushes here; nothing if each mailbox may be being read.
    pub(crate) fn ask_if_free(
        &self,
        translations: Translations<'_, H::Set>,
        request: &Request<'_>,
        reason: Reason,
    ) -> Option<Ticket> {
        self.assert_here();
        self.assert_not_inside_another();
        self.state.is_waiting.set(1); // before it looks: a handler must not take the same mailbox
        let Some(slot) = self.free_slot() else {
            self.state.is_waiting.set(0);
            return None;
        };
        let began = self.before_asking(request);
        let asked = self.ask_any(slot, translations, request);
        self.after_asking(request, reason, asked.count, began);
        let (ticket, event) = if asked.count == 0 {
            (Ticket::Over, Event::FlushEnd)
        } else {
            (Ticket::Asked(self.note_issued(slot, asked)), Event::FlushIssued)
        };
        self.state.is_waiting.set(0);
        self.hardware.event(event);
        Some(ticket)
    }

    /// Asks for a flush that was announced, flushes here, and waits.
    pub(crate) fn ask_and_wait(
        &self,
        translations: Translations<'_, H::Set>,
        mut request: Request<'_>,
        reason: Reason,
    ) {
        if matches!(translations, Translations::OfSpace(_)) && self.tlb.is_trim_due(request.generation, request.needs) {
            request.needs = request.needs.with(Needs::TRIM);
        }
        self.assert_here();
        self.assert_not_inside_another();
        self.flush_with_responders(translations, &request, reason);
    }
}
