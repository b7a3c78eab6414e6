//! PCIDs that all CPUs share, for spaces that many CPUs run: what INVLPGB needs (AMD, from Zen 3 on).
//!
//! A CPU numbers its recent spaces by itself (`cpu/asid.rs`), so one space has another PCID on each CPU, and each has
//! to be told which entries go. INVLPGB tells all CPUs at once, without an interrupt, but it names a PCID. So a space
//! that many CPUs run gets one that means this space everywhere (Linux: a global ASID), and keeps it until it ends.
//!
//! **The rule.** A space has such a PCID once a flush by a CPU that runs it has interrupted as many CPUs as
//! [`Broadcast::From`](crate::Broadcast) says, or once the kernel asks ([`Cpu::share_pcid`](crate::Cpu::share_pcid)).
//! If none is left it stays as it was. From then on each flush of the space executes INVLPGB, then TLBSYNC *on the same
//! CPU*: that waits for what its own CPU has sent, and for nothing else (C-36). Entries under that PCID are current on
//! every CPU at any time, so a switch to the space never flushes (INV-12), and needs no generation. CPUs in lazy TLB
//! mode are reached like all others, so nobody is interrupted, not even when page-table pages are freed.
//!
//! **The move** has to get every CPU away from its own PCID of the space, which no INVLPGB names (C-70). The space's
//! PCID stands in the word of its generation, so both are always read as one. The mover puts it there and flushes the
//! space once more by IPI, the last time. This is the race of `mod.rs`, with the PCID in the place of the generation:
//!
//! ```text
//!   a CPU that loads the space (switch/mod.rs)     the move (share_pcid)
//!   join the CPU set; presence := switching        put the PCID into the word, and that it moves
//!   fence(SeqCst)                                  advance the word; fence(SeqCst)
//!   read the word                                  ask all that hold the space, lazily too, or are switching
//!   load CR3 under its PCID, or under its own      wait for the answers                 (Acquire)
//!   presence := running                            say in the word that it has moved    (Release)
//!   if asked: load CR3 under the space's PCID
//! ```
//! Either the mover finds the CPU and asks it, or the CPU finds the PCID. One that holds the space lazily leaves it, as
//! for any freed table. A flush that finds the space moving does both: INVLPGB, and a request to those that run it. One
//! that finds it moved comes after all the answers, by that Release and its own fence in `advance`.
//!
//! A flush that comes just before the move executes no INVLPGB:
//!
//! ```text
//!   a flush (shootdown.rs)                         the move, then a CPU that loads the space
//!   change the PTE                                 flush the PCID on every CPU; put it into the word
//!   advance the word: no PCID in it  (Release)     read the word: the PCID               (Acquire)
//!                                                  load CR3 under it; walk
//! ```
//! It advances the very word that the PCID is put into. Had it come second there it would have found the PCID. So it
//! came first, and a CPU that reads the PCID there has the changed PTE as well: atomic changes of one word continue the
//! Release of those before.
//!
//! **The end.** The PCID is given back when no CPU holds the dying space any more (`end.rs`), so nothing new is cached
//! under it. What is left in the TLBs goes before another space gets it (C-71, INV-8):
//!
//! ```text
//!   the last CPU that leaves a dying space         the move of another space
//!   load CR3: other tables                         take the PCID out of the pool
//!   drop the reference          (AcqRel)           INVLPGB of all of it; TLBSYNC
//!   give the PCID back                             put it into that space's word
//! ```
//! Linux collects such PCIDs until none is left, and then flushes everything on every CPU. One INVLPGB for each move
//! leaves the entries of other spaces alone, and a move sends IPIs anyway.

use super::{AddressSpace, Generation};
use crate::cpu::asid::{Asid, MAX_ASIDS};
use crate::hardware::Pcid;
use crate::sync::{AtomicU64, Ordering};

/// What a space's word says at one moment: its generation, in the lower 52 bits; above them its PCID, and whether some
/// CPUs may still run the space under their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp(pub(crate) u64);

const PCID_SHIFT: u32 = 52;
const MOVING: u64 = 1 << 63;

impl Stamp {
    /// The generation. It equals the word itself while the space has no PCID.
    pub(crate) const fn generation(self) -> Generation {
        Generation(self.0 & ((1 << PCID_SHIFT) - 1))
    }

    /// The PCID that all CPUs use for the space.
    pub(crate) const fn pcid(self) -> Option<Pcid> {
        let pcid = (self.0 & !MOVING) >> PCID_SHIFT;
        if pcid == 0 { None } else { Some(Pcid(pcid as u16)) }
    }

    /// True if CPUs may still run the space under their own PCIDs, though it has one.
    pub(crate) const fn is_moving(self) -> bool {
        self.0 & MOVING != 0
    }
}

impl<S> AddressSpace<S> {
    /// The stamp. A CPU that flushes up to the generation in it walks page tables that already hold the changes which
    /// that generation stands for; so does one that walks them under the PCID in it.
    pub(crate) fn stamp(&self) -> Stamp {
        // Acquire: partners are the Release in `advance`, which `name_pcid` continues.
        Stamp(self.stamp.load(Ordering::Acquire))
    }

