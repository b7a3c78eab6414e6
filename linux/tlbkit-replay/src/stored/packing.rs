//! Packs an operation into a few bytes: differences to the operation before, and numbers for values that come again.

use super::bytes::{Numbered, Put, Take};
use crate::op::{Cause, Fault, Op, OpKind, Party, Pattern, Space, Taken};
use tlbkit::Stride;
use tlbkit_trace::Name;

/// The values that packed operations name by number.
#[derive(Default)]
pub(super) struct Dictionary {
    callers: Numbered<(Name, Party)>,
    causes: Numbered<Cause>,
    patterns: Numbered<Pattern>,
}

/// The low bits of an operation's first byte say what kind it is. The other bits, such as [`NEW_CPU`], say what
/// else follows.
const KIND_BITS: u32 = 3;
const NEW_CPU: u8 = 8;
const NEW_CALLER: u8 = 16;
/// A fault has a revocation that led to it, or a revocation has some of the rarer fields of [`Taken`].
const MORE: u8 = 32;

const RUN: u8 = 0;
const IDLE: u8 = 1;
const TOUCH: u8 = 2;
const CALL: u8 = 3;
const REVOKE: u8 = 4;
const RETIRE: u8 = 5;

/// A bit beside the two bits of the stride: page tables were freed.
const FREES_TABLES: u64 = 4;
const TRIMS: u64 = 8;

/// What is known of the operation before when an operation is packed, and again when it is unpacked.
#[derive(Clone, Copy, Default)]
struct Before {
    time_ns: u64,
    cpu: u32,
    caller: u64,
    page: u64,
}

/// Packs the operations of a block.
#[derive(Default)]
pub(super) struct Packer {
    pub(super) put: Put,
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
        self.put.byte(flags.into_iter().filter(|flag| flag.0).fold(kind, |first, flag| first | flag.1));
        self.put.difference(op.time_ns, self.before.time_ns);
        if is_new_cpu {
            self.put.number(u64::from(op.cpu));
        }
        if is_new_caller {
            self.put.number(caller);
        }
        self.pack_kind(op.kind, dictionary);
        self.before = Before { time_ns: op.time_ns, cpu: op.cpu, caller, ..self.before };
        self.ops += 1;
    }

    fn pack_kind(&mut self, kind: OpKind, dictionary: &mut Dictionary) {
        match kind {
            OpKind::Run { space } => self.put.number(u64::from(space.0)),
            OpKind::Idle | OpKind::Call => {}
            OpKind::Touch { page, fault, because } => {
                self.page(page);
                self.put.byte(fault as u8);
                if let Some(pattern) = because {
                    self.put.number(dictionary.patterns.number(pattern));
                }
            }
            OpKind::Revoke { space, cause, taken } => {
                self.put.number(u64::from(space.0));
                self.put.number(dictionary.causes.number(cause));
                self.page(taken.page);
                // The number that stands for the whole space is the largest one, and becomes the smallest.
                self.put.number(taken.pages.wrapping_add(1));
                self.put.number(taken.freed);
                let more = more_of(&taken);
                if more != 0 {
                    self.put.number(more);
                }
            }
            OpKind::Retire { space, cause } => {
                self.put.number(u64::from(space.0));
                self.put.number(dictionary.causes.number(cause));
            }
        }
    }

    fn page(&mut self, page: u64) {
        self.put.difference(page, self.before.page);
        self.before.page = page;
    }
}

/// The fields that few revocations have, as one number. It is 0 if the revocation has none of them.
const fn more_of(taken: &Taken) -> u64 {
    let stride = match taken.stride {
        Stride::Page4K => 0,
        Stride::Page2M => 1,
        Stride::Page1G => 2,
    };
    let tables = if taken.frees_tables { FREES_TABLES } else { 0 };
    stride | tables | if taken.trims { TRIMS } else { 0 }
}

/// Unpacks the operations of a block.
pub(super) struct Unpacker<'b> {
    bytes: Take<'b>,
    dictionary: &'b Dictionary,
    before: Before,
    /// The caller of the operation before.
    caller: (Name, Party),
}

impl<'b> Unpacker<'b> {
    /// Begins to unpack `bytes`, which must be those of a block that a [`Packer`] has packed.
    pub(super) fn new(bytes: &'b [u8], dictionary: &'b Dictionary) -> Self {
        let caller = dictionary.callers.value(0);
        Self { bytes: Take(bytes), dictionary, before: Before::default(), caller }
    }

    /// The next operation.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn op(&mut self) -> Op {
        let first = self.bytes.byte();
        let time_ns = self.bytes.value(self.before.time_ns);
        let cpu = if first & NEW_CPU == 0 { self.before.cpu } else { self.bytes.number() as u32 };
        (self.before.time_ns, self.before.cpu) = (time_ns, cpu);
        if first & NEW_CALLER != 0 {
            let caller = self.bytes.number();
            self.caller = self.dictionary.callers.value(caller);
        }
        let (comm, party) = self.caller;
        let kind = match first & ((1 << KIND_BITS) - 1) {
            RUN => OpKind::Run { space: self.space() },
            IDLE => OpKind::Idle,
            TOUCH => {
                let (page, fault) = (self.page(), fault_of(self.bytes.byte()));
                let because = (first & MORE != 0)
                    .then(|| self.bytes.number())
                    .map(|number| self.dictionary.patterns.value(number));
                OpKind::Touch { page, fault, because }
            }
            REVOKE => {
                let (space, cause) = (self.space(), self.cause());
                OpKind::Revoke { space, cause, taken: self.taken(first) }
            }
            RETIRE => OpKind::Retire { space: self.space(), cause: self.cause() },
            _ => OpKind::Call,
        };
        Op { time_ns, cpu, comm, party, kind }
    }

    /// Unpacks a revocation, whose operation began with the byte `first`.
    fn taken(&mut self, first: u8) -> Taken {
        let (page, pages, freed) = (self.page(), self.bytes.number().wrapping_sub(1), self.bytes.number());
        let more = if first & MORE == 0 { 0 } else { self.bytes.number() };
        let stride = match more & 3 {
            0 => Stride::Page4K,
            1 => Stride::Page2M,
            _ => Stride::Page1G,
        };
        let (frees_tables, trims) = (more & FREES_TABLES != 0, more & TRIMS != 0);
        Taken { frees_tables, trims, freed, ..Taken::pages(page, pages, stride) }
    }

    fn space(&mut self) -> Space {
        Space(self.bytes.number() as u32)
    }

    fn cause(&mut self) -> Cause {
        let number = self.bytes.number();
        self.dictionary.causes.value(number)
    }

    fn page(&mut self) -> u64 {
        self.before.page = self.bytes.value(self.before.page);
        self.before.page
    }
}

const fn fault_of(byte: u8) -> Fault {
    match byte {
        0 => Fault::New,
        1 => Fault::Huge,
        _ => Fault::Other,
    }
}
