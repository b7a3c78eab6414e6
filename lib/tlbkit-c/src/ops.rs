//! The hardware interface in C: a table of functions that the kernel supplies.

use crate::storage::SpaceStorage;

/// CR4.PCIDE is set on this CPU.
pub const TLBKIT_FEATURE_PCID: u32 = 1;
/// This CPU has INVPCID.
pub const TLBKIT_FEATURE_INVPCID: u32 = 2;

/// Whether INVLPG is trusted to invalidate global translations while PCIDs are enabled. A kernel can pass this from its
/// command line to `tlbkit_x86_start`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrustKind {
    /// As the table of errata and the microcode revision say. Under a hypervisor the revision cannot be verified, so
    /// the microcode counts as unfixed.
    ByTable = 0,
    /// Trusted, so PCIDs are enabled: for a host that is known to have fixed microcode.
    Always = 1,
    /// Not trusted, so PCIDs stay disabled, whatever the model.
    Never = 2,
}

/// What the host of a guest flushes without an IPI: `host_flush` of the table.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostFlushKind {
    /// Nothing.
    None = 0,
    /// Translations; not the paths to page tables that a CPU has cached.
    Translations = 1,
    /// Both.
    TranslationsAndPaths = 2,
}

/// What to do about a CPU that is late in answering: returned by `late` of the table.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LateChoice {
    /// Go on waiting.
    Wait = 0,
    /// Send it another IPI, and go on waiting.
    AskAgain = 1,
}

/// What happened. The comment says what `value` is, if anything.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A context switch kept the translations of its PCID.
    SwitchKept = 0,
    /// A context switch flushed the translations of its PCID.
    SwitchFlushed = 1,
    /// A flush begins. `value` is the number of pages, or 4,294,967,295 for everything.
    FlushBegin = 2,
    /// The local part of the flush is complete.
    FlushLocalDone = 3,
    /// The flush was issued. It is not complete yet.
    FlushIssued = 4,
    /// The flush is complete on every CPU.
    FlushEnd = 5,
    /// A responder begins to carry out a request. `value` is the initiator's CPU.
    AnswerBegin = 6,
    /// The responder has carried it out. `value` is the initiator's CPU.
    AnswerEnd = 7,
    /// A request found this CPU already up to date.
    AlreadyCurrent = 8,
    /// A request was for a space that is not loaded on this CPU.
    WrongSpace = 9,
    /// A request made this CPU leave a space that it held in lazy TLB mode. `value` is the space's address.
    LazyLeft = 10,
    /// CPUs that get no IPI for this flush. `value` is how many of them flush when they enter the kernel, and in the
    /// upper half how many their host flushes.
    Spared = 11,
    /// This CPU has done the flushes that were deferred until it entered the kernel.
    CaughtUp = 12,
}

