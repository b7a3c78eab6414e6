//! The request matrix: which CPU has sent a request to which, as rows of bits in memory that the kernel supplies.
//!
//! Each CPU has an *inbox*, one bit for each initiator, and for each of its mailboxes an *outbox*, one bit for each
//! responder. What the two mean is at the head of `mod.rs`. Up to 512 CPUs an inbox is one cache line, and a responder
//! looks at all of its words. A larger inbox has a *top level*, one bit for each word:
//!
//! ```text
//!   initiator (leave_hint)                         responder (take_hints)
//!   word |= own bit         (Release)              take the top               (Acquire)
//!   if it was 0:                                   for each of its bits:
//!     top |= bit of word    (Release)                take that word           (Acquire)
//!     if it was 0: send an IPI
//! ```
//! Of every word that is not 0 one of three is true: its bit in the top is set; the initiator that found it 0 is about
//! to set that bit; the responder has taken the top and is about to take the word. For a top that is not 0 an IPI was
//! sent or is about to be. So an initiator that finds either not 0 leaves the rest to the one that was first. For this
//! the initiator sets the word before the top, and the responder clears the top before the word. In any other order a
//! word that is not 0 could lose its bit in the top.
//!
//! A CPU that is stopped by force does not do what it is about to. If it was the initiator, the next initiator tries
//! again in the end, and sets the top itself (`leave_hint_again`). If it was the responder, it looks at every word when
//! it comes online (`look_everywhere`).

use core::ops::Range;

use super::request::{MAILBOXES, Mailbox};
use crate::addr::CpuId;
use crate::policy::history::state::ROWS;
use crate::space::cpu_set::{AtomicCpuSet, Attendance, Missing, Owes, for_each_cpu, last_word, split, words_for};
use crate::sync::{AtomicU64, Ordering};

/// Words of a cache line.
const LINE: usize = 8;

/// Most words of an inbox without a top level: a cache line.
const FLAT_WORDS: usize = if cfg!(narrow_sets) { 1 } else { LINE };

/// Words from one inbox of `words` words, or first outbox, to the next: whole cache lines, since many CPUs write to
/// each at once. Under loom and `narrow_sets`, which have no cache lines and pay for each word, there is no padding.
const fn stride_of(words: usize) -> usize {
    if cfg!(any(loom, narrow_sets)) { words } else { words.next_multiple_of(LINE) }
}

/// Words of the top level of an inbox of `words` words.
const fn top_words(words: usize) -> usize {
    if words > FLAT_WORDS { words_for(words) } else { 0 }
}

/// Words from one inbox to the next, with its top level.
const fn inbox_words(cpus: usize) -> usize {
    stride_of(top_words(words_for(cpus)) + words_for(cpus))
}

/// Words of a CPU's mailboxes but the first, which is in its [`CpuState`](crate::CpuState).
pub(crate) const MAILBOX_LINES: usize = (MAILBOXES - 1) * LINE;

/// In this order: for each CPU its inbox and its mailboxes but the first, a cache line each; for each CPU the outbox of
/// its first mailbox. All these begin cache lines, if the kernel's words begin one. Then rows without padding: the
/// online CPUs, the row of `history`, the outboxes of the other mailboxes.
#[derive(Clone, Copy)]
pub(crate) struct RequestMatrix<'k> {
    pub(crate) inboxes: &'k [AtomicU64],
    /// Everything behind the inboxes and mailboxes.
    pub(crate) rows: &'k [AtomicU64],
    pub(crate) cpus: usize,
    pub(crate) row_words: usize,
    /// Words from one first outbox to the next.
    pub(crate) outbox_stride: usize,
    /// Words from one inbox to the next, with the mailboxes between.
    pub(crate) inbox_stride: usize,
    pub(crate) top_words: usize,
    /// All CPUs of the last word of a set.
    pub(crate) last_word: u64,
}

impl<'k> RequestMatrix<'k> {
    pub(crate) const fn words(cpus: usize) -> usize {
        let lines = inbox_words(cpus) + MAILBOX_LINES + stride_of(words_for(cpus));
        cpus * lines + (1 + ROWS + cpus * (MAILBOXES - 1)) * words_for(cpus)
    }

    pub(crate) const fn new(words: &'k [AtomicU64], cpus: usize) -> Self {
        let (inbox_stride, row_words) = (inbox_words(cpus) + MAILBOX_LINES, words_for(cpus));
        let (inboxes, rows) = words.split_at(cpus * inbox_stride);
        let (outbox_stride, top_words) = (stride_of(row_words), top_words(row_words));
        Self { inboxes, rows, cpus, row_words, outbox_stride, inbox_stride, top_words, last_word: last_word(cpus) }
    }

