//! Who has asked whom, and who takes part: rows of bits, and the inboxes among them.
//!
//! An inbox has one bit an initiator. Up to a line of words, for 512 CPUs, it is looked through. A larger one has a
//! *top*, a bit for each word, and an answer looks at the words that the top names:
//!
//! ```text
//!   initiator (leave_hint)                    responder (take_hints)
//!   word |= own bit         (Release)         take top                    (Acquire)
//!   if it was 0:                              for each bit of it:
//!     top |= bit of word    (Release)           take that word            (Acquire)
//!     if it was 0: interrupt
//! ```
//! A word that is not 0 is named by the top; or it is about to be, by the initiator that found it 0; or it is about
//! to be taken, by the responder, which has the top already. A top that is not 0 has an interrupt sent or about to
//! be. So an initiator that finds either not 0 leaves the rest to whoever was first. For that each side goes its own
//! way, the initiator up and the responder down: a top set too early, or emptied too late, leaves a word that nobody
//! names.
//!
//! A CPU that is stopped by force does not do what it is about to. If it was the initiator, the next one asks again,
//! and sets the top itself (`leave_hint_again`); if it was the responder, it looks at every word when it is back
//! (`look_everywhere`).

#[cfg(all(feature = "observe", not(loom)))]
pub(crate) mod part;

use crate::addr::CpuId;
use crate::cpu_set::{AtomicCpuSet, Attendance, Missing, each_cpu, split, words_for};
use crate::history::state::ROWS;
use crate::request::{Mailbox, RING};
use crate::sync::{AtomicU64, Ordering};

/// Words of a cache line.
const LINE: usize = 8;

/// Words of an inbox that are looked through without a word on top: a cache line.
const LOOKED_THROUGH: usize = if cfg!(narrow_sets) { 1 } else { LINE };

/// Words from one inbox of `words` words, or first outbox, to the next: whole lines. Many CPUs write to each at once;
/// with eight CPUs' in one line, 55 that flush at once did a quarter of the work in the simulator. Checkers, which have
/// no lines and pay for each word, have none between.
const fn stride_of(words: usize) -> usize {
    if cfg!(any(loom, narrow_sets)) { words } else { words.next_multiple_of(LINE) }
}

/// Words on top of an inbox of `words` words.
const fn top_words(words: usize) -> usize {
    if words > LOOKED_THROUGH { words_for(words) } else { 0 }
}

/// Words from one inbox to the next, its top among them.
const fn inbox_words(cpus: usize) -> usize {
    stride_of(top_words(words_for(cpus)) + words_for(cpus))
}

/// Words of a CPU's mailboxes but the first, which is in its [`CpuState`](crate::CpuState).
const MAILBOXES: usize = (RING - 1) * LINE;

/// For each CPU its inbox and its other mailboxes, a line each; then for each whom it still waits for with its first
/// mailbox. All these begin cache lines, if the kernel's words begin one. Behind them rows side by side: the online
/// CPUs, the rows of `history`, whom each CPU waits for with its other mailboxes.
#[derive(Clone, Copy)]
pub(crate) struct RequestMatrix<'k> {
    /// Each CPU's inbox, with its mailboxes but the first behind it.
    inboxes: &'k [AtomicU64],
    /// All behind the inboxes and the mailboxes.
    rows: &'k [AtomicU64],
    cpus: usize,
    row_words: usize,
    /// Words from one first outbox to the next.
    outbox_stride: usize,
    /// Words from one inbox to the next, with the mailboxes between.
    inbox_stride: usize,
    top_words: usize,
}

impl<'k> RequestMatrix<'k> {
    pub(crate) const fn words(cpus: usize) -> usize {
        let lines = inbox_words(cpus) + MAILBOXES + stride_of(words_for(cpus));
        cpus * lines + (1 + ROWS + cpus * (RING - 1)) * words_for(cpus)
    }

    /// # Panics
    /// If `words` are fewer than [`words`](Self::words).
    pub(crate) const fn new(words: &'k [AtomicU64], cpus: usize) -> Self {
        assert!(words.len() >= Self::words(cpus), "the matrix is too small for the CPUs");
        let (inbox_stride, row_words) = (inbox_words(cpus) + MAILBOXES, words_for(cpus));
        let (inboxes, rows) = words.split_at(cpus * inbox_stride);
        let (outbox_stride, top_words) = (stride_of(row_words), top_words(row_words));
        Self { inboxes, rows, cpus, row_words, outbox_stride, inbox_stride, top_words }
    }