/// The hardware interface. Each function is called on the CPU that is passed as `cpu`, and its effect must be complete
/// when it returns. A function that is not marked as optional must not be NULL. An archive with the feature `linked`
/// calls the functions from `write_cr3` to `irqs_restore` by symbol instead, and ignores them here.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HardwareOps {
    /// The features of this CPU, as `TLBKIT_FEATURE_` flags, after the kernel has set up CR4.
    pub features: Option<unsafe extern "C" fn(cpu: u32) -> u32>,
    /// MOV to CR3. Bit 63 and the PCID are set only on CPUs with `TLBKIT_FEATURE_PCID`.
    pub write_cr3: Option<unsafe extern "C" fn(cpu: u32, value: u64)>,
    /// INVLPG.
    pub invlpg: Option<unsafe extern "C" fn(cpu: u32, va: u64)>,
    /// INVPCID of type 0 to 3. Optional if no CPU has `TLBKIT_FEATURE_INVPCID`.
    pub invpcid: Option<unsafe extern "C" fn(cpu: u32, kind: u32, pcid: u32, va: u64)>,
    /// Clears CR4.PGE and sets it again. Called with interrupts off.
    pub toggle_pge: Option<unsafe extern "C" fn(cpu: u32)>,
    /// Sends the IPI whose handler calls `tlbkit_answer`.
    pub send_ipi: Option<unsafe extern "C" fn(cpu: u32, to: u32)>,
    /// Sends this IPI to every online CPU but this one.
    pub send_ipi_to_others: Option<unsafe extern "C" fn(cpu: u32)>,
    /// PAUSE.
    pub relax: Option<unsafe extern "C" fn(cpu: u32)>,
    /// True if interrupts are enabled.
    pub irqs_enabled: Option<unsafe extern "C" fn(cpu: u32) -> bool>,
    /// Disables interrupts and returns what `irqs_restore` needs.
    pub irqs_save: Option<unsafe extern "C" fn(cpu: u32) -> u64>,
    /// Restores the state before `irqs_save`.
    pub irqs_restore: Option<unsafe extern "C" fn(cpu: u32, saved: u64)>,
    /// Reads a cycle counter. Optional if the policy does not count flushes.
    pub now_cycles: Option<unsafe extern "C" fn(cpu: u32) -> u64>,
    /// Called when CPU `missing` has not answered for about a millisecond of `relax`. Returns an `enum tlbkit_late`.
    /// Optional: by default the IPI is sent again, so that a lost one only costs time. A kernel that calls
    /// `tlbkit_declare_stopped` must not return `TLBKIT_LATE_WAIT`.
    pub late: Option<unsafe extern "C" fn(cpu: u32, missing: u32) -> u32>,
    /// Called when the last CPU that held this dying space in lazy TLB mode has left it. Interrupts are off, and it may
    /// run in the IPI handler: only record the space, and free it and its page tables later, elsewhere. Required unless
    /// the policy says `lazy_refs=shot-down`.
    pub last_lazy_reference: Option<unsafe extern "C" fn(cpu: u32, space: *mut SpaceStorage)>,
    /// Returns the CPU that executes the call. It is compared with `cpu` when a call begins, before a waiting CPU
    /// answers other CPUs, and when a call that waited ends; see `TLBKIT_STATUS_WRONG_CPU`. Interrupts on or off,
    /// possibly in an NMI. Optional: without it `cpu` is trusted.
    pub this_cpu: Option<unsafe extern "C" fn() -> u32>,
    /// Called when CPU `missing` has not answered in spite of all repeated IPIs, and was not declared stopped: once for
    /// each such CPU. If it returns, the wait goes on, and is counted from zero. Optional: by default the hook of
    /// `tlbkit_set_panic_hook` gets a message that names the CPUs.
    pub unanswered: Option<unsafe extern "C" fn(cpu: u32, missing: u32)>,
    /// Called when a request has made this CPU leave `space`, which it held in lazy TLB mode: the kernel's own tables
    /// are loaded now. Interrupts are off, and it may run in the IPI handler. For a kernel that tracks which space is
    /// loaded. Optional.
    pub lazy_left: Option<unsafe extern "C" fn(cpu: u32, space: *mut SpaceStorage)>,
    /// Called for every `enum tlbkit_event`, which says what `value` is: for tracepoints. Interrupts on or off,
    /// possibly in the IPI handler. Only called by an archive with the feature `events`. Optional.
    pub event: Option<unsafe extern "C" fn(cpu: u32, event: u32, value: u64)>,
    /// After how many turns of `relax` a waiting CPU calls `late`, each time. 0 for the default: 16,384.
    pub patience_turns: u32,
    /// After how many calls of `late` in one wait `unanswered` is called. 0 for the default: 1,024,
    /// which makes about a second. A guest whose host may take a CPU away for longer needs more.
    pub patience_rounds: u32,
    /// Has the host of this guest flush CPUs without an IPI. Bit 0 of `cpus` is CPU `first`. `pages` pages from `start`
    /// on, each `bytes` beyond the one before; everything if `pages` is 0; under every PCID, and global translations
    /// too. Returns the CPUs that the host does not flush, which then get an IPI. A CPU that is not returned executes
    /// nothing with what it has cached before: it has been flushed, or the host flushes it before it runs it again. The
    /// mark for that is made by a locked operation that fails if the host runs the CPU, even if the mark is there
    /// already. Interrupts on or off. Only called by an archive with the feature `guest`, and only if `host_flush` is
    /// not 0.
    pub flush_by_host:
        Option<unsafe extern "C" fn(cpu: u32, first: u32, cpus: u64, start: u64, pages: u32, bytes: u64) -> u64>,
    /// An `enum tlbkit_host_flush`: what that host flushes. 0 on a machine that is no guest.
    pub host_flush: u32,
    /// INVLPGB, with what its registers hold. It need not be complete when the function returns, and is not called for
    /// more than `broadcast_pages` pages. Only called by an archive with the feature `broadcast`, and only if
    /// `broadcast_pages` is not 0.
    pub invlpgb: Option<unsafe extern "C" fn(cpu: u32, rax: u64, ecx: u32, edx: u32)>,
    /// TLBSYNC: each INVLPGB of this CPU is complete on every CPU when it returns. It is called on the CPU of the
    /// INVLPGBs before it, with preemption off.
    pub tlbsync: Option<unsafe extern "C" fn(cpu: u32)>,
    /// The most pages that one INVLPGB takes: one more than bits 15 to 0 of EDX of CPUID 8000_0008. 0 unless every CPU
    /// has the instruction (EBX, bit 3) and PCIDs.
    pub broadcast_pages: u32,
    /// The physical address of the top-level table that this CPU loads for `space`. Called in every switch to it, and
    /// in answers: interrupts are off. Only called by an archive with the feature `directories`. Optional: by default
    /// the one that the space was made with.
    pub root_here: Option<unsafe extern "C" fn(cpu: u32, space: *const SpaceStorage) -> u64>,
}
