//! The protocol's [`Hardware`] on the functions of a kernel in C, which are reached through the table or by name.

use core::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "early")]
use tlbkit::Acknowledgement;
#[cfg(feature = "isolated")]
use tlbkit::KernelFlushes;
use tlbkit::{
    AddressSpace, CpuId, Cr3, Event, Features, Hardware, Invpcid, IrqsOff, Late, Missing, SpaceToken, VirtAddr,
};
#[cfg(feature = "directories")]
use tlbkit::{Directories, PhysAddr};
#[cfg(feature = "guest")]
use tlbkit::{HostExtent, HostFlush};
#[cfg(feature = "broadcast")]
use {core::num::NonZeroU32, tlbkit::Invlpgb, tlbkit_x86::Operands};

use crate::hot::Hot;
use crate::ops::{HardwareOps, LateChoice, TLBKIT_FEATURE_INVPCID, TLBKIT_FEATURE_PCID};
use crate::panic::{Text, report_and_stop};
use crate::status::Status;
use crate::storage::SpaceStorage;
use crate::storage::{Set, Space};

/// The kernel's functions, copied from its table, with defaults for the optional ones.
pub(crate) struct Ops {
    pub(crate) hot: Hot,
    pub(crate) features: unsafe extern "C" fn(u32) -> u32,
    pub(crate) now_cycles: unsafe extern "C" fn(u32) -> u64,
    pub(crate) late: unsafe extern "C" fn(u32, u32) -> u32,
    pub(crate) last_lazy_reference: Option<unsafe extern "C" fn(u32, *mut SpaceStorage)>,
    #[cfg_attr(not(feature = "checked"), allow(dead_code, reason = "only checked builds call it"))]
    pub(crate) this_cpu: Option<unsafe extern "C" fn() -> u32>,
    pub(crate) unanswered: Option<unsafe extern "C" fn(u32, u32)>,
    pub(crate) lazy_left: Option<unsafe extern "C" fn(u32, *mut SpaceStorage)>,
    #[cfg(feature = "events")]
    pub(crate) event: Option<unsafe extern "C" fn(u32, u32, u64)>,
    pub(crate) patience_turns: u32,
    pub(crate) patience_rounds: u32,
    #[cfg(feature = "guest")]
    pub(crate) host: Host,
    #[cfg(feature = "broadcast")]
    pub(crate) broadcast: Option<Broadcast>,
    #[cfg(feature = "directories")]
    pub(crate) root_here: Option<unsafe extern "C" fn(u32, *const SpaceStorage) -> u64>,
}

/// INVLPGB and TLBSYNC of a machine that has them.
#[cfg(feature = "broadcast")]
pub(crate) struct Broadcast {
    pages: NonZeroU32,
    invlpgb: unsafe extern "C" fn(u32, u64, u32, u32),
    tlbsync: unsafe extern "C" fn(u32),
}

#[cfg(feature = "broadcast")]
impl Broadcast {
    /// The count of the instruction holds no more pages.
    const MOST_PAGES: u32 = 1 << 16;

    fn new(table: &HardwareOps) -> Result<Option<Self>, Status> {
        let Some(pages) = NonZeroU32::new(table.broadcast_pages) else { return Ok(None) };
        if pages.get() > Self::MOST_PAGES {
            return Err(Status::BadValue);
        }
        match (table.invlpgb, table.tlbsync) {
            (Some(invlpgb), Some(tlbsync)) => Ok(Some(Self { pages, invlpgb, tlbsync })),
            _ => Err(Status::NoFunction),
        }
    }
}

/// What the host flushes, and the kernel's function for it.
#[cfg(feature = "guest")]
pub(crate) struct Host {
    promise: HostFlush,
    flush: unsafe extern "C" fn(u32, u32, u64, u64, u32, u64) -> u64,
}

#[cfg(feature = "guest")]
impl Host {
    fn new(table: &HardwareOps) -> Result<Self, Status> {
        let promise = match table.host_flush {
            0 => HostFlush::None,
            1 => HostFlush::Translations,
            2 => HostFlush::TranslationsAndPaths,
            _ => return Err(Status::BadValue),
        };
        match table.flush_by_host {
            Some(flush) => Ok(Self { promise, flush }),
            None if promise == HostFlush::None => Ok(Self { promise, flush: flush_nothing }),
            None => Err(Status::NoFunction),
        }
    }
}

