//! Writes the compact form, one block after the other.

use super::column::{Differences, put};
use super::{BLOCK_EVENTS, BlockHead, HEAD_BYTES, MAGIC, MAX_UNPACKED_BYTES, VERSION};
use crate::error::{Error, Health};
use crate::event::{Event, EventKind};
use crate::names::{Code, Name, Names, StackId};
use crate::tracepoint::{FieldKind, LOST_TAG, MAX_FIELDS, Tracepoint};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use std::io::Write;

/// The level at which zstd packs: hardly slower than the fastest one, and its files are a good deal smaller.
const LEVEL: i32 = 6;
/// The size of stacks and texts, in bytes, at which a block ends before it has all its events.
const MAX_SIDE_BYTES: usize = MAX_UNPACKED_BYTES as usize / 4;

/// Writes a trace in the compact form. Without [`CompactWriter::finish`] at the end the file counts as cut short.
pub struct CompactWriter<W> {
    out: W,
    block: Block,
    written: u64,
}

impl<W: Write> CompactWriter<W> {
    /// Begins a file, and writes its head to `out`.
    ///
    /// # Errors
    ///
    /// If writing to `out` fails.
    pub fn new(mut out: W) -> Result<Self, Error> {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(MAGIC);
        head[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out.write_all(&head)?;
        Ok(Self { out, block: Block::default(), written: 0 })
    }

    /// Adds an event, with the texts and stacks that it names in `names`, the names of its source. Whole blocks are
    /// written at once.
    ///
    /// # Errors
    ///
    /// If a block cannot be packed, or writing it fails.
    pub fn add(&mut self, event: &Event, names: &Names) -> Result<(), Error> {
        self.block.add(event, names);
        self.written += 1;
        if self.block.events == BLOCK_EVENTS || self.block.side_bytes() > MAX_SIDE_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what is left and the end mark, and returns what was written to. The end mark keeps what `health`, that of
    /// the source, says of the trace, so that a copy does not look more complete than its original.
    ///
    /// # Errors
    ///
    /// If a block cannot be packed, or writing fails.
    pub fn finish(mut self, health: &Health) -> Result<W, Error> {
        self.flush()?;
        let numbers = [self.written, health.unused, health.late, health.damaged];
        let content: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        self.out.write_all(&BlockHead::new(0, content.len(), &content).to_bytes())?;
        self.out.write_all(&content)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.block.events == 0 {
            return Ok(());
        }
        let content = self.block.content();
        let packed = zstd::bulk::compress(&content, LEVEL)?;
        self.out.write_all(&BlockHead::new(self.block.events, content.len(), &packed).to_bytes())?;
        self.out.write_all(&packed)?;
        self.block.clear();
        Ok(())
    }
}

/// A block that is being filled.
#[derive(Default)]
struct Block {
    events: u32,
    texts: IndexSet<Name, FxBuildHasher>,
    text_bytes: Vec<u8>,
    threads: IndexSet<(i32, i32, Name), FxBuildHasher>,
    thread_bytes: Vec<u8>,
    stacks: IndexSet<StackId, FxBuildHasher>,
    stack_bytes: Vec<u8>,
    tags: Vec<u8>,
    times: Differences,
    cpus: Differences,
    thread: Differences,
    stack: Differences,
    fields: Vec<Differences>,
    lost: Differences,
}

impl Block {
    fn add(&mut self, event: &Event, names: &Names) {
        self.events += 1;
        self.times.put(event.time_ns);
        self.cpus.put(event.cpu.into());
        let thread = self.thread(event, names);
        self.thread.put(thread);
        let stack = event.stack.map_or(0, |id| self.stack(id, names) + 1);
        self.stack.put(stack);
        match Tracepoint::of(&event.kind) {
            Some((tracepoint, fields)) => self.add_fields(tracepoint, fields, names),
            None => self.add_lost(&event.kind),
        }
    }

    fn add_fields(&mut self, tracepoint: Tracepoint, fields: [u64; MAX_FIELDS], names: &Names) {
        self.tags.push(tracepoint as u8);
        let first = tracepoint as usize * MAX_FIELDS;
        if self.fields.len() < first + MAX_FIELDS {
            self.fields.resize_with(first + MAX_FIELDS, Differences::default);
        }
        for (i, &(_, kind)) in tracepoint.spec().fields.iter().enumerate() {
            let value = match kind {
                FieldKind::Text => self.text(Name(fields[i] as u32), names),
                FieldKind::Code => self.code(Code(fields[i]), names),
                FieldKind::Number | FieldKind::CpuMask | FieldKind::Runnable => fields[i],
            };
            self.fields[first + i].put(value);
        }
    }

    fn add_lost(&mut self, kind: &EventKind) {
        self.tags.push(LOST_TAG);
        let EventKind::Lost { count } = *kind else { unreachable!("all other kinds are tracepoints") };
        self.lost.put(count);
    }

    fn text(&mut self, name: Name, names: &Names) -> u64 {
        let (index, is_new) = self.texts.insert_full(name);
        if is_new {
            let text = names.text(name);
            put(&mut self.text_bytes, text.len() as u64);
            self.text_bytes.extend_from_slice(text.as_bytes());
        }
        index as u64
    }

    fn code(&mut self, code: Code, names: &Names) -> u64 {
        match code.name() {
            Some(name) => Code::symbol(Name(self.text(name, names) as u32)).0,
            None => code.0,
        }
    }

    fn thread(&mut self, event: &Event, names: &Names) -> u64 {
        let (index, is_new) = self.threads.insert_full((event.pid, event.tid, event.comm));
        if is_new {
            let comm = self.text(event.comm, names);
            for id in [event.pid, event.tid] {
                let mut number = Differences::default();
                number.put(id as u64);
                self.thread_bytes.extend_from_slice(&number.bytes);
            }
            put(&mut self.thread_bytes, comm);
        }
        index as u64
    }

    fn stack(&mut self, id: StackId, names: &Names) -> u64 {
        let (index, is_new) = self.stacks.insert_full(id);
        if is_new {
            let frames = names.stack(id);
            put(&mut self.stack_bytes, frames.len() as u64);
            for &frame in frames {
                let code = self.code(frame, names);
                put(&mut self.stack_bytes, code);
            }
        }
        index as u64
    }

    fn side_bytes(&self) -> usize {
        self.text_bytes.len() + self.stack_bytes.len()
    }

    fn content(&self) -> Vec<u8> {
        let mut texts = Vec::new();
        put(&mut texts, self.texts.len() as u64);
        texts.extend_from_slice(&self.text_bytes);
        let mut content = Vec::new();
        for bytes in [&texts, &self.thread_bytes, &self.stack_bytes, &self.tags] {
            put_column(&mut content, bytes);
        }
        for differences in [&self.times, &self.cpus, &self.thread, &self.stack, &self.lost] {
            put_column(&mut content, &differences.bytes);
        }
        put(&mut content, self.fields.len() as u64);
        for differences in &self.fields {
            put_column(&mut content, &differences.bytes);
        }
        content
    }

    fn clear(&mut self) {
        self.events = 0;
        self.texts.clear();
        self.threads.clear();
        self.stacks.clear();
        for bytes in [&mut self.text_bytes, &mut self.thread_bytes, &mut self.stack_bytes, &mut self.tags] {
            bytes.clear();
        }
        let own = [&mut self.times, &mut self.cpus, &mut self.thread, &mut self.stack, &mut self.lost];
        own.into_iter().chain(&mut self.fields).for_each(Differences::clear);
    }
}

fn put_column(content: &mut Vec<u8>, bytes: &[u8]) {
    put(content, bytes.len() as u64);
    content.extend_from_slice(bytes);
}
