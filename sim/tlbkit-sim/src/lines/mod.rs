//! Cache lines that CPUs share: who holds one, and what the next access to it costs.
//!
//! A line has holders, at most one of which may write it, and a time until which a transfer occupies it: later
//! requests queue behind. A load of a line that nobody may write keeps no other waiting: it comes from the cache that
//! all cores share, which answers one while the next asks. Addresses are the host's, but only as names: costs depend on
//! which line an access meets and never on an address' value, so the host's allocator does not show.

mod holders;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use tlbkit::sync::Access;
use tlbkit_arch::random::GOLDEN;

use holders::Holders;

use crate::host::prefetch;
use crate::topology::Topology;

/// log2 of a line's bytes.
pub(crate) const LINE_SHIFT: u32 = 6;
/// log2 of the lines of one block.
const BLOCK_SHIFT: u32 = 6;
/// Blocks that a CPU has at hand: with their first lines, a line of the host.
const AT_HAND: usize = 4;

/// A line that only has a name: no address of the host has this bit.
const NAMED: usize = 1 << 61;
/// In a name, above the number of the line: which kind it is.
const KIND_SHIFT: u32 = 56;

/// The name of line `number` of a kind below 32, which stands for an address.
pub(crate) const fn named(kind: usize, number: usize) -> usize {
    NAMED | kind << KIND_SHIFT | number << LINE_SHIFT
}

/// In the name of a word that stands apart, as no address of the host has this bit.
const APART: usize = 1 << 62;

/// A line that has not been written, or taken from its writer, for so long is taken to stay for as long as an interrupt
/// takes to arrive.
pub(crate) const SETTLED_CYCLES: u64 = 1 << 16;

/// A line's name: its place among the lines of the run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LineId(pub(crate) u32);

/// What accesses cost, in cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LineCosts {
    pub(crate) local_cycles: u64,
    /// Where a socket has groups of cores.
    pub(crate) same_group_cycles: Option<u64>,
    pub(crate) same_socket_cycles: u64,
    pub(crate) cross_socket_cycles: u64,
    pub(crate) locked_cycles: u64,
}

impl LineCosts {
    /// What a line costs that comes from the nearest other CPU: nobody has it sooner.
    pub(crate) fn nearest_cycles(&self) -> u64 {
        self.same_group_cycles.unwrap_or(self.same_socket_cycles)
    }
}

/// What one access did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Charge {
    /// How long the CPU waits for it.
    pub(crate) cycles: u64,
    /// When a store that the CPU does not wait for has reached the line: what a fence waits for.
    pub(crate) visible_at: u64,
    /// Whether the CPU held the line before.
    pub(crate) was_held: bool,
    /// Whether CPUs may be watching the line: after a write they must look again.
    pub(crate) is_watched: bool,
    /// Bit per word of the line that belongs to a CPU set.
    pub(crate) set_words: u8,
}

/// The line that an access meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Met {
    pub(crate) line: LineId,
    pub(crate) reach: Reach,
    /// The word's address, or its name where it stands apart.
    pub(crate) address: usize,
}

/// What an access to a line involves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// This CPU's cache, in which the line has stood for long.
    Settled,
    /// This CPU's cache, until another CPU takes the line away.
    Near,
    /// Memory, or the caches of others.
    Far,
}

/// Totals over all lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct LineCounters {
    /// Accesses answered by the CPU's own cache.
    pub hits: u64,
    /// Lines that moved inside a socket, or came from memory.
    pub same_socket: u64,
    /// Lines that moved between sockets.
    pub cross_socket: u64,
    /// Cycles spent in queues for contended lines.
    pub queued_cycles: u64,
}

/// One line: as large as a line of the host, because with thousands of CPUs looking at one misses the host's caches.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line {
    holders: Holders,
    busy_until: u64,
    /// Bit per word that belongs to a CPU set.
    set_words: u8,
    /// Bit per word that stands apart, in a separate line.
    apart_words: u8,
    /// Whether there may be watchers.
    is_watched: bool,
}

/// Blocks in which a CPU has met a line, by low bits of their numbers, and their first lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct AtHand([(usize, u32); AT_HAND]);

