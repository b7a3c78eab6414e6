//! What the emulator wrote down: each block of instructions when it was translated, with its listing, and each again
//! whenever it was executed. Counted is what was executed between marks, by function.

use anyhow::{Result, bail};
use std::collections::HashMap;
use std::io::BufRead;

use super::symbols::Symbol;

/// Instructions by function, in the order of the functions, from one mark to the next.
pub(super) type Stretch = Vec<u64>;

/// A block as the emulator finds it again: where it begins, and what it was translated for. The same code is translated
/// anew, and shorter, where the clock wants to stop within it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Block {
    begin: u64,
    text: String,
}

impl Block {
    /// `Trace 0: 0x7f54d8000100 [0000000000000000/ffffffff81000000/0000c0b0/ff020000] name`.
    fn of(line: &str) -> Option<Self> {
        let text = line.strip_prefix("Trace ")?.split_once('[')?.1.split_once(']')?.0;
        let begin = u64::from_str_radix(text.split('/').nth(1)?, 16).ok()?;
        Some(Self { begin, text: text.to_owned() })
    }
}

/// Reads what the emulator writes, and counts.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    /// By address.
    functions: &'a [Symbol],
    mark: u64,
    /// Instructions of each block, and the index of its function.
    known: HashMap<Block, (u64, usize)>,
    /// Instructions of the listing that was read last, until its block is executed.
    listed: Option<u64>,
    now: Stretch,
    finished: Vec<Stretch>,
}

impl<'a> Reader<'a> {
    /// `functions` must be in the order of their addresses.
    pub(super) fn new(functions: &'a [Symbol], mark: u64) -> Self {
        let now = vec![0; functions.len()];
        Self { functions, mark, known: HashMap::new(), listed: None, now, finished: Vec::new() }
    }

    /// All stretches that a mark ends: what was executed before the first mark is the first of them.
    pub(super) fn read(mut self, log: impl BufRead) -> Result<Vec<Stretch>> {
        for line in log.split(b'\n') {
            let line = line?;
            self.take(&String::from_utf8_lossy(&line))?;
        }
        Ok(self.finished)
    }

    fn take(&mut self, line: &str) -> Result<()> {
        if line.starts_with("IN:") {
            self.listed = Some(0);
        } else if let Some(count) = self.listed.as_mut().filter(|_| line.starts_with("0x")) {
            *count += 1;
        } else if let Some(block) = Block::of(line) {
            self.execute(block)?;
        }
        Ok(())
    }

    fn execute(&mut self, block: Block) -> Result<()> {
        if block.begin == self.mark {
            self.listed = None;
            let finished = std::mem::replace(&mut self.now, vec![0; self.functions.len()]);
            self.finished.push(finished);
            return Ok(());
        }
        if let Some(count) = self.listed.take() {
            let Some(index) = self.function(block.begin) else { return Ok(()) };
            self.known.insert(block.clone(), (count, index));
        }
        match self.known.get(&block) {
            Some(&(count, index)) => self.now[index] += count,
            None if self.function(block.begin).is_none() => {}
            None => bail!("the emulator executed a block that it had not listed: [{}]", block.text),
        }
        Ok(())
    }

    fn function(&self, at: u64) -> Option<usize> {
        let index = self.functions.partition_point(|one| one.begin <= at).checked_sub(1)?;
        (at < self.functions[index].end).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::symbols::symbol;

    fn functions() -> Vec<Symbol> {
        ["10 4 T mark", "20 8 t flush", "30 8 T send"].map(|line| symbol(line).expect("code")).to_vec()
    }

    fn listed(at: u64, count: u64) -> String {
        let line = |index: u64| format!("0x{:016x}:  90   nop\n", at + index);
        format!("----------------\nIN: name\n{}\n", (0..count).map(line).collect::<String>())
    }

    fn executed(at: u64, flags: u32) -> String {
        format!("Trace 0: 0x7f [0000/{at:016x}/00/{flags:x}] name\n")
    }

    #[test]
    fn a_block_counts_with_its_instructions_between_its_marks() -> Result<()> {
        let log = [
            listed(0x10, 4) + &executed(0x10, 0),
            listed(0x20, 3) + &executed(0x20, 0) + &executed(0x20, 0),
            // The clock stops within it: the same place, and one instruction.
            listed(0x20, 1) + &executed(0x20, 1) + &executed(0x20, 0),
            listed(0x34, 2) + &executed(0x34, 0) + &executed(0x10, 0),
            executed(0x20, 0) + &executed(0x10, 0),
        ];
        let stretches = Reader::new(&functions(), 0x10).read(log.concat().as_bytes())?;
        assert_eq!(stretches, [[0, 0, 0], [0, 10, 2], [0, 3, 0]]);
        Ok(())
    }

    #[test]
    fn a_block_without_a_listing_is_refused() {
        let read = |log: &str| Reader::new(&functions(), 0x10).read(log.as_bytes());
        let error = read(&executed(0x20, 0)).map(|_| ()).expect_err("how long it is cannot be known");
        assert!(error.to_string().contains("had not listed"), "{error}");
        assert!(read(&executed(0x50, 0)).is_ok(), "it lies in no function that is counted");
    }
}