    /// Where `cpu` looks for requests.
    #[inline(always)]
    pub(crate) const fn inbox(&self, cpu: CpuId) -> Inbox<'_, 'k> {
        Inbox { matrix: self, start: cpu.0 as usize * self.inbox_stride }
    }

    /// CPUs that `cpu` still waits for: the truth about the request in its mailbox number `slot`.
    #[inline(always)]
    pub(crate) fn outbox(&self, cpu: CpuId, slot: usize) -> AtomicCpuSet<'k> {
        self.set_at(self.start_of_outbox(cpu, slot))
    }

    /// CPUs that `cpu` still waits for with its first mailbox, where all stand in a single word.
    ///
    /// # Panics
    /// If there is no such CPU.
    #[inline(always)]
    pub(crate) fn first_outbox_word(&self, cpu: CpuId) -> &'k AtomicU64 {
        &self.rows[self.start_of_outbox(cpu, 0)]
    }

    /// The same of any mailbox, if it is a single word: up to 64 CPUs.
    #[inline(always)]
    pub(crate) fn outbox_word(&self, cpu: CpuId, slot: usize) -> Option<&'k AtomicU64> {
        if self.row_words == 1 { self.rows.get(self.start_of_outbox(cpu, slot)) } else { None }
    }

    #[inline(always)]
    const fn start_of_outbox(&self, cpu: CpuId, slot: usize) -> usize {
        let cpu = cpu.0 as usize;
        if slot == 0 { cpu * self.outbox_stride } else { self.start_of_row(1 + ROWS + cpu * (RING - 1) + slot - 1) }
    }

    /// Of the rows that lie side by side.
    #[inline(always)]
    const fn start_of_row(&self, row: usize) -> usize {
        self.cpus * self.outbox_stride + row * self.row_words
    }

    /// CPUs that have not answered a request of `cpu`, in any mailbox; `attendance` knows who is away.
    pub(crate) fn missing<'a>(&self, cpu: CpuId, attendance: &'a dyn Attendance) -> Missing<'a>
    where
        'k: 'a,
    {
        let others = &self.rows[self.start_of_outbox(cpu, 1)..][..(RING - 1) * self.row_words];
        Missing { first: self.outbox(cpu, 0), others, attendance }
    }

    /// The mailbox number `slot` of `cpu`, which is not its first.
    pub(crate) fn mailbox(&self, cpu: CpuId, slot: usize) -> Mailbox<'k> {
        let end = (cpu.0 as usize + 1) * self.inbox_stride;
        Mailbox::of_words(&self.inboxes[end - (RING - slot) * LINE..])
    }

    pub(crate) fn online(&self) -> AtomicCpuSet<'k> {
        self.row(0)
    }

    /// The online CPUs, if they are a single word.
    #[inline(always)]
    pub(crate) fn online_word(&self) -> Option<&'k AtomicU64> {
        if self.row_words == 1 { self.rows.get(self.start_of_row(0)) } else { None }
    }

    /// A row of those that lie side by side: the online CPUs, then those of `history`.
    pub(crate) fn row(&self, row: usize) -> AtomicCpuSet<'k> {
        self.set_at(self.start_of_row(row))
    }

    #[inline(never)]
    fn set_at(&self, start: usize) -> AtomicCpuSet<'k> {
        AtomicCpuSet::new(&self.rows[start..][..self.row_words])
    }
}

/// CPUs that have asked one CPU for something: where it looks, not what is true.
///
/// First the top, with one bit a word below it, then those words, with one bit an initiator.
pub(crate) struct Inbox<'m, 'k> {
    matrix: &'m RequestMatrix<'k>,
    /// Where in the matrix it begins.
    start: usize,
}

impl Inbox<'_, '_> {
    /// Leaves the hint of `initiator`; true if an interrupt must follow. A hint already there has its interrupt on
    /// the way, and that one will find this hint too.
    #[inline(always)]
    pub(crate) fn leave_hint(&self, initiator: CpuId) -> bool {
        let (index, bit) = split(initiator);
        // Release: the outbox comes before it; partner is the Acquire with which the word is taken.
        let before = self.word(index).fetch_or(bit, Ordering::Release);
        before == 0 && (self.matrix.top_words == 0 || self.add_on_top(index))
    }