    /// Where `cpu` looks for hints.
    pub(crate) const fn inbox(&self, cpu: CpuId) -> Inbox<'_, 'k> {
        Inbox { matrix: self, start: cpu.0 as usize * self.inbox_stride }
    }

    /// The responders that have not answered the request in this mailbox of `cpu`: the authoritative list of them.
    pub(crate) fn outbox(&self, cpu: CpuId, mailbox: usize) -> AtomicCpuSet<'k> {
        self.set_at(self.start_of_outbox(cpu, mailbox))
    }

    /// The word at `index` of such an outbox.
    ///
    /// # Panics
    /// If there is no such CPU.
    pub(crate) fn outbox_word(&self, cpu: CpuId, mailbox: usize, index: usize) -> &'k AtomicU64 {
        &self.rows[self.start_of_outbox(cpu, mailbox) + index]
    }

    const fn start_of_outbox(&self, cpu: CpuId, mailbox: usize) -> usize {
        let cpu = cpu.0 as usize;
        if mailbox == 0 {
            cpu * self.outbox_stride
        } else {
            self.start_of_row(1 + ROWS + cpu * (MAILBOXES - 1) + mailbox - 1)
        }
    }

    /// Of the rows without padding.
    pub(crate) const fn start_of_row(&self, row: usize) -> usize {
        self.cpus * self.outbox_stride + row * self.row_words
    }

    /// CPUs that have not answered a request in these `mailboxes` of `cpu`; `attendance` knows which are offline.
    pub(crate) fn missing<'a>(&self, cpu: CpuId, mailboxes: Range<usize>, attendance: &'a dyn Attendance) -> Missing<'a>
    where
        'k: 'a,
    {
        let first = self.outbox(cpu, mailboxes.start);
        let others = self.start_of_outbox(cpu, mailboxes.start + 1);
        let others = &self.rows[others..][..(mailboxes.len() - 1) * self.row_words];
        Missing { first, others, attendance, owes: Owes::Answer }
    }

    /// A mailbox of `cpu` other than its first.
    pub(crate) fn mailbox(&self, cpu: CpuId, mailbox: usize) -> Mailbox<'k> {
        let end = (cpu.0 as usize + 1) * self.inbox_stride;
        Mailbox::from_words(&self.inboxes[end - (MAILBOXES - mailbox) * LINE..])
    }

    pub(crate) fn online(&self) -> AtomicCpuSet<'k> {
        self.row(0)
    }

    /// A row without padding: 0 is the online CPUs, then comes that of `history`.
    pub(crate) fn row(&self, row: usize) -> AtomicCpuSet<'k> {
        self.set_at(self.start_of_row(row))
    }

    fn set_at(&self, start: usize) -> AtomicCpuSet<'k> {
        AtomicCpuSet::new(&self.rows[start..][..self.row_words])
    }
}

/// Which CPUs may have sent a request to this one: hints where to look. The outboxes are authoritative.
///
/// First the top level, one bit for each word below it; then those words, one bit for each initiator.
pub(crate) struct Inbox<'m, 'k> {
    matrix: &'m RequestMatrix<'k>,
    /// Where in the matrix it begins.
    start: usize,
}

impl Inbox<'_, '_> {
    /// Leaves the hint of `initiator`; true if an IPI has to follow. If a hint is there already, its IPI is on the way,
    /// and the handler will find this hint too.
    #[inline(always)]
    pub(crate) fn leave_hint(&self, initiator: CpuId) -> bool {
        let (index, bit) = split(initiator);
        // Release: the outbox comes before it; partner is the Acquire with which the word is taken.
        let before = self.word(index).fetch_or(bit, Ordering::Release);
        before == 0 && (self.matrix.top_words == 0 || self.add_on_top(index))
    }