#[cfg(feature = "guest")]
const extern "C" fn flush_nothing(_cpu: u32, _first: u32, cpus: u64, _start: u64, _pages: u32, _bytes: u64) -> u64 {
    cpus
}

impl Ops {
    pub(crate) const fn has_last_lazy_reference(&self) -> bool {
        self.last_lazy_reference.is_some()
    }

    pub(crate) fn new(table: &HardwareOps) -> Result<Self, Status> {
        Ok(Self {
            hot: Hot::new(table)?,
            features: table.features.ok_or(Status::NoFunction)?,
            now_cycles: table.now_cycles.unwrap_or(no_clock),
            late: table.late.unwrap_or(ask_again),
            last_lazy_reference: table.last_lazy_reference,
            this_cpu: table.this_cpu,
            unanswered: table.unanswered,
            lazy_left: table.lazy_left,
            #[cfg(feature = "events")]
            event: table.event,
            patience_turns: or_default(table.patience_turns, 1 << 14),
            patience_rounds: or_default(table.patience_rounds, 1 << 10),
            #[cfg(feature = "guest")]
            host: Host::new(table)?,
            #[cfg(feature = "broadcast")]
            broadcast: Broadcast::new(table)?,
            #[cfg(feature = "directories")]
            root_here: table.root_here,
        })
    }
}

const extern "C" fn no_clock(_cpu: u32) -> u64 {
    0
}

const extern "C" fn ask_again(_cpu: u32, _missing: u32) -> u32 {
    LateChoice::AskAgain as u32
}

/// `chosen`, or the default if the kernel passed 0.
const fn or_default(chosen: u32, own: u32) -> u32 {
    if chosen == 0 { own } else { chosen }
}

/// Reports the CPUs that have not answered to the panic hook, and stops.
#[cold]
#[inline(never)]
fn stop_unanswered(missing: Missing<'_>) -> ! {
    let (mut text, mut before) = (Text::new(missing.complaint()), "CPU ");
    missing.for_each(|cpu| {
        text.push(before);
        text.push_number(cpu.0);
        before = ", CPU ";
    });
    report_and_stop(&text, file!(), line!())
}

/// One CPU. It is used on that CPU only, unless a task has migrated in the middle of a call.
pub(crate) struct KernelHardware {
    pub(crate) ops: &'static Ops,
    pub(crate) cpu: u32,
    /// The protocol has found a call for this CPU running on another one. Relaxed throughout: it publishes nothing
    /// else. It may be lost if another call begins on this CPU before the call that migrated has ended.
    is_elsewhere: AtomicBool,
}

impl KernelHardware {
    #[inline(always)]
    pub(crate) const fn new(ops: &'static Ops, cpu: u32) -> Self {
        Self { ops, cpu, is_elsewhere: AtomicBool::new(false) }
    }

    /// A call that may wait begins.
    pub(crate) fn begin_call(&self) {
        self.is_elsewhere.store(false, Ordering::Relaxed);
    }

    /// Fails if the call runs on another CPU than the one it names, provided that the kernel has `this_cpu`.
    pub(crate) fn assert_here(&self) -> Result<(), Status> {
        match self.this_cpu() {
            Some(here) if here.0 != self.cpu => Err(Status::WrongCpu),
            _ => Ok(()),
        }
    }

    /// Fails if the task was found on another CPU during a wait.
    #[inline(always)]
    pub(crate) fn assert_stayed(&self) -> Result<(), Status> {
        if cfg!(feature = "checked") && self.is_elsewhere.load(Ordering::Relaxed) {
            Err(Status::WrongCpu)
        } else {
            Ok(())
        }
    }
}

impl Hardware for KernelHardware {
    type Set = Set;
    type Token = SpaceToken;

