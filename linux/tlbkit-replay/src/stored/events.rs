//! Keeps the events of a trace, because the deduction can begin only when the whole trace was read and all threads are
//! known. An event takes about ten bytes: only what the deduction uses is kept.

use super::blocks::{Blocks, Filling};
use super::bytes::{Numbered, Put, Take};
use std::io;
use tlbkit_trace::{Code, Event, EventKind, FaultMode, FlushReason, FlushSize, Name, Names, Syscall};

/// How many events a block has.
const BLOCK_EVENTS: u32 = 4096;

/// The low bits of an event's first byte say what kind it is. The other bits, such as [`NEW_CPU`], say what else
/// follows.
const KIND_BITS: u32 = 4;
const NEW_CPU: u8 = 16;
const NEW_THREAD: u8 = 32;

const OTHER: u8 = 0;
const SWITCH: u8 = 1;
const FLUSH: u8 = 2;
const QUEUE: u8 = 3;
const FORK: u8 = 4;
const EXEC: u8 = 5;
const EXIT: u8 = 6;
const FAULT: u8 = 7;
const ENTER: u8 = 8;
const LEAVE: u8 = 9;
/// A switch from a thread that could run on.
const PREEMPTION: u8 = 10;

/// A bit beside the reason of a flush: it flushes everything.
const ALL: u8 = 0x80;

/// What is known of the events before when an event is packed, and again when it is unpacked.
#[derive(Default)]
struct Before {
    time_ns: u64,
    cpu: u32,
    /// For each CPU the number of its last thread, and the last address that faulted there.
    of_cpu: Vec<(u64, u64)>,
}

impl Before {
    fn of(&mut self, cpu: u32) -> &mut (u64, u64) {
        let cpu = cpu as usize;
        if cpu >= self.of_cpu.len() {
            self.of_cpu.resize(cpu + 1, (0, 0));
        }
        &mut self.of_cpu[cpu]
    }
}

/// Stands for a place in code, which the deduction does not use.
const CODE: Code = Code::address(0);

/// A thread and its name.
type Thread = (i32, Name);

/// Packs events one after the other.
#[derive(Default)]
pub(crate) struct KeepingEvents {
    filling: Filling,
    threads: Numbered<Thread>,
    put: Put,
    events: u32,
    before: Before,
    /// The thread of each CPU's last event. None if that event may change which thread runs there.
    quiet: Vec<Option<i32>>,
}

impl KeepingEvents {
    /// Keeps the event if the deduction can learn anything from it.
    pub(crate) fn push(&mut self, event: &Event) {
        let is_other = kind_of(&event.kind) == OTHER;
        let cpu = event.cpu as usize;
        if cpu >= self.quiet.len() {
            self.quiet.resize(cpu + 1, None);
        }
        let switches = matches!(
            event.kind,
            EventKind::Switch { .. } | EventKind::TlbFlush { reason: FlushReason::TaskSwitch, .. }
        );
        let before = std::mem::replace(&mut self.quiet[cpu], (!switches).then_some(event.tid));
        // The event would only say that this thread runs there, which is known already.
        if is_other && before == Some(event.tid) {
            return;
        }
        self.pack(event);
        self.events += 1;
        if self.events == BLOCK_EVENTS {
            self.end_block();
        }
    }

    /// All events that were kept.
    ///
    /// # Errors
    /// If the temporary file could not be written.
    pub(crate) fn finish(mut self) -> io::Result<KeptEvents> {
        self.end_block();
        Ok(KeptEvents { blocks: self.filling.finish()?, threads: self.threads })
    }

    fn end_block(&mut self) {
        self.filling.push(&self.put.0, self.events);
        self.put.0.clear();
        self.events = 0;
    }

    fn pack(&mut self, event: &Event) {
        let thread = self.threads.number((event.tid, event.comm));
        let is_new_cpu = event.cpu != self.before.cpu;
        let of_cpu = self.before.of(event.cpu);
        let is_new_thread = std::mem::replace(&mut of_cpu.0, thread) != thread;
        let flags = if is_new_cpu { NEW_CPU } else { 0 } | if is_new_thread { NEW_THREAD } else { 0 };
        self.put.byte(kind_of(&event.kind) | flags);
        self.put.difference(event.time_ns, self.before.time_ns);
        if is_new_cpu {
            self.put.number(event.cpu.into());
        }
        if is_new_thread {
            self.put.number(thread);
        }
        (self.before.time_ns, self.before.cpu) = (event.time_ns, event.cpu);
        self.pack_kind(event);
    }