    /// The word at `index` below the top level.
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.matrix.inboxes[self.start + self.matrix.top_words + index]
    }

    #[inline(never)]
    fn add_on_top(&self, index: usize) -> bool {
        let (top, bit) = split(CpuId(index as u32));
        // Release: the hint comes before it; partner is the Acquire with which the top is taken.
        self.matrix.inboxes[self.start + top].fetch_or(bit, Ordering::Release) == 0
    }

    /// Leaves the hint again, in both levels: the first may have been taken already, or the CPU that was about to leave
    /// it, or to set the top, may have stopped.
    pub(crate) fn leave_hint_again(&self, initiator: CpuId) {
        let _was_first = self.leave_hint(initiator);
        if self.matrix.top_words != 0 {
            self.add_on_top(split(initiator).0);
        }
    }

    /// Makes the next `take_hints` look at every word: the CPU may have been stopped after it took the top and before
    /// it took the words. No initiator sets their bits in the top again before it finds them empty.
    pub(crate) fn look_everywhere(&self) {
        if self.matrix.top_words != 0 {
            (0..self.matrix.row_words).for_each(|index| _ = self.add_on_top(index));
        }
    }

    /// Its only word, on a machine of up to 64 CPUs.
    pub(crate) fn only_word(&self) -> Option<&AtomicU64> {
        if self.matrix.row_words == 1 { self.matrix.inboxes.get(self.start) } else { None }
    }

    /// Takes all hints and calls `f` with each initiator.
    pub(crate) fn take_hints(&self, mut f: impl FnMut(CpuId)) {
        if self.matrix.top_words == 0 {
            let words = &self.matrix.inboxes[self.start..][..self.matrix.row_words];
            return words.iter().enumerate().for_each(|(index, word)| for_each_cpu(index, take(word), &mut f));
        }
        for (index, top) in self.matrix.inboxes[self.start..][..self.matrix.top_words].iter().enumerate() {
            for_each_cpu(index, take(top), |CpuId(index)| {
                for_each_cpu(index as usize, take(self.word(index as usize)), &mut f);
            });
        }
    }
}

/// Empties `word`; returns what it held.
#[inline(always)]
pub(crate) fn take(word: &AtomicU64) -> u64 {
    // Relaxed: this look saves the exchange; for a hint that it misses the IPI, or the bit in the top, is still to
    // come. `bring_up`, whose IPIs were lost, looks after its fence.
    if word.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    // Acquire: partner is the Release with which an initiator leaves its hint, or sets the top after it.
    word.swap(0, Ordering::Acquire)
}

#[cfg(all(test, not(any(loom, narrow_sets))))]
mod tests {
    use super::*;
    use crate::addr::{SpaceToken, Stride};
    use crate::flush::request::{Extent, InUse, Needs, Request, Step};
    use crate::space::{Generation, SpaceId};

    /// Relaxed: the tests have one thread.
    const ORDER: Ordering = Ordering::Relaxed;

    fn taken(inbox: &Inbox<'_, '_>) -> [Option<u32>; 4] {
        let mut found = [None; 4];
        let mut places = found.iter_mut();
        inbox.take_hints(|initiator| *places.next().expect("at most four") = Some(initiator.0));
        found
    }

    #[test]
    fn hints_are_taken_once_whatever_the_size() {
        static WORDS: [AtomicU64; RequestMatrix::words(8192)] =
            [const { AtomicU64::new(0) }; RequestMatrix::words(8192)];
        for cpus in [4, 65, 512, 513, 4096, 8192] {
            let matrix = RequestMatrix::new(&WORDS, cpus);
            let (own, last) = (CpuId(1), cpus as u32 - 1);
            let inbox = matrix.inbox(own);
            for initiator in [last, 0, 2] {
                inbox.leave_hint(CpuId(initiator));
            }
            assert_eq!(taken(&inbox), [Some(0), Some(2), Some(last), None], "{cpus} CPUs");
            assert_eq!(taken(&inbox), [None; 4]);
            assert!(WORDS.iter().all(|word| word.load(ORDER) == 0), "nothing else was written");
        }
    }

    #[test]
    fn the_last_row_ends_where_the_words_end() {
        static WORDS: [AtomicU64; RequestMatrix::words(513)] = [const { AtomicU64::new(0) }; RequestMatrix::words(513)];
        for cpus in [1, 2, 64, 65, 513] {
            let matrix = RequestMatrix::new(&WORDS, cpus);
            let last_row = matrix.start_of_outbox(CpuId(cpus as u32 - 1), MAILBOXES - 1);
            let used = matrix.inboxes.len() + last_row + matrix.row_words;
            assert_eq!(RequestMatrix::words(cpus), used, "{cpus} CPUs");
        }
    }