    /// The word at `index` below the top.
    #[inline(always)]
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.matrix.inboxes[self.start + self.matrix.top_words + index]
    }

    #[inline(never)]
    fn add_on_top(&self, index: usize) -> bool {
        let (top, bit) = split(CpuId(index as u32));
        // Release: the hint comes before it; partner is the Acquire with which the top is taken.
        self.matrix.inboxes[self.start + top].fetch_or(bit, Ordering::Release) == 0
    }

    /// Leaves the hint again, all of it: the first may be taken already, or whoever was to set the top may have
    /// stopped.
    pub(crate) fn leave_hint_again(&self, initiator: CpuId) {
        let (index, bit) = split(initiator);
        // Relaxed: the outbox came before the first hint, by the Release in `leave_hint`. Hints come and go by
        // exchanges only, so whoever finds this one finds that one's Release in its sequence.
        self.word(index).fetch_or(bit, Ordering::Relaxed);
        if self.matrix.top_words != 0 {
            self.add_on_top(index);
        }
    }

    /// Has the next take look at every word: the CPU may have been stopped when it had taken the top and not yet the
    /// words. No initiator sets their bits again before it finds them empty.
    pub(crate) fn look_everywhere(&self) {
        if self.matrix.top_words != 0 {
            (0..self.matrix.row_words).for_each(|index| _ = self.add_on_top(index));
        }
    }

    /// The hints where they are a single word, as on machines of up to 64 CPUs: such an inbox has no top.
    #[inline(always)]
    pub(crate) fn only_word(&self) -> Option<&AtomicU64> {
        if self.matrix.row_words == 1 { self.matrix.inboxes.get(self.start) } else { None }
    }

    /// Takes all hints out and calls `f` with each initiator.
    pub(crate) fn take_hints(&self, mut f: impl FnMut(CpuId)) {
        if self.matrix.top_words != 0 {
            return self.take_by_top(f);
        }
        let words = &self.matrix.inboxes[self.start..][..self.matrix.row_words];
        words.iter().enumerate().for_each(|(index, word)| take(index, word, &mut f));
    }

    #[inline(never)]
    fn take_by_top(&self, mut f: impl FnMut(CpuId)) {
        for (index, top) in self.matrix.inboxes[self.start..][..self.matrix.top_words].iter().enumerate() {
            take(index, top, &mut |CpuId(index)| take(index as usize, self.word(index as usize), &mut f));
        }
    }
}

/// Empties `word`, the one at `index`, and calls `f` with what each of its bits stands for.
#[inline(always)]
fn take(index: usize, word: &AtomicU64, f: &mut impl FnMut(CpuId)) {
    each_cpu(index, take_word(word), f);
}

/// Empties `word`; what it held.
#[inline(always)]
pub(crate) fn take_word(word: &AtomicU64) -> u64 {
    // Relaxed: a look that saves the exchange; what it misses has its interrupt, or its top, to come. `bring_up`, whose
    // interrupts were lost, looks after its fence.
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
    use crate::address_space::{Generation, SpaceId};
    use crate::request::{Extent, InUse, Needs, Request, Step};

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
            let last_row = matrix.start_of_outbox(CpuId(cpus as u32 - 1), RING - 1);
            let used = matrix.inboxes.len() + last_row + matrix.row_words;
            assert_eq!(RequestMatrix::words(cpus), used, "{cpus} CPUs");
        }
    }

    #[test]
    fn mailboxes_lie_side_by_side_behind_the_inbox() {
        static WORDS: [AtomicU64; RequestMatrix::words(130)] = [const { AtomicU64::new(0) }; RequestMatrix::words(130)];
        let matrix = RequestMatrix::new(&WORDS, 130);
        let all = || (0..130).flat_map(|cpu| (1..RING).map(move |slot| (CpuId(cpu), slot)));
        for ((cpu, slot), number) in all().zip(1..) {
            let request = Request {
                space: SpaceId(number),
                token: SpaceToken(0),
                generation: Generation(0),
                extent: Extent::Everything,
                step: Step::of(Stride::Page4K),
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