    fn features(&self) -> Features {
        // SAFETY: a function of the kernel, which stays valid as long as the machine, called as the header promises.
        let bits = unsafe { (self.ops.features)(self.cpu) };
        Features { pcid: bits & TLBKIT_FEATURE_PCID != 0, invpcid: bits & TLBKIT_FEATURE_INVPCID != 0 }
    }

    #[inline(always)]
    fn write_cr3(&self, cr3: Cr3) {
        self.ops.hot.write_cr3(self.cpu, cr3.0);
    }

    #[inline(always)]
    fn invlpg(&self, va: VirtAddr) {
        self.ops.hot.invlpg(self.cpu, va.0);
    }

    fn invpcid(&self, what: Invpcid) {
        let (kind, pcid, va) = what.operands();
        self.ops.hot.invpcid(self.cpu, kind as u32, u32::from(pcid.0), va.0);
    }

    fn toggle_pge(&self) {
        self.ops.hot.toggle_pge(self.cpu);
    }

    #[inline(always)]
    fn send_ipi(&self, to: CpuId) {
        self.ops.hot.send_ipi(self.cpu, to.0);
    }

    #[inline(always)]
    fn send_ipi_to_others(&self) {
        self.ops.hot.send_ipi_to_others(self.cpu);
    }

    #[cfg(feature = "broadcast")]
    #[inline(always)]
    fn broadcast_pages(&self) -> Option<NonZeroU32> {
        self.ops.broadcast.as_ref().map(|broadcast| broadcast.pages)
    }

    #[cfg(feature = "broadcast")]
    fn invlpgb(&self, what: Invlpgb) {
        if let Some(broadcast) = &self.ops.broadcast {
            let Operands { rax, ecx, edx } = Operands::of(what);
            // SAFETY: as above.
            unsafe { (broadcast.invlpgb)(self.cpu, rax, ecx, edx) }
        }
    }

    #[cfg(feature = "broadcast")]
    fn tlbsync(&self) {
        if let Some(broadcast) = &self.ops.broadcast {
            // SAFETY: as above.
            unsafe { (broadcast.tlbsync)(self.cpu) }
        }
    }

    #[cfg(feature = "guest")]
    fn host_flush(&self) -> HostFlush {
        self.ops.host.promise
    }

    #[cfg(feature = "guest")]
    fn flush_by_host(&self, first: CpuId, cpus: u64, what: HostExtent) -> u64 {
        let (start, pages, bytes) = match what {
            HostExtent::Everything => (0, 0, 0),
            HostExtent::Range { start, pages, bytes } => (start.0, pages, bytes),
        };
        // SAFETY: as above.
        unsafe { (self.ops.host.flush)(self.cpu, first.0, cpus, start, pages, bytes) }
    }

    #[cfg(feature = "isolated")]
    #[inline(always)]
    fn kernel_flushes(&self) -> KernelFlushes {
        KernelFlushes::AtEntry
    }

    #[cfg(feature = "early")]
    #[inline(always)]
    fn acknowledgement(&self) -> Acknowledgement {
        Acknowledgement::BeforeFlush
    }

    #[cfg(feature = "directories")]
    #[inline(always)]
    fn directories(&self) -> Directories {
        Directories::OfEachCpu
    }

    #[cfg(feature = "directories")]
    fn root_here(&self, space: &AddressSpace<Self::Set>) -> PhysAddr {
        match self.ops.root_here {
            // SAFETY: as above; a token is the address of its space.
            Some(root_here) => PhysAddr(unsafe { root_here(self.cpu, space.token().0 as *const SpaceStorage) }),
            None => space.root(),
        }
    }

    fn relax(&self) {
        self.ops.hot.relax(self.cpu);
    }

    /// A few microseconds of PAUSE, as long as an IPI and its answer take.
    #[inline(always)]
    fn glances(&self) -> u32 {
        32
    }

    fn late(&self, cpu: CpuId) -> Late {
        // SAFETY: as above.
        if unsafe { (self.ops.late)(self.cpu, cpu.0) } == LateChoice::AskAgain as u32 {
            Late::AskAgain
        } else {
            Late::Wait
        }
    }

    fn patience_turns(&self) -> u32 {
        self.ops.patience_turns
    }

