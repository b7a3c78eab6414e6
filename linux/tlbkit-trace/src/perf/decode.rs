//! Decodes the raw record of a tracepoint into its fields, in the catalogue's order. How that is done is planned once
//! for each tracepoint of a file.

use super::bytes::{Bytes, Endianness, Width};
use super::format::{Format, FormatField};
use crate::event::EventKind;
use crate::names::{Code, Names, StackId};
use crate::symbols::Symbols;
use crate::tracepoint::{FieldKind, Fields, MAX_FIELDS, Tracepoint};
use rustc_hash::FxHashMap;
use std::sync::{Arc, OnceLock};

/// The bits of a thread's state that say that it sleeps, is stopped or ends. The bits above say nothing of that.
const NOT_RUNNABLE: u64 = 0xff;
/// Stacks have marks among their addresses, such as "here the kernel begins". All numbers from this one on are marks.
const FIRST_STACK_MARK: u64 = -4095i64 as u64;

/// Decodes the records of all tracepoints of a file.
pub(super) struct Decoder {
    order: Endianness,
    plans: Vec<RecordPlan>,
    /// By the number of a tracepoint in the file: the index of its plan, if it has one.
    plan_of: Vec<Option<u16>>,
    symbols: Arc<Symbols>,
    /// The places in code of kernel addresses that were looked up before.
    known: FxHashMap<u64, Code>,
    /// The frames of the last stack, kept so that the memory is used again.
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
    /// The recording kernel does not store the field, and 0 stands for it.
    Nothing,
}

/// What became of a raw record.
pub(super) enum Decoded {
    Event(EventKind),
    /// A tracepoint that this library does not use.
    Unused,
    /// The record is shorter than its format says, or has a number without a meaning.
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

    /// From now on, names of kernel functions are taken from `symbols`.
    pub(super) fn set_symbols(&mut self, symbols: Arc<Symbols>) {
        self.symbols = symbols;
        self.known.clear();
    }

    /// Plans how records of this format are decoded. Does nothing if the tracepoint is not used here, or if the
    /// recording kernel does not store a field that is needed.
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
            // There is at most one plan for each number of a tracepoint, and these numbers have 16 bits.
            self.plan_of[id] = Some(self.plans.len() as u16);
            self.plans.push(plan);
        }
    }

    /// Decodes the raw record of a tracepoint.
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

    /// Where a sample of the CPU's time was taken, and the kernel's functions of its stack: none of the program's own
    /// code. A stack that was not recorded is the one place.
    pub(super) fn sample(&mut self, ip: u64, mut addresses: Bytes<'_>, names: &mut Names) -> (Code, Option<StackId>) {
        let is_kernels = |address: u64| (1 << 63..FIRST_STACK_MARK).contains(&address);
        let ip_code = code(&mut self.known, &self.symbols, ip, names);
        self.frames.clear();
        while let Some(address) = addresses.u64() {
            if is_kernels(address) {
                self.frames.push(code(&mut self.known, &self.symbols, address, names));
            }
        }
        if self.frames.is_empty() && is_kernels(ip) {
            self.frames.push(ip_code);
        }
        (ip_code, names.add_stack(&self.frames))
    }

    /// The call stack of these addresses, innermost first, without the marks among them.
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

/// The place in code at `address`, by name if it is a known function of the kernel. User addresses are neither looked
/// up nor remembered, because there is no limit to their number.
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

/// The most places in the kernel that are remembered. No honest recording has more, and a hostile one cannot make the
/// memory grow further.
const MAX_KNOWN: usize = 1 << 18;

fn field_source(format: &Format, name: &str, kind: FieldKind) -> Option<FieldSource> {
    // Some tracepoints print this field as `pid` and store it under another name.
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

/// What stands for a field that the recording kernel may lack: `group_dead` is newer than the other fields.
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

/// The bytes of its record that the field at `offset` points to. A field of this kind holds their length in the upper
/// 16 bits and their offset in the lower 16.
fn located(b: Bytes<'_>, offset: usize) -> Option<&[u8]> {
    let place = b.number_at(offset, Width::U32)? as usize;
    b.rest().get(place & 0xffff..)?.get(..place >> 16)
}

/// Whether it is decided where the names of kernel functions come from: from this machine's kernel only if the
/// recording is of the same boot.
pub(super) enum SymbolSource {
    /// Not yet: no record has told where the kernel's code lay.
    Undecided,
    /// It is. If the recording is of this boot, the decoder has the symbols of this machine's kernel.
    Decided,
}

impl SymbolSource {
    /// Looks at a record of mapped code. The one of the kernel tells at which address its code lay. If it is where the
    /// code of this machine's kernel lies, `decoder` gets its symbols.
    pub(super) fn meet(&mut self, mut b: Bytes<'_>, decoder: &mut Decoder) {
        if let Self::Decided = self {
            return;
        }
        let begin = b.take(8).and_then(|_| b.u64());
        let name = b.take(16).and_then(|_| b.text());
        if !name.is_some_and(|name| name.starts_with(b"[kernel.kallsyms]_")) {
            return;
        }
        let here = of_this_kernel();
        if begin == Some(here.text_start()) {
            decoder.set_symbols(Arc::clone(here));
        }
        *self = Self::Decided;
    }
}

/// The symbols of this machine's kernel. They are read once and kept, because that takes 30 ms or more and several
/// files may be read.
fn of_this_kernel() -> &'static Arc<Symbols> {
    static HERE: OnceLock<Arc<Symbols>> = OnceLock::new();
    HERE.get_or_init(|| Arc::new(Symbols::of_this_kernel()))
}