/// All lines that were ever touched, in blocks of neighbours: the map of blocks stays in the host's caches where one of
/// lines would not.
#[derive(Debug)]
pub(crate) struct Lines {
    costs: LineCosts,
    topology: Topology,
    /// By CPU: those of its socket.
    sockets: Box<[Range<usize>]>,
    /// The first line of each block.
    blocks: HashMap<usize, u32, BuildHasherDefault<Spread>>,
    /// By CPU: a CPU looks again and again at its own state and at the space that it runs.
    at_hand: Box<[AtHand]>,
    lines: Vec<Line>,
    /// CPUs that sleep until somebody writes a line.
    watchers: BTreeMap<LineId, Vec<u32>>,
    counters: LineCounters,
    /// What all accesses have cost the CPUs that made them.
    charged_cycles: u64,
}

impl Lines {
    pub(crate) fn new(costs: LineCosts, topology: Topology, cpus: usize) -> Self {
        Self {
            costs,
            topology,
            sockets: (0..cpus).map(|cpu| topology.socket_of(cpu)).collect(),
            blocks: HashMap::default(),
            at_hand: vec![AtHand([(usize::MAX, 0); AT_HAND]); cpus].into(),
            lines: Vec::new(),
            watchers: BTreeMap::new(),
            counters: LineCounters::default(),
            charged_cycles: 0,
        }
    }

    pub(crate) fn counters(&self) -> LineCounters {
        self.counters
    }

    /// Cycles that CPUs were charged for accesses.
    pub(crate) fn charged_cycles(&self) -> u64 {
        self.charged_cycles
    }

    /// The CPU's own cache answered so many more accesses.
    pub(crate) fn count_hits(&mut self, hits: u64) {
        self.counters.hits += hits;
        self.charged_cycles += hits * self.costs.local_cycles;
    }

    /// The line of the byte at `address`.
    pub(crate) fn line_of(&mut self, address: usize) -> LineId {
        line_after(self.first_of(block_of(address)), address)
    }

    /// The line of the byte at `address`, for a CPU that has often met the line before.
    fn known_line_of(&mut self, cpu: u32, address: usize) -> LineId {
        let block = block_of(address);
        let place = block % AT_HAND;
        let (known, first) = self.at_hand[cpu as usize].0[place];
        if known == block {
            return line_after(first, address);
        }
        let first = self.first_of(block);
        self.at_hand[cpu as usize].0[place] = (block, first);
        line_after(first, address)
    }

    /// The first line of a block.
    fn first_of(&mut self, block: usize) -> u32 {
        let next = self.lines.len() as u32;
        let first = *self.blocks.entry(block).or_insert(next);
        if first == next {
            self.lines.resize_with(self.lines.len() + (1 << BLOCK_SHIFT), Line::default);
        }
        first
    }

    /// The words at `start .. end` hold a CPU set, for accounting.
    pub(crate) fn mark_set(&mut self, start: usize, end: usize) {
        for address in (start..end).step_by(8) {
            let id = self.line_of(address);
            self.lines[id.0 as usize].set_words |= word_bit(address);
        }
    }

    /// The kernel that is simulated has the word at `address` in a separate line. The word is never just loaded: a
    /// streak of loads is known by addresses alone.
    pub(crate) fn set_apart(&mut self, address: usize) {
        let id = self.line_of(address);
        self.lines[id.0 as usize].apart_words |= word_bit(address);
    }

    /// The line of the byte at `address`, and how far away it is for the access.
    pub(crate) fn find(&mut self, cpu: u32, access: Access, mut address: usize, now: u64) -> Met {
        let mut id = self.known_line_of(cpu, address);
        if self.lines[id.0 as usize].apart_words & word_bit(address) != 0 {
            debug_assert_eq!(access, Access::Rmw, "a word that stands apart is never just loaded");
            address |= APART;
            id = self.known_line_of(cpu, address);
        }
        // Calls of one CPU to all others are neighbours, and met one after the other.
        if let Some(next) = self.lines.get(id.0 as usize + 1) {
            prefetch(next);
        }
        let line = &self.lines[id.0 as usize];
        let reach = if !line.holders.answers(cpu, access) {
            Reach::Far
        } else if line.busy_until + SETTLED_CYCLES < now {
            Reach::Settled
        } else {
            Reach::Near
        };
        Met { line: id, reach, address }
    }

