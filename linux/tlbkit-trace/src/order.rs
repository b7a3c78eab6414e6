//! Puts records into order of time, one round of the recorder after the other.
//!
//! The recorder empties the buffers of all CPUs, one after the other, and then marks the end of the round. A record
//! that a round brings can be older than the begin of the round, but not older than the newest record of the round
//! before.

/// The most records of a round. A longer round ends without a mark, which bounds the memory that a broken or unusual
/// recorder costs.
const MAX_ROUND: usize = 1 << 20;

/// Holds records back as long as an older one may still come. Only keys are sorted, and the records stay where they
/// are, because a record is several times as large as its key.
pub(crate) struct Rounds<T> {
    /// Keys of the records that may be handed out, the newest first. The records are in `records`.
    ready: Vec<Key>,
    records: Vec<T>,
    held_keys: Vec<Key>,
    held: Vec<T>,
    newest_of_last_round_ns: u64,
    newest_ns: u64,
    /// How many of the held records belong to rounds that have ended.
    held_before_round: usize,
}

/// The time of a record, in nanoseconds, and its place among the others.
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
        // At most two rounds are held, each of at most `MAX_ROUND` records, so a place always fits into 32 bits.
        self.held_keys.push(Key { time_ns, place: self.held.len() as u32 });
        self.held.push(record);
    }

    /// Whether the round has become so long that it must end without a mark.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() - self.held_before_round >= MAX_ROUND
    }

    /// Whether every record has been handed out.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.ready.is_empty()
    }

    /// Ends a round: the records that are not newer than the newest one of the round before may be handed out. Must be
    /// called only when all records that were ready have been popped.
    pub(crate) fn end_round(&mut self) {
        self.release(self.newest_of_last_round_ns);
        self.newest_of_last_round_ns = self.newest_ns;
        self.held_before_round = self.held.len();
    }

    /// Ends the trace: all records may be handed out. Must be called only when all that were ready have been popped.
    pub(crate) fn finish(&mut self) {
        self.release(u64::MAX);
    }

    /// The oldest record that may be handed out.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.ready.pop().map(|key| self.records[key.place as usize])
    }

    fn release(&mut self, until_ns: u64) {
        debug_assert!(self.ready.is_empty(), "released twice");
        // The sort is stable, so records of equal times keep the order of the file. It is quick, because the records of
        // each CPU are in order already.
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
