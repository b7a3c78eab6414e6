//! Puts records into order of time, a round at a time.
//!
//! The recorder empties one buffer per CPU after the other and then marks the end of a round. What a round brings can
//! be older than the round's begin, but not older than the newest record of the round before it.

/// Without marks, so many records make a round: what a broken or foreign recorder costs in memory.
const MAX_ROUND: usize = 1 << 20;

/// Holds back what may still be preceded by something older. Keys are sorted and records stay where they are: one is
/// several times as large as its key.
pub(crate) struct Rounds<T> {
    /// Keys of those that are ready, youngest first; their records are in `records`.
    ready: Vec<Key>,
    records: Vec<T>,
    held_keys: Vec<Key>,
    held: Vec<T>,
    newest_of_last_round_ns: u64,
    newest_ns: u64,
    /// Where the last round ends among what is held.
    held_before_round: usize,
}

/// When a record was made, and its place among the others.
#[derive(Clone, Copy)]
struct Key {
    time_ns: u64,
    place: u32,
}

impl<T: Copy> Rounds<T> {
    pub(crate) fn new() -> Self {
        Self {
            ready: Vec::new(),
            records: Vec::new(),
            held_keys: Vec::new(),
            held: Vec::new(),
            newest_of_last_round_ns: 0,
            newest_ns: 0,
            held_before_round: 0,
        }
    }

    pub(crate) fn push(&mut self, time_ns: u64, record: T) {
        self.newest_ns = self.newest_ns.max(time_ns);
        // A round ends long before its places need more bits, and what is left of the last one is no longer than that.
        self.held_keys.push(Key { time_ns, place: self.held.len() as u32 });
        self.held.push(record);
    }

    /// Whether the round grew so long that it must end without a mark.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() - self.held_before_round >= MAX_ROUND
    }

    /// Whether all is out.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.ready.is_empty()
    }

    /// Ends a round: lets go of what the last one had at its end. Call only when nothing is ready.
    pub(crate) fn end_round(&mut self) {
        self.release(self.newest_of_last_round_ns);
        self.newest_of_last_round_ns = self.newest_ns;
        self.held_before_round = self.held.len();
    }

    /// Lets go of everything. Call only when nothing is ready.
    pub(crate) fn finish(&mut self) {
        self.release(u64::MAX);
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.ready.pop().map(|key| self.records[key.place as usize])
    }

    fn release(&mut self, until_ns: u64) {
        debug_assert!(self.ready.is_empty(), "released twice");
        // Stable, and quick where it finds runs in order: one for each CPU.
        self.held_keys.sort_by_key(|key| key.time_ns);
        let end = self.held_keys.partition_point(|key| key.time_ns <= until_ns);
        std::mem::swap(&mut self.records, &mut self.held);
        self.held.clear();
        self.held.extend(self.held_keys[end..].iter().map(|key| self.records[key.place as usize]));
        self.ready.extend(self.held_keys.drain(..end).rev());
        (0..).zip(&mut self.held_keys).for_each(|(place, key)| key.place = place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(rounds: &mut Rounds<u64>) -> Vec<u64> {
        std::iter::from_fn(|| rounds.pop()).collect()
    }

    #[test]
    fn a_record_waits_for_the_round_after_its_own() {
        let mut rounds = Rounds::new();
        for time_ns in [10, 30, 20] {
            rounds.push(time_ns, time_ns);
        }
        rounds.end_round();
        assert!(drain(&mut rounds).is_empty());
        for time_ns in [40, 25] {
            rounds.push(time_ns, time_ns);
        }
        rounds.end_round();
        assert_eq!(drain(&mut rounds), [10, 20, 25, 30]);
        rounds.finish();
        assert_eq!(drain(&mut rounds), [40]);
    }

    #[test]
    fn equal_times_keep_the_files_order() {
        let mut rounds = Rounds::new();
        for record in 0..100 {
            rounds.push(7, record);
        }
        rounds.finish();
        assert!(drain(&mut rounds).into_iter().eq(0..100));
    }
}