    #[test]
    fn mailboxes_lie_side_by_side_behind_the_inbox() {
        static WORDS: [AtomicU64; RequestMatrix::words(130)] = [const { AtomicU64::new(0) }; RequestMatrix::words(130)];
        let matrix = RequestMatrix::new(&WORDS, 130);
        let all = || (0..130).flat_map(|cpu| (1..MAILBOXES).map(move |slot| (CpuId(cpu), slot)));
        for ((cpu, slot), number) in all().zip(1..) {
            let request = Request {
                space: SpaceId(number),
                token: SpaceToken(0),
                generation: Generation(0),
                extent: Extent::Everything,
                step: Step::from_stride(Stride::Page4K),
                needs: Needs::NOTHING,
            };
            matrix.mailbox(cpu, slot).post(&request, InUse::FirstAlone);
        }
        assert!(matrix.rows.iter().all(|word| word.load(ORDER) == 0), "a row was written");
        let mut numbers = 1..;
        for cpu in matrix.inboxes.chunks(matrix.inbox_stride) {
            let (inbox, mailboxes) = cpu.split_at(inbox_words(130));
            assert!(inbox.iter().all(|word| word.load(ORDER) == 0), "an inbox was written");
            assert!(mailboxes.chunks(LINE).all(|line| Some(line[0].load(ORDER)) == numbers.next()));
        }
    }

    #[test]
    fn one_interrupt_is_enough_for_hints_that_wait() {
        static WORDS: [AtomicU64; RequestMatrix::words(4096)] =
            [const { AtomicU64::new(0) }; RequestMatrix::words(4096)];
        let matrix = RequestMatrix::new(&WORDS, 4096);
        let inbox = matrix.inbox(CpuId(4095));
        assert!(inbox.leave_hint(CpuId(7)));
        // The same word, then another word under the same top.
        assert!(!inbox.leave_hint(CpuId(8)) && !inbox.leave_hint(CpuId(700)));
        assert_eq!(taken(&inbox), [Some(7), Some(8), Some(700), None]);
        assert!(inbox.leave_hint(CpuId(8)));
    }

    #[test]
    fn a_hint_whose_initiator_stopped_before_the_top_is_found_once_left_again() {
        static WORDS: [AtomicU64; RequestMatrix::words(1024)] =
            [const { AtomicU64::new(0) }; RequestMatrix::words(1024)];
        let matrix = RequestMatrix::new(&WORDS, 1024);
        let inbox = matrix.inbox(CpuId(0));
        let (index, bit) = split(CpuId(900));
        inbox.word(index).fetch_or(bit, ORDER);
        assert_eq!(taken(&inbox), [None; 4]);
        assert!(!inbox.leave_hint(CpuId(901)), "it counts on the one that stopped");
        inbox.leave_hint_again(CpuId(901));
        assert_eq!(taken(&inbox), [Some(900), Some(901), None, None]);
    }

    #[test]
    fn hints_whose_top_was_taken_without_them_are_found_by_a_look_everywhere() {
        static WORDS: [AtomicU64; RequestMatrix::words(8192)] =
            [const { AtomicU64::new(0) }; RequestMatrix::words(8192)];
        let matrix = RequestMatrix::new(&WORDS, 8192);
        let inbox = matrix.inbox(CpuId(0));
        for initiator in [8191, 5, 700] {
            inbox.leave_hint(CpuId(initiator));
        }
        WORDS[..matrix.top_words].iter().for_each(|top| top.store(0, ORDER));
        assert_eq!(taken(&inbox), [None; 4]);
        inbox.look_everywhere();
        assert_eq!(taken(&inbox), [Some(5), Some(700), Some(8191), None]);
        assert!(inbox.leave_hint(CpuId(700)));
    }

    #[test]
    fn no_two_cpus_share_a_line_of_an_inbox_a_first_outbox_or_a_mailbox() {
        #[repr(align(64))]
        struct Lines([AtomicU64; RequestMatrix::words(130)]);
        static WORDS: Lines = Lines([const { AtomicU64::new(0) }; RequestMatrix::words(130)]);
        for cpus in [2, 4, 64, 65, 130] {
            let matrix = RequestMatrix::new(&WORDS.0, cpus);
            assert_eq!(matrix.inbox_stride % LINE, 0, "{cpus} CPUs: the mailboxes end where a line ends");
            let line_of = |word: &AtomicU64| core::ptr::from_ref(word).addr() / 64;
            for (cpu, next) in (0..cpus as u32).zip(1..cpus as u32) {
                let [one, other] = [cpu, next].map(CpuId).map(|cpu| (matrix.inbox(cpu), matrix.outbox(cpu, 0)));
                assert!(line_of(one.0.word(0)) < line_of(other.0.word(0)), "{cpus} CPUs");
                assert!(line_of(&one.1.words()[0]) < line_of(&other.1.words()[0]), "{cpus} CPUs");
            }
        }
    }

    #[test]
    fn only_large_machines_pay_for_tops() {
        assert_eq!([1, 64, 512].map(inbox_words), [8, 8, 8]);
        assert_eq!([513, 4096, 8192].map(inbox_words), [16, 72, 136]);
    }
}