    fn pack_kind(&mut self, event: &Event) {
        let mut ids = |ids: &[i32]| ids.iter().for_each(|id| self.put.difference(*id as u64, event.tid as u64));
        match event.kind {
            EventKind::Switch { next, next_comm, .. } => {
                let thread = self.threads.number((next, next_comm));
                self.put.number(thread);
            }
            EventKind::TlbFlush { reason, size } => {
                let (all, pages) = match size {
                    FlushSize::All => (ALL, 0),
                    FlushSize::Pages(pages) => (0, pages),
                };
                self.put.byte(reason as u8 | all);
                self.put.number(pages);
            }
            EventKind::CallQueue { cpu, .. } => self.put.number(cpu.into()),
            EventKind::Fork { parent, child, .. } => ids(&[parent, child]),
            EventKind::Exec { tid, old_tid, .. } => ids(&[tid, old_tid]),
            EventKind::Exit { tid, .. } => ids(&[tid]),
            EventKind::Fault { address, error_code, .. } => {
                let last = std::mem::replace(&mut self.before.of(event.cpu).1, address);
                self.put.difference(address, last);
                self.put.number(error_code.into());
            }
            EventKind::Enter { call, args } => {
                self.put.byte(call as u8);
                args[..call.arguments().len()].iter().for_each(|arg| self.put.number(*arg));
            }
            EventKind::Leave { call, result } => {
                self.put.byte(call as u8);
                self.put.difference(result.cast_unsigned(), 0);
            }
            _ => {}
        }
    }
}

const fn kind_of(kind: &EventKind) -> u8 {
    match kind {
        EventKind::Switch { prev_is_runnable: true, .. } => PREEMPTION,
        EventKind::Switch { .. } => SWITCH,
        EventKind::TlbFlush { .. } => FLUSH,
        EventKind::CallQueue { .. } => QUEUE,
        EventKind::Fork { .. } => FORK,
        EventKind::Exec { .. } => EXEC,
        EventKind::Exit { .. } => EXIT,
        EventKind::Fault { .. } => FAULT,
        EventKind::Enter { .. } => ENTER,
        EventKind::Leave { .. } => LEAVE,
        _ => OTHER,
    }
}

/// Events that were kept.
pub(crate) struct KeptEvents {
    blocks: Blocks,
    threads: Numbered<Thread>,
}

impl KeptEvents {
    /// Hands every event to `take`, in order. Fields that the deduction does not use have other values than in the
    /// trace.
    ///
    /// # Errors
    /// If the temporary file cannot be read.
    pub(crate) fn for_each(&self, mut take: impl FnMut(&Event)) -> io::Result<()> {
        let mut before = Before::default();
        self.blocks.for_each(|bytes, events| {
            let mut bytes = Take(bytes);
            (0..events).for_each(|_| take(&self.unpack(&mut bytes, &mut before)));
        })
    }

    fn unpack(&self, bytes: &mut Take<'_>, before: &mut Before) -> Event {
        let first = bytes.byte();
        before.time_ns = bytes.value(before.time_ns);
        if first & NEW_CPU != 0 {
            before.cpu = bytes.number() as u32;
        }
        let (time_ns, cpu) = (before.time_ns, before.cpu);
        let of_cpu = before.of(cpu);
        if first & NEW_THREAD != 0 {
            of_cpu.0 = bytes.number();
        }
        let (tid, comm) = self.threads.value(of_cpu.0);
        let id = |bytes: &mut Take<'_>| bytes.value(tid as u64) as i32;
        let kind = match first & ((1 << KIND_BITS) - 1) {
            kind @ (SWITCH | PREEMPTION) => {
                let (next, next_comm) = self.threads.value(bytes.number());
                let (prev_comm, prev_is_runnable) = (Names::UNKNOWN, kind == PREEMPTION);
                EventKind::Switch { prev: tid, prev_comm, prev_is_runnable, next, next_comm }
            }
            FLUSH => {
                let (reason, pages) = (bytes.byte(), bytes.number());
                let size = if reason & ALL == 0 { FlushSize::Pages(pages) } else { FlushSize::All };
                EventKind::TlbFlush { reason: FlushReason::ALL[(reason & !ALL) as usize], size }
            }
            QUEUE => EventKind::CallQueue { cpu: bytes.number() as u32, callsite: CODE, func: CODE, csd: 0 },
            FORK => EventKind::Fork { parent: id(bytes), child: id(bytes), child_comm: Names::UNKNOWN },
            EXEC => EventKind::Exec { path: Names::UNKNOWN, tid: id(bytes), old_tid: id(bytes) },
            EXIT => EventKind::Exit { tid: id(bytes), is_last: false },
            FAULT => {
                of_cpu.1 = bytes.value(of_cpu.1);
                let (address, error_code) = (of_cpu.1, bytes.number() as u32);
                EventKind::Fault { mode: FaultMode::User, address, ip: CODE, error_code }
            }
            ENTER => {
                let (call, mut args) = (Syscall::ALL[bytes.byte() as usize], [0; 5]);
                args[..call.arguments().len()].iter_mut().for_each(|arg| *arg = bytes.number());
                EventKind::Enter { call, args }
            }
            LEAVE => {
                let call = Syscall::ALL[bytes.byte() as usize];
                EventKind::Leave { call, result: bytes.value(0).cast_signed() }
            }
            _ => EventKind::Lost { count: 0 },
        };
        Event { time_ns, cpu, pid: tid, tid, comm, stack: None, kind }
    }
}