    /// True if the CPU could load from the line without waiting for others.
    pub(crate) fn is_held(&self, cpu: u32, id: LineId) -> bool {
        self.lines[id.0 as usize].holders.holds(cpu)
    }

    /// True if the CPU's own cache answers the access.
    pub(crate) fn answers(&self, cpu: u32, access: Access, id: LineId) -> bool {
        self.lines[id.0 as usize].holders.answers(cpu, access)
    }

    /// Carries out an access that begins at `now`.
    pub(crate) fn access(&mut self, cpu: u32, access: Access, id: LineId, now: u64) -> Charge {
        let charge = self.carry_out(cpu, access, id, now);
        self.charged_cycles += charge.cycles;
        charge
    }

    fn carry_out(&mut self, cpu: u32, access: Access, id: LineId, now: u64) -> Charge {
        let line = &mut self.lines[id.0 as usize];
        let locked = if access == Access::Rmw { self.costs.locked_cycles } else { 0 };
        let Line { is_watched, set_words, .. } = *line;
        if line.holders.answers(cpu, access) {
            self.counters.hits += 1;
            return Charge {
                cycles: self.costs.local_cycles + locked,
                visible_at: now,
                was_held: true,
                is_watched,
                set_words,
            };
        }
        let was_held = line.holders.holds(cpu);
        let transfer = if line.holders.any_beyond(self.sockets[cpu as usize].clone()) {
            self.counters.cross_socket += 1;
            self.costs.cross_socket_cycles
        } else {
            self.counters.same_socket += 1;
            match self.costs.same_group_cycles {
                Some(cycles) if line.holders.are_in_group(cpu, &self.topology) => cycles,
                _ => self.costs.same_socket_cycles,
            }
        };
        let start = now.max(line.busy_until);
        self.counters.queued_cycles += start - now;
        let (arrives_at, arrived) = (start + transfer, start + transfer - now);
        if access == Access::Load {
            if line.holders.has_owner() {
                line.busy_until = arrives_at;
            }
            line.holders.share(cpu);
            return Charge { cycles: arrived, visible_at: now, was_held, is_watched, set_words };
        }
        line.busy_until = arrives_at;
        line.holders.own(cpu);
        // A plain store waits in the store buffer, not in the program: only a fence or a locked operation waits for it.
        let cycles = if access == Access::Rmw { arrived + locked } else { self.costs.local_cycles };
        Charge { cycles, visible_at: line.busy_until, was_held, is_watched, set_words }
    }

    /// Takes the CPUs that watched the line: none of them does any more.
    pub(crate) fn take_watchers(&mut self, id: LineId) -> Vec<u32> {
        self.lines[id.0 as usize].is_watched = false;
        self.watchers.remove(&id).unwrap_or_default()
    }

    /// The CPU sleeps until somebody writes the line.
    pub(crate) fn watch(&mut self, cpu: u32, id: LineId) {
        self.lines[id.0 as usize].is_watched = true;
        let watchers = self.watchers.entry(id).or_default();
        if !watchers.contains(&cpu) {
            watchers.push(cpu);
        }
    }

    /// The CPU no longer sleeps.
    pub(crate) fn unwatch(&mut self, cpu: u32, id: LineId) {
        if let Some(watchers) = self.watchers.get_mut(&id) {
            watchers.retain(|&watcher| watcher != cpu);
        }
    }
}

const fn block_of(address: usize) -> usize {
    address >> (LINE_SHIFT + BLOCK_SHIFT)
}

/// The line of `address` in the block whose first one is `first`.
const fn line_after(first: u32, address: usize) -> LineId {
    LineId(first + (address >> LINE_SHIFT) as u32 % (1 << BLOCK_SHIFT))
}

/// The bit of the word at `address` within its line.
pub(crate) const fn word_bit(address: usize) -> u8 {
    1 << (address >> 3 & 7)
}

/// Multiplicative hashing: the same on every host, and the map is never iterated.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(usize::from(byte));
        }
    }

    fn write_usize(&mut self, value: usize) {
        let mixed = (self.0 ^ value as u64).wrapping_mul(GOLDEN);
        self.0 = mixed ^ (mixed >> 32);
    }
}