    /// Begins the move. False if the space has a PCID, or somebody else is about to give it one.
    pub(crate) fn begin_move(&self) -> bool {
        // Relaxed, both: it only decides who moves the space.
        let mut seen = self.stamp.load(Ordering::Relaxed);
        while seen >> PCID_SHIFT == 0 {
            // Relaxed, both: as above.
            match self.stamp.compare_exchange(seen, seen | MOVING, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// From here on CPUs load the space under `pcid`, under which no TLB holds anything.
    pub(crate) fn name_pcid(&self, pcid: Pcid) {
        // Relaxed: an atomic change of the word continues the Release of those before; the second diagram above.
        self.stamp.fetch_or(u64::from(pcid.0) << PCID_SHIFT, Ordering::Relaxed);
    }

    /// Ends the move, or gives it up: either no CPU runs the space under its own PCID any more, or all do.
    pub(crate) fn end_move(&self) {
        // Release: what CPUs did under their own PCIDs is over; partner is the fence in `advance`.
        self.stamp.fetch_and(!MOVING, Ordering::Release);
    }
}

/// PCIDs below are each CPU's own ([`Asid::pcid`]), or the kernel's. Above 2,047 are those of user halves.
const FIRST: usize = MAX_ASIDS + 1;
/// Two for loom and `narrow_sets`, so that tests run out of them.
const END: usize = if cfg!(any(loom, narrow_sets)) { FIRST + 2 } else { Pcid::USER_BIT as usize };
const BITS: usize = u64::BITS as usize;

/// The PCIDs that no space has: one bit each, set for those that are taken, in memory that the kernel supplies,
/// behind the request matrix. It is written when a space moves or ends, so it needs no separate cache lines.
pub(crate) struct SharedPcids<'k>(&'k [AtomicU64]);

impl<'k> SharedPcids<'k> {
    /// Words of zeros that it needs.
    pub(crate) const WORDS: usize = END.div_ceil(BITS);

    pub(crate) const fn new(words: &'k [AtomicU64]) -> Self {
        Self(words)
    }

    /// One that no space has, if there is one. No CPU has it loaded, but what was cached under it may still be there.
    pub(crate) fn take(&self) -> Option<Pcid> {
        (FIRST..END).find_map(|pcid| {
            let (word, bit) = self.place(pcid);
            // Relaxed, both: only one CPU finds the bit clear; that its PCID is loaded nowhere is no matter of memory.
            let is_free = word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Relaxed) & bit == 0;
            is_free.then_some(Pcid(pcid as u16))
        })
    }

    /// Gives `pcid` back. Its space has ended, and every CPU has left it.
    pub(crate) fn give_back(&self, pcid: Pcid) {
        let (word, bit) = self.place(usize::from(pcid.0));
        // Relaxed: as in `take`. CR3 was written before.
        word.fetch_and(!bit, Ordering::Relaxed);
    }

    fn place(&self, pcid: usize) -> (&AtomicU64, u64) {
        (&self.0[pcid / BITS], 1 << (pcid % BITS))
    }
}

impl Asid {
    /// What stands in a CPU's state in the place of an ASID while it has a space loaded under `pcid`, which all CPUs
    /// share: an index beyond its table, whose PCID that is.
    pub(crate) const fn of_shared(pcid: Pcid) -> Self {
        Self(pcid.0 as u64 - 1)
    }

    /// True if it stands for a PCID that all CPUs share.
    pub(crate) const fn is_shared(self) -> bool {
        self.index() >= MAX_ASIDS
    }
}

#[cfg(all(test, not(any(loom, narrow_sets))))]
mod tests {
    use super::*;
    use crate::addr::{PhysAddr, SpaceToken};
    use crate::space::SpaceId;

    #[test]
    fn inv_8_a_shared_pcid_is_nobodys_own_and_no_user_half_and_taken_once() {
        let words = [const { AtomicU64::new(0) }; SharedPcids::WORDS];
        let pcids = SharedPcids::new(&words);
        let all: Vec<_> = core::iter::from_fn(|| pcids.take()).collect();
        assert_eq!((all.len(), all[0], all[2031]), (2032, Pcid(16), Pcid(2047)));
        assert!(all.windows(2).all(|two| two[0] < two[1]));
        let own = (0..MAX_ASIDS as u64).map(Asid);
        assert!(own.clone().all(|asid| !asid.is_shared() && !all.contains(&asid.pcid())));
        assert!(all.iter().all(|&pcid| Asid::of_shared(pcid).is_shared() && Asid::of_shared(pcid).pcid() == pcid));
        pcids.give_back(Pcid(2000));
        assert_eq!([pcids.take(), pcids.take()], [Some(Pcid(2000)), None]);
    }

    #[test]
    fn a_stamp_holds_generation_and_pcid_apart() {
        let space = AddressSpace::new(SpaceId(1), SpaceToken(0), PhysAddr(0), [AtomicU64::new(0)]);
        assert!(space.begin_move() && !space.begin_move(), "one moves it");
        assert_eq!((space.stamp().pcid(), space.stamp().is_moving()), (None, true));
        space.end_move();
        assert!(space.begin_move(), "one that was given up can be begun again");
        space.name_pcid(Pcid(2047));
        let stamp = space.advance();
        assert_eq!((stamp.generation(), stamp.pcid(), stamp.is_moving()), (Generation(2), Some(Pcid(2047)), true));
        space.end_move();
        assert_eq!((space.stamp().pcid(), space.stamp().is_moving()), (Some(Pcid(2047)), false));
        assert!(!space.begin_move(), "it keeps its PCID until it ends");
        assert_eq!(space.generation(), Generation(2));
    }
}