    fn patience_rounds(&self) -> u32 {
        self.ops.patience_rounds
    }

    #[cold]
    fn unanswered(&self, missing: Missing<'_>) {
        match self.ops.unanswered {
            // SAFETY: as above.
            Some(notify) => missing.for_each(|missing| unsafe { notify(self.cpu, missing.0) }),
            None => stop_unanswered(missing),
        }
    }

    #[inline(always)]
    fn this_cpu(&self) -> Option<CpuId> {
        #[cfg(feature = "checked")]
        // SAFETY: as above.
        return self.ops.this_cpu.map(|ask| CpuId(unsafe { ask() }));
        #[cfg(not(feature = "checked"))]
        None
    }

    fn wrong_cpu(&self, _named: CpuId, _here: CpuId) {
        self.is_elsewhere.store(true, Ordering::Relaxed);
    }

    #[inline(always)]
    fn irqs_enabled(&self) -> bool {
        self.ops.hot.irqs_enabled(self.cpu)
    }

    #[inline(always)]
    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        let saved = self.ops.hot.irqs_save(self.cpu);
        let result = f(&IrqsOff::assume());
        self.ops.hot.irqs_restore(self.cpu, saved);
        result
    }

    #[inline(always)]
    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        // SAFETY: a token is the address of an initialized space (`space.rs`), and the protocol only asks for a space
        // that is alive.
        f(unsafe { &(*(token.0 as *const Space)).inner })
    }

    #[inline(always)]
    fn event(&self, event: Event) {
        let notify = |notify: Option<unsafe extern "C" fn(u32, *mut SpaceStorage)>, token: SpaceToken| {
            // SAFETY: as above.
            notify.into_iter().for_each(|notify| unsafe { notify(self.cpu, token.0 as *mut SpaceStorage) });
        };
        match event {
            Event::LastLazyReference(token) => notify(self.ops.last_lazy_reference, token),
            Event::LazyLeft(token) => notify(self.ops.lazy_left, token),
            _ => {}
        }
        #[cfg(feature = "events")]
        if let (Some(notify), Some((kind, value))) = (self.ops.event, event_for_c(event)) {
            // SAFETY: as above.
            unsafe { notify(self.cpu, kind as u32, value) };
        }
    }

    fn now_cycles(&self) -> u64 {
        // SAFETY: as above.
        unsafe { (self.ops.now_cycles)(self.cpu) }
    }
}

/// The event as C gets it. `None` for events that have their own function, for every turn of a wait, and for the CPUs
/// that a flush has looked at, which only a simulator needs.
#[cfg(feature = "events")]
fn event_for_c(event: Event) -> Option<(crate::ops::EventKind, u64)> {
    Some(match event {
        Event::SwitchKept => (crate::ops::EventKind::SwitchKept, 0),
        Event::SwitchFlushed => (crate::ops::EventKind::SwitchFlushed, 0),
        Event::FlushBegin(pages) => (crate::ops::EventKind::FlushBegin, u64::from(pages)),
        Event::FlushLocalDone => (crate::ops::EventKind::FlushLocalDone, 0),
        Event::FlushIssued => (crate::ops::EventKind::FlushIssued, 0),
        Event::FlushEnd => (crate::ops::EventKind::FlushEnd, 0),
        Event::AnswerBegin(cpu) => (crate::ops::EventKind::AnswerBegin, u64::from(cpu.0)),
        Event::AnswerEnd(cpu) => (crate::ops::EventKind::AnswerEnd, u64::from(cpu.0)),
        Event::AlreadyCurrent => (crate::ops::EventKind::AlreadyCurrent, 0),
        Event::WrongSpace => (crate::ops::EventKind::WrongSpace, 0),
        Event::LazyLeft(space) => (crate::ops::EventKind::LazyLeft, space.0),
        Event::Spared { until_entry, by_host } => {
            (crate::ops::EventKind::Spared, u64::from(until_entry) | u64::from(by_host) << 32)
        }
        Event::CaughtUp => (crate::ops::EventKind::CaughtUp, 0),
        _ => return None,
    })
}
