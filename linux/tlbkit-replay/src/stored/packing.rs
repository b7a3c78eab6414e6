//! One operation as a few bytes: differences to the one before, and numbers for what comes again and again.

use crate::op::{Cause, Fault, Op, OpKind, Party, Pattern, Space, Taken};
use rustc_hash::FxHashMap;
use std::hash::Hash;
use tlbkit::Stride;
use tlbkit_trace::Name;

/// Values by number, in the order in which they came.
struct Numbered<T> {
    values: Vec<T>,
    numbers: FxHashMap<T, u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { values: Vec::new(), numbers: FxHashMap::default() }
    }
}

impl<T: Copy + Eq + Hash> Numbered<T> {
    fn number(&mut self, value: T) -> u64 {
        let number = *self.numbers.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.values.len() as u32 - 1
        });
        u64::from(number)
    }

    fn value(&self, number: u64) -> T {
        self.values[number as usize]
    }
}

/// What operations name by number.
#[derive(Default)]
pub(super) struct Dictionary {
    callers: Numbered<(Name, Party)>,
    causes: Numbered<Cause>,
    patterns: Numbered<Pattern>,
}

/// The low bits of the first byte say what it is, these what else.
const KIND_BITS: u32 = 3;
const NEW_CPU: u8 = 8;
const NEW_CALLER: u8 = 16;
/// Of a fault: because of something; of a revocation: some of [`Taken`]'s rarer fields.
const MORE: u8 = 32;

const RUN: u8 = 0;
const IDLE: u8 = 1;
const TOUCH: u8 = 2;
const CALL: u8 = 3;
const REVOKE: u8 = 4;
const RETIRE: u8 = 5;

/// Beside the two bits of the stride.
const FREES_TABLES: u64 = 4;
const TRIMS: u64 = 8;

/// What both sides know of the operation before.
#[derive(Clone, Copy, Default)]
struct Before {
    time_ns: u64,
    cpu: u32,
    caller: u64,
    page: u64,
}

/// Packs a block.
#[derive(Default)]
pub(super) struct Packer {
    pub(super) bytes: Vec<u8>,
    pub(super) ops: u32,
    before: Before,
}

impl Packer {
    pub(super) fn pack(&mut self, op: &Op, dictionary: &mut Dictionary) {
        let caller = dictionary.callers.number((op.comm, op.party));
        let (is_new_cpu, is_new_caller) = (op.cpu != self.before.cpu, caller != self.before.caller);
        let (kind, has_more) = match op.kind {
            OpKind::Run { .. } => (RUN, false),
            OpKind::Idle => (IDLE, false),
            OpKind::Touch { because, .. } => (TOUCH, because.is_some()),
            OpKind::Call => (CALL, false),
            OpKind::Revoke { taken, .. } => (REVOKE, more_of(&taken) != 0),
            OpKind::Retire { .. } => (RETIRE, false),
        };
        let flags = [(is_new_cpu, NEW_CPU), (is_new_caller, NEW_CALLER), (has_more, MORE)];
        self.bytes.push(flags.into_iter().filter(|flag| flag.0).fold(kind, |first, flag| first | flag.1));
        self.signed(op.time_ns, self.before.time_ns);
        if is_new_cpu {
            self.number(u64::from(op.cpu));
        }
        if is_new_caller {
            self.number(caller);
        }
        self.pack_kind(op.kind, dictionary);
        self.before = Before { time_ns: op.time_ns, cpu: op.cpu, caller, ..self.before };
        self.ops += 1;
    }

    fn pack_kind(&mut self, kind: OpKind, dictionary: &mut Dictionary) {
        match kind {
            OpKind::Run { space } => self.number(u64::from(space.0)),
            OpKind::Idle | OpKind::Call => {}
            OpKind::Touch { page, fault, because } => {
                self.page(page);
                self.bytes.push(fault as u8);
                if let Some(pattern) = because {
                    self.number(dictionary.patterns.number(pattern));
                }
            }
            OpKind::Revoke { space, cause, taken } => {
                self.number(u64::from(space.0));
                self.number(dictionary.causes.number(cause));
                self.page(taken.page);
                // The whole space, the largest number, becomes the smallest.
                self.number(taken.pages.wrapping_add(1));
                self.number(taken.freed);
                let more = more_of(&taken);
                if more != 0 {
                    self.number(more);
                }
            }
            OpKind::Retire { space, cause } => {
                self.number(u64::from(space.0));
                self.number(dictionary.causes.number(cause));
            }
        }
    }

