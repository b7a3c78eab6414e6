//! INVLPGB and TLBSYNC. What one CPU tells all others to invalidate is done at the last moment that the manual allows:
//! when that CPU executes TLBSYNC.
//!
//! ```text
//!   CPU 0                                          CPU 1
//!   INVLPGB: posts to each CPU
//!                                                  goes on with what it holds, and may fetch it again
//!   TLBSYNC: asks for what it has posted
//!            sends an NMI
//!                                                  takes the NMI, or is about to leave the monitor: does it
//!            finds it done, goes on
//! ```
//! It is an NMI because the guest's CLI is real: a CPU that spins for a lock with interrupts off must be reached as
//! well. One that comes while the monitor itself runs does nothing, and is sent again: it may have come after the
//! monitor's last look.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use heapless::Vec;
use spin::Mutex;
use tlbkit::{Invlpgb, Pcid, Stride, Tables, VirtAddr};
use tlbkit_arch::{Instruction, Invalidation, is_canonical};

use super::control::Refused;
use super::state::Core;
use crate::arch::{apic, cpu};
use crate::layout::MAX_MONITORED_CPUS;
use crate::report;

/// What all CPUs together may have posted to one. A kernel executes TLBSYNC after every few INVLPGBs.
const POSTS: usize = 512;
/// Turns of a wait after which the NMI is sent again.
const TURNS: u32 = 1000;

/// What one CPU has been told to invalidate.
struct Mailbox {
    /// The monitor runs on this CPU. Before that its TLB is empty.
    is_live: AtomicBool,
    /// By which CPU, and what. Locked by the monitor alone, which no interrupt holds up.
    posts: Mutex<Vec<(u32, Invalidation), POSTS>>,
    /// Bits of the CPUs whose TLBSYNC waits for this one.
    asked: AtomicU32,
}

static MAILBOXES: [Mailbox; MAX_MONITORED_CPUS] =
    [const { Mailbox { is_live: AtomicBool::new(false), posts: Mutex::new(Vec::new()), asked: AtomicU32::new(0) } };
        MAX_MONITORED_CPUS];

/// From now on this CPU is told what to invalidate.
pub(super) fn go_live() {
    // SeqCst: the gates are in place; partner is the load in `live`.
    MAILBOXES[cpu::index() as usize].is_live.store(true, Ordering::SeqCst);
}

/// The CPUs on which the monitor runs.
fn live() -> impl Iterator<Item = (u32, &'static Mailbox)> {
    // SeqCst: partner is the store in `go_live`.
    (0..).zip(&MAILBOXES).filter(|(_, mailbox)| mailbox.is_live.load(Ordering::SeqCst))
}

impl Core {
    /// INVLPGB, with its three registers.
    pub(super) fn invlpgb(&mut self, rax: u64, ecx: u32, edx: u32) -> Result<(), Refused> {
        let most = self.monitor.broadcast_pages.ok_or(Refused::Opcode)?.get();
        let what = named_by(rax, ecx, edx, most).ok_or(Refused::Protection)?;
        let has_other_tag = |pcid: Pcid| pcid != Pcid::KERNEL && !self.has_tags();
        if matches!(what, Invlpgb::Pages { pcid, .. } | Invlpgb::Single(pcid) if has_other_tag(pcid)) {
            return Err(Refused::Protection);
        }
        let what = Instruction::Invlpgb(what).invalidates(self.current_tag());
        for (_, mailbox) in live() {
            if mailbox.posts.lock().push((cpu::index(), what)).is_err() {
                report::failure(&format_args!("{POSTS} INVLPGBs, and no TLBSYNC of the CPUs that executed them"));
            }
        }
        Ok(())
    }

    /// TLBSYNC: every CPU has done what this one has told it.
    pub(super) fn tlbsync(&mut self) -> Result<(), Refused> {
        self.monitor.broadcast_pages.ok_or(Refused::Opcode)?;
        let me = cpu::index();
        self.do_posts_of(1 << me);
        for (to, mailbox) in live().filter(|&(to, _)| to != me) {
            // SeqCst: what this CPU has posted comes before; partner is the load in `do_asked`.
            mailbox.asked.fetch_or(1 << me, Ordering::SeqCst);
            let mut turns = 0u32;
            while mailbox.posts.lock().iter().any(|&(by, _)| by == me) {
                if turns.is_multiple_of(TURNS) {
                    apic::send_nmi(to);
                }
                turns += 1;
                spin_loop();
                // That CPU may be in its own TLBSYNC, and wait for this one.
                self.do_asked();
            }
            // SeqCst: as above.
            mailbox.asked.fetch_and(!(1 << me), Ordering::SeqCst);
        }
        Ok(())
    }

    /// Does what CPUs wait for.
    pub(super) fn do_asked(&mut self) {
        // SeqCst: partner is the bit that `tlbsync` sets.
        let asked = MAILBOXES[cpu::index() as usize].asked.load(Ordering::SeqCst);
        if asked != 0 {
            self.do_posts_of(asked);
        }
    }

    /// Does what the CPUs of these bits have posted.
    fn do_posts_of(&mut self, senders: u32) {
        let mut posts = MAILBOXES[cpu::index() as usize].posts.lock();
        let before = posts.len();
        posts.retain(|(by, what)| {
            let is_meant = senders >> by & 1 == 1;
            if is_meant {
                self.tlb.remove(what);
            }
            !is_meant
        });
        if posts.len() != before {
            self.shadow.empty();
        }
    }
}

/// What these registers name, by AMD's Architecture Programmer's Manual, volume 3; nothing if the instruction faults,
/// or in a form that `tlbkit-x86` never uses: of a guest's translations, of nested ones, or of one PCID and globals.
fn named_by(rax: u64, ecx: u32, edx: u32, most: u32) -> Option<Invlpgb> {
    let [has_va, has_pcid, has_asid, globals_too, final_only] = [0, 1, 2, 3, 4].map(|bit| rax >> bit & 1 == 1);
    let (first, pages) = (VirtAddr(rax & !0xfff), (ecx & 0xffff) + 1);
    let stride = if ecx >> 31 == 1 { Stride::Page2M } else { Stride::Page4K };
    let (asid, pcid) = (edx & 0xffff, Pcid((edx >> 16 & 0xfff) as u16));
    let has_reserved_bits = rax & 0xfe0 != 0 || ecx & 0x7fff_0000 != 0 || edx >> 28 != 0;
    if has_reserved_bits || !has_asid || asid != 0 || pages > most || !is_canonical(first) {
        return None;
    }
    let tables = if final_only { Tables::Kept } else { Tables::Freed };
    match (has_va, has_pcid, globals_too) {
        (true, true, false) => Some(Invlpgb::Pages { pcid, first, pages, stride, tables }),
        (true, false, true) => Some(Invlpgb::PagesOfAll { first, pages, stride }),
        (false, true, false) => Some(Invlpgb::Single(pcid)),
        (false, false, false) => Some(Invlpgb::All),
        (false, false, true) => Some(Invlpgb::AllAndGlobals),
        _ => None,
    }
}
