//! From a tracepoint's raw record to its fields in the catalogue's order, planned once for each file.

use super::bytes::{Bytes, Endianness, Width};
use super::format::{Format, FormatField};
use crate::event::EventKind;
use crate::names::{Code, Names, StackId};
use crate::symbols::Symbols;
use crate::tracepoint::{FieldKind, Fields, MAX_FIELDS, Tracepoint};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// State bits below this one say that a thread sleeps, is stopped or ends; above are only marks.
const NOT_RUNNABLE: u64 = 0xff;
/// Stacks have marks among their addresses ("kernel from here"); these are the smallest of them.
const FIRST_STACK_MARK: u64 = -4095i64 as u64;

/// Decodes all tracepoints of a file.
pub(super) struct Decoder {
    order: Endianness,
    plans: Vec<RecordPlan>,
    /// Which of them is for the tracepoint of this number, if one is.
    plan_of: Vec<Option<u16>>,
    symbols: Arc<Symbols>,
    /// Functions that were looked up before.
    known: FxHashMap<u64, Code>,
    /// Those of the last stack.
    frames: Vec<Code>,
}

struct RecordPlan {
    tracepoint: Tracepoint,
    sources: Vec<FieldSource>,
}

#[derive(Clone, Copy)]
enum FieldSource {
    Number(usize, Width),
    Code(usize, Width),
    Runnable(usize, Width),
    TextArray {
        offset: usize,
        size: usize,
    },
    TextLocated(usize),
    MaskLocated(usize),
    /// Zero: this kernel does not store it.
    Nothing,
}

/// What became of a raw record.
pub(super) enum Decoded {
    Event(EventKind),
    /// A tracepoint that this library does not use.
    Unused,
    /// Shorter than its format, or with a number that has no meaning.
    Bad,
}

impl Decoder {
    pub(super) fn new(order: Endianness) -> Self {
        let (symbols, known) = (Arc::default(), FxHashMap::default());
        Self { order, plans: Vec::new(), plan_of: Vec::new(), symbols, known, frames: Vec::new() }
    }

    /// Whether any tracepoint can be decoded.
    pub(super) fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    pub(super) fn set_symbols(&mut self, symbols: Arc<Symbols>) {
        self.symbols = symbols;
        self.known.clear();
    }

    /// Plans for a tracepoint; none of it if the kernel lacks a field that is needed.
    pub(super) fn add(&mut self, format: &Format) {
        let known = Tracepoint::all().find(|tracepoint| tracepoint.spec().event == format.event);
        let Some(tracepoint) = known else { return };
        let sources = tracepoint.spec().fields.iter().map(|&(name, kind)| field_source(format, name, kind));
        let Some(sources) = sources.collect() else { return };
        let plan = RecordPlan { tracepoint, sources };
        let id = usize::from(format.id);
        self.plan_of.resize(self.plan_of.len().max(id + 1), None);
        if let Some(index) = self.plan_of[id] {
            self.plans[usize::from(index)] = plan;
        } else {
            // One for each number at most, and numbers have 16 bits.
            self.plan_of[id] = Some(self.plans.len() as u16);
            self.plans.push(plan);
        }
    }

    pub(super) fn decode(&mut self, raw: &[u8], names: &mut Names) -> Decoded {
        let b = Bytes::new(raw, self.order);
        let Some(id) = b.number_at(0, Width::U16) else { return Decoded::Bad };
        let Some(&Some(plan)) = self.plan_of.get(id as usize) else { return Decoded::Unused };
        let plan = &self.plans[usize::from(plan)];
        let mut fields: Fields = [0; MAX_FIELDS];
        for (field, &source) in fields.iter_mut().zip(&plan.sources) {
            let value = match source {
                FieldSource::Code(offset, width) => {
                    b.number_at(offset, width).map(|address| code(&mut self.known, &self.symbols, address, names).0)
                }
                _ => value(source, b, names),
            };
            let Some(value) = value else { return Decoded::Bad };
            *field = value;
        }
        plan.tracepoint.kind(&fields).map_or(Decoded::Bad, Decoded::Event)
    }

    /// A stack of these addresses, innermost first.
    pub(super) fn stack(&mut self, mut addresses: Bytes<'_>, names: &mut Names) -> Option<StackId> {
        self.frames.clear();
        while let Some(address) = addresses.u64() {
            if address < FIRST_STACK_MARK {
                self.frames.push(code(&mut self.known, &self.symbols, address, names));
            }
        }
        names.add_stack(&self.frames)
    }
}

/// User addresses are not looked up, nor remembered: there is no end of them.
fn code(known: &mut FxHashMap<u64, Code>, symbols: &Symbols, address: u64, names: &mut Names) -> Code {
    if address.cast_signed() >= 0 {
        return Code::address(address);
    }
    if let Some(&code) = known.get(&address) {
        return code;
    }
    let code = symbols.name(address).map_or(Code::address(address), |name| Code::symbol(names.add(name)));
    if known.len() < MAX_KNOWN {
        known.insert(address, code);
    }
    code
}

/// More places in the kernel than this no recording has; a hostile one does not get more memory.
const MAX_KNOWN: usize = 1 << 18;

fn field_source(format: &Format, name: &str, kind: FieldKind) -> Option<FieldSource> {
    // Printed as `pid`, but stored under another name.
    let stored = [name, if name == "pid" { "parent_pid" } else { name }];
    let Some(&field) = stored.iter().find_map(|&name| format.fields.get(name)) else {
        return optional(name);
    };
    let FormatField { offset, size, .. } = field;
    Some(match kind {
        FieldKind::Text if field.is_located => FieldSource::TextLocated(offset),
        FieldKind::Text if field.is_array => FieldSource::TextArray { offset, size },
        FieldKind::CpuMask if field.is_located => FieldSource::MaskLocated(offset),
        FieldKind::Text | FieldKind::CpuMask => return None,
        FieldKind::Number => FieldSource::Number(offset, field.width()?),
        FieldKind::Code => FieldSource::Code(offset, field.width()?),
        FieldKind::Runnable => FieldSource::Runnable(offset, field.width()?),
    })
}

/// `group_dead` is newer than the rest.
fn optional(name: &str) -> Option<FieldSource> {
    (name == "group_dead").then_some(FieldSource::Nothing)
}

fn value(source: FieldSource, b: Bytes<'_>, names: &mut Names) -> Option<u64> {
    match source {
        FieldSource::Number(offset, width) | FieldSource::Code(offset, width) => b.number_at(offset, width),
        FieldSource::Runnable(offset, width) => Some(u64::from(b.number_at(offset, width)? & NOT_RUNNABLE == 0)),
        FieldSource::TextArray { offset, size } => {
            let bytes = b.rest().get(offset..)?.get(..size)?;
            Some(names.add_bytes(bytes).0.into())
        }
        FieldSource::TextLocated(offset) => Some(names.add_bytes(located(b, offset)?).0.into()),
        FieldSource::Nothing => Some(0),
        FieldSource::MaskLocated(offset) => {
            Some(located(b, offset)?.iter().map(|byte| u64::from(byte.count_ones())).sum())
        }
    }
}

/// The bytes that a field points to within its record.
fn located(b: Bytes<'_>, offset: usize) -> Option<&[u8]> {
    let place = b.number_at(offset, Width::U32)? as usize;
    b.rest().get(place & 0xffff..)?.get(..place >> 16)
}