    fn page(&mut self, page: u64) {
        self.signed(page, self.before.page);
        self.before.page = page;
    }

    /// The difference of both, small whatever its sign.
    fn signed(&mut self, value: u64, before: u64) {
        let difference = value.wrapping_sub(before).cast_signed();
        self.number(((difference << 1) ^ (difference >> 63)).cast_unsigned());
    }

    /// Seven bits a byte, the lowest first; the highest bit says that more follow.
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

/// The fields that a revocation seldom has: 0 if it has none.
const fn more_of(taken: &Taken) -> u64 {
    let stride = match taken.stride {
        Stride::Page4K => 0,
        Stride::Page2M => 1,
        Stride::Page1G => 2,
    };
    let tables = if taken.frees_tables { FREES_TABLES } else { 0 };
    stride | tables | if taken.trims { TRIMS } else { 0 }
}

/// Unpacks a block.
pub(super) struct Unpacker<'b> {
    bytes: &'b [u8],
    dictionary: &'b Dictionary,
    before: Before,
}

impl<'b> Unpacker<'b> {
    pub(super) fn new(bytes: &'b [u8], dictionary: &'b Dictionary) -> Self {
        Self { bytes, dictionary, before: Before::default() }
    }

    /// The next operation: there must be one.
    pub(super) fn op(&mut self) -> Op {
        let first = self.byte();
        let time_ns = self.signed(self.before.time_ns);
        let cpu = if first & NEW_CPU == 0 { self.before.cpu } else { self.number() as u32 };
        let caller = if first & NEW_CALLER == 0 { self.before.caller } else { self.number() };
        self.before = Before { time_ns, cpu, caller, ..self.before };
        let kind = match first & ((1 << KIND_BITS) - 1) {
            RUN => OpKind::Run { space: self.space() },
            IDLE => OpKind::Idle,
            TOUCH => {
                let (page, fault) = (self.page(), fault_of(self.byte()));
                let because =
                    (first & MORE != 0).then(|| self.number()).map(|number| self.dictionary.patterns.value(number));
                OpKind::Touch { page, fault, because }
            }
            REVOKE => {
                let (space, cause) = (self.space(), self.cause());
                OpKind::Revoke { space, cause, taken: self.taken(first) }
            }
            RETIRE => OpKind::Retire { space: self.space(), cause: self.cause() },
            _ => OpKind::Call,
        };
        let (comm, party) = self.dictionary.callers.value(caller);
        Op { time_ns, cpu, comm, party, kind }
    }

    /// Behind the `first` byte of its operation.
    fn taken(&mut self, first: u8) -> Taken {
        let (page, pages, freed) = (self.page(), self.number().wrapping_sub(1), self.number());
        let more = if first & MORE == 0 { 0 } else { self.number() };
        let stride = match more & 3 {
            0 => Stride::Page4K,
            1 => Stride::Page2M,
            _ => Stride::Page1G,
        };
        let (frees_tables, trims) = (more & FREES_TABLES != 0, more & TRIMS != 0);
        Taken { frees_tables, trims, freed, ..Taken::pages(page, pages, stride) }
    }

    fn space(&mut self) -> Space {
        Space(self.number() as u32)
    }

    fn cause(&mut self) -> Cause {
        let number = self.number();
        self.dictionary.causes.value(number)
    }

    fn page(&mut self) -> u64 {
        self.before.page = self.signed(self.before.page);
        self.before.page
    }

    fn byte(&mut self) -> u8 {
        let (first, rest) = self.bytes.split_first().expect("a block has what its count says");
        self.bytes = rest;
        *first
    }

    fn signed(&mut self, before: u64) -> u64 {
        let folded = self.number();
        before.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg())
    }

    #[inline]
    fn number(&mut self) -> u64 {
        // Most have a byte or two.
        match *self.bytes {
            [only, ..] if only < 0x80 => {
                self.bytes = &self.bytes[1..];
                u64::from(only)
            }
            [low, high, ..] if high < 0x80 => {
                self.bytes = &self.bytes[2..];
                u64::from(low & 0x7f) | u64::from(high) << 7
            }
            _ => self.long_number(),
        }
    }

    fn long_number(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
            shift += 7;
        }
    }
}

const fn fault_of(byte: u8) -> Fault {
    match byte {
        0 => Fault::New,
        1 => Fault::Huge,
        _ => Fault::Other,
    }
}
