//! Taking translations away: the TLB shootdown, from a changed PTE to a freed frame.
//!
//! **The rule**, INV-1: unhook, flush everywhere, free. The page tables are changed first. Only when no CPU can use the
//! old translation any more may the frame, or the page-table page, be freed. This says nothing about walkers in
//! software that take no lock: they need a grace period as well (C-23).
//!
//! **The files.** A flush runs through `gather.rs`, `shootdown.rs` and, on each CPU, `local.rs`:
//!
//! | file | what it does |
//! |---|---|
//! | `gather.rs` | [`TlbGather`](gather::TlbGather): translations and frames of one space that wait for a flush |
//! | `batch.rs` | [`TlbBatch`](batch::TlbBatch): the same for many spaces |
//! | `shootdown.rs` | the initiator: announce, choose the responders, send them the request, flush here, wait |
//! | `spared.rs` | responders that need no IPI: their host flushes them, or they flush when they enter the kernel |
//! | `request.rs`, `mailboxes.rs`, `matrix.rs` | the request, its mailbox, and which CPU has sent one to which |
//! | `local.rs` | the flush on one CPU, the same for initiator and responder |
//! | `answer.rs` | the responder |
//! | `broadcast.rs` | INVLPGB in place of all of this, for spaces and kernel addresses that it reaches |
//! | `wait.rs` | waiting for the answers, and CPUs that are late or go offline meanwhile |
//! | `pending.rs` | [`Pending`](pending::Pending): flushes that are issued now and waited for later |
//! | `defer.rs` | [`Deferred`](defer::Deferred): a batch that is flushed when its frames are needed |
//! | `retire.rs` | frames that come back after a grace period, for which nobody is interrupted |
//! | `sharers.rs` | flushes that interrupt nobody, since each CPU has its own upper page tables |
//! | `owed.rs`, `targets.rs` | which spaces still have deferred flushes; whom a batch concerns |
//!
//! **The race** between the initiator and a CPU that loads the space is drawn in `space/mod.rs`: it decides which CPUs
//! must be responders. Initiator and responder meet as follows. The request lies in a mailbox of the initiator. The
//! *outbox* of that mailbox, one bit for each responder, is authoritative: a set bit is a CPU that has not answered.
//! The responder's *inbox*, one bit for each initiator, holds only hints about where to look:
//!
//! ```text
//!   initiator (send_requests, wait)                responder (answer)
//!   write the mailbox
//!   outbox := responders        (Release)          take the hints of its inbox      (Acquire)
//!   leave a hint in each inbox  (Release)          is its bit set in that outbox?   (Acquire)
//!   send the IPIs                                  if so: read the mailbox, flush
//!   wait until outbox = 0       (Acquire)          clear its bit                    (Release)
//! ```
//! A responder reads a mailbox only while its bit in the outbox is set, and only the responder clears that bit, or the
//! initiator once the responder is offline and reads nothing. So what is asked does not change while it is read, a
//! request that is sent twice is carried out once, and an IPI that finds nothing to do does no harm (C-56, C-63). There
//! is no lock and no queue: initiators do not disturb each other.
//!
//! `docs/kernel/inside.md` follows one call through these files; `docs/kernel/rules.md` has the rules C-1 and so on.

mod answer;
pub(crate) mod batch;
mod broadcast;
pub(crate) mod defer;
pub(crate) mod gather;
mod local;
mod mailboxes;
pub(crate) mod matrix;
pub(crate) mod owed;
pub(crate) mod pending;
pub(crate) mod request;
pub(crate) mod retire;
pub(crate) mod sharers;
pub(crate) mod shootdown;
pub(crate) mod spared;
mod targets;
pub(crate) mod wait;
