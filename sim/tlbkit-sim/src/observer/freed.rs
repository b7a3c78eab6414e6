//! Which operation freed a frame that has not been allocated since: asked at every allocation, so frames lie in chunks
//! of neighbours, of which few are in use at a time.

use tlbkit::{PAGE_BYTES, PhysAddr};

/// Freed frames that are followed; the one with the lowest address is forgotten for the next.
const MOST_FRAMES: usize = 8_192;
/// Frames of a chunk: those of one large page.
const CHUNK_FRAMES: usize = 512;
const WORD_BITS: usize = 64;

/// Neighbouring frames.
struct Chunk {
    /// A bit for each frame that is followed.
    followed: [u64; CHUNK_FRAMES / WORD_BITS],
    /// By frame: the operation that freed it, where it is followed.
    operations: [u64; CHUNK_FRAMES],
}

impl Chunk {
    const EMPTY: Self = Self { followed: [0; CHUNK_FRAMES / WORD_BITS], operations: [0; CHUNK_FRAMES] };

    /// Whether the frame was followed; from now on it is not.
    fn forget(&mut self, frame: usize) -> bool {
        let (word, bit) = (&mut self.followed[frame / WORD_BITS], 1 << (frame % WORD_BITS));
        let was_followed = *word & bit != 0;
        *word &= !bit;
        was_followed
    }

    /// Whether the frame was followed before; from now on it is.
    fn follow(&mut self, frame: usize, operation: u64) -> bool {
        let (word, bit) = (&mut self.followed[frame / WORD_BITS], 1 << (frame % WORD_BITS));
        let was_followed = *word & bit != 0;
        *word |= bit;
        self.operations[frame] = operation;
        was_followed
    }

    /// The frame with the lowest address that is followed.
    fn lowest(&self) -> Option<usize> {
        let at = self.followed.iter().position(|&word| word != 0)?;
        Some(at * WORD_BITS + self.followed[at].trailing_zeros() as usize)
    }
}

/// Frames that an operation freed.
#[derive(Default)]
pub(super) struct FreedFrames {
    /// Chunks with followed frames, and some that have none any more, sorted by number.
    chunks: Vec<(u64, Box<Chunk>)>,
    /// The place of the chunk that was looked for last: a guess for the next.
    guess: usize,
    count: usize,
}

impl FreedFrames {
    /// The operation freed the frame at `at`.
    pub(super) fn freed(&mut self, operation: u64, at: PhysAddr) {
        let (number, frame) = split(at);
        let place = self.place(number).unwrap_or_else(|place| {
            self.chunks.insert(place, (number, Box::new(Chunk::EMPTY)));
            place
        });
        self.guess = place;
        if !self.chunks[place].1.follow(frame, operation) {
            self.count += 1;
        }
        if self.count > MOST_FRAMES {
            self.forget_lowest();
        }
    }

    /// The operation that freed the frame at `at`, if it is followed; from now on it is not.
    pub(super) fn take(&mut self, at: PhysAddr) -> Option<u64> {
        let (number, frame) = split(at);
        let place = self.place(number).ok()?;
        self.guess = place;
        let chunk = &mut self.chunks[place].1;
        chunk.forget(frame).then(|| {
            self.count -= 1;
            chunk.operations[frame]
        })
    }

    /// Where the chunk is, or would be.
    fn place(&self, number: u64) -> Result<usize, usize> {
        match self.chunks.get(self.guess) {
            Some((guessed, _)) if *guessed == number => Ok(self.guess),
            _ => self.chunks.binary_search_by_key(&number, |(number, _)| *number),
        }
    }

    fn forget_lowest(&mut self) {
        let lowest = |(place, (_, chunk)): (usize, &(u64, Box<Chunk>))| chunk.lowest().map(|frame| (place, frame));
        let Some((place, frame)) = self.chunks.iter().enumerate().find_map(lowest) else { return };
        self.chunks[place].1.forget(frame);
        self.count -= 1;
        // Those before it have none any more: nobody need look through them again.
        self.chunks.drain(..place);
    }
}

/// The number of the frame's chunk, and its place there.
fn split(at: PhysAddr) -> (u64, usize) {
    let frame = at.0 / PAGE_BYTES;
    (frame / CHUNK_FRAMES as u64, frame as usize % CHUNK_FRAMES)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn at(frame: u64) -> PhysAddr {
        PhysAddr(frame * PAGE_BYTES)
    }

    #[test]
    fn it_agrees_with_a_sorted_map() {
        let (mut freed, mut sorted) = (FreedFrames::default(), BTreeMap::new());
        for step in 0..60_000_u64 {
            // More frames than are followed, in two ranges that lie far apart.
            let frame = step * 7919 % 12_289 + ((step % 3 / 2) << 28);
            if step % 7 == 6 {
                assert_eq!(freed.take(at(frame)), sorted.remove(&frame), "step {step}");
                continue;
            }
            freed.freed(step, at(frame));
            sorted.insert(frame, step);
            if sorted.len() > MOST_FRAMES {
                sorted.pop_first();
            }
            assert_eq!(freed.count, sorted.len(), "step {step}");
        }
        assert_eq!(freed.count, MOST_FRAMES, "the limit was reached");
        for (frame, operation) in sorted {
            assert_eq!(freed.take(at(frame)), Some(operation), "frame {frame}");
        }
        assert_eq!(freed.count, 0);
    }
}
