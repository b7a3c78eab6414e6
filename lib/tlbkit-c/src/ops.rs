//! The kernel's table of functions.

use crate::storage::SpaceStorage;

/// CR4.PCIDE is set on the CPU.
pub const TLBKIT_FEATURE_PCID: u32 = 1;
/// INVPCID exists on the CPU.
pub const TLBKIT_FEATURE_INVPCID: u32 = 2;

/// Whether INVLPG is believed to drop global entries while tags are on: what a kernel's command line can say to
/// `tlbkit_x86_start`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrustKind {
    /// As the table of errata and the microcode say; under a hypervisor, whose microcode nobody can check, as if it
    /// were old.
    ByTable = 0,
    /// It is, so tags are used: for a host that is known to be mended.
    Always = 1,
    /// It is not, so tags stay off, whatever the model.
    Never = 2,
}

/// What to do about a CPU that is late: what `late` of the table returns.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LateChoice {
    /// Wait on.
    Wait = 0,
    /// Interrupt it again.
    AskAgain = 1,
}

/// What happened; the comment says what `value` is.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A switch kept what its tag held.
    SwitchKept = 0,
    /// A switch flushed what its tag held.
    SwitchFlushed = 1,
    /// A flush begins: pages, or 4,294,967,295 for everything.
    FlushBegin = 2,
    /// Its half on this CPU is done.
    FlushLocalDone = 3,
    /// It was issued, and is not over.
    FlushIssued = 4,
    /// It is over on every CPU.
    FlushEnd = 5,
    /// A request is carried out: the CPU that asked.
    AnswerBegin = 6,
    /// It has been carried out: the CPU that asked.
    AnswerEnd = 7,
    /// A request found nothing left to do.
    AlreadyCurrent = 8,
    /// A request was for a space that is not loaded here.
    WrongSpace = 9,
    /// A request made this CPU leave a space that it held lazily: the space's address.
    LazyLeft = 10,
}

/// What the library needs of a CPU. Each function is called on the CPU that it names as `cpu`, and what it does must
/// have happened when it returns. All must be given but those marked as optional, which may be NULL. An archive with
/// the feature `linked` takes those from `write_cr3` to `irqs_restore` by name instead, and does not look at them here.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HardwareOps {
    /// What this CPU can do: `TLBKIT_FEATURE_`s, as they are after the kernel has set up CR4.
    pub features: Option<unsafe extern "C" fn(cpu: u32) -> u32>,
    /// MOV to CR3. Bit 63 and the tag are set only on CPUs with PCIDs.
    pub write_cr3: Option<unsafe extern "C" fn(cpu: u32, value: u64)>,
    /// INVLPG.
    pub invlpg: Option<unsafe extern "C" fn(cpu: u32, va: u64)>,
    /// INVPCID of type 0 to 3. Optional if no CPU has it.
    pub invpcid: Option<unsafe extern "C" fn(cpu: u32, kind: u32, pcid: u32, va: u64)>,
    /// Clears and sets CR4.PGE. Called with interrupts off.
    pub toggle_pge: Option<unsafe extern "C" fn(cpu: u32)>,
    /// Sends the interrupt whose handler calls `tlbkit_answer`.
    pub send_ipi: Option<unsafe extern "C" fn(cpu: u32, to: u32)>,
    /// Sends it to every online CPU but this one.
    pub send_ipi_to_others: Option<unsafe extern "C" fn(cpu: u32)>,
    /// PAUSE.
    pub relax: Option<unsafe extern "C" fn(cpu: u32)>,
    /// Whether interrupts are on.
    pub irqs_enabled: Option<unsafe extern "C" fn(cpu: u32) -> bool>,
    /// Turns interrupts off and returns what `irqs_restore` needs.
    pub irqs_save: Option<unsafe extern "C" fn(cpu: u32) -> u64>,
    /// Back to what was before `irqs_save`.
    pub irqs_restore: Option<unsafe extern "C" fn(cpu: u32, saved: u64)>,
    /// A cycle counter. Optional if the policy does not count.
    pub now_cycles: Option<unsafe extern "C" fn(cpu: u32) -> u64>,
    /// CPU `missing` has not answered for about a millisecond of `relax`; returns an `enum tlbkit_late`. Optional:
    /// asks again, so that a lost interrupt costs time and nothing else. A kernel that calls `tlbkit_declare_stopped`
    /// must not return `TLBKIT_LATE_WAIT`.
    pub late: Option<unsafe extern "C" fn(cpu: u32, missing: u32) -> u32>,
    /// The last CPU that held this dying space lazily has left it. Interrupts are off, maybe in the handler: note it,
    /// and free the space and its tables later, elsewhere. Must be given unless the policy says `lazy_refs=shot-down`.
    pub last_lazy_reference: Option<unsafe extern "C" fn(cpu: u32, space: *mut SpaceStorage)>,
    /// The CPU that executes the call: compared with `cpu` when a call begins, before a waiting CPU answers others, and
    /// when a call that waited ends; see `TLBKIT_STATUS_WRONG_CPU`. Interrupts on or off, maybe in an NMI. Optional:
    /// `cpu` is believed.
    pub this_cpu: Option<unsafe extern "C" fn() -> u32>,
    /// CPU `missing` has not answered, however often it was asked, and was not declared stopped. Called for each of
    /// them; if it returns, the wait goes on and is counted anew. Optional: the hook of `tlbkit_set_panic_hook` gets a
    /// text that names them.
    pub unanswered: Option<unsafe extern "C" fn(cpu: u32, missing: u32)>,
    /// A request has made this CPU leave `space`, which it held lazily: the kernel's own tables are loaded now.
    /// Interrupts are off, maybe in the handler. For a kernel that keeps a note of what is loaded. Optional.
    pub lazy_left: Option<unsafe extern "C" fn(cpu: u32, space: *mut SpaceStorage)>,
    /// Something happened, for a tracepoint; `value` is what the `enum tlbkit_event` says. Interrupts on or off, maybe
    /// in the handler. Only in an archive with the feature `events`. Optional.
    pub event: Option<unsafe extern "C" fn(cpu: u32, event: u32, value: u64)>,
    /// Turns of `relax` after which `late` is asked, again and again. 0 for the library's own: 16,384.
    pub patience_turns: u32,
    /// How often `late` is asked in one wait before `unanswered` is. 0 for the library's own: 32,768.
    pub patience_rounds: u32,
}
