//! The kernel's table of functions, as the protocol's [`Hardware`].

use tlbkit::{
    AddressSpace, CpuId, Cr3, Event, Features, Hardware, Invpcid, IrqsOff, Late, Missing, SpaceToken, VirtAddr,
};

use core::cell::Cell;

use crate::panic::{Text, stop};
use crate::space::{Set, Space};
use crate::status::Status;
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

/// What the library needs of a CPU. Each function is called on the CPU that it names as `cpu`, and what it does must
/// have happened when it returns. All must be given but those marked as optional, which may be NULL.
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
    /// CPU `missing` has not answered, however often it was asked. Called for each of them; if it returns, the wait
    /// goes on and is counted anew. Optional: the hook of `tlbkit_set_panic_hook` gets a text that names them.
    pub unanswered: Option<unsafe extern "C" fn(cpu: u32, missing: u32)>,
    /// Turns of `relax` after which `late` is asked, again and again. 0 for the library's own: 16,384.
    pub patience_turns: u32,
    /// How often `late` is asked in one wait before `unanswered` is. 0 for the library's own: 32,768.
    pub patience_rounds: u32,
}

/// The table with nothing missing.
pub(crate) struct Ops {
    features: unsafe extern "C" fn(u32) -> u32,
    write_cr3: unsafe extern "C" fn(u32, u64),
    invlpg: unsafe extern "C" fn(u32, u64),
    invpcid: unsafe extern "C" fn(u32, u32, u32, u64),
    toggle_pge: unsafe extern "C" fn(u32),
    send_ipi: unsafe extern "C" fn(u32, u32),
    send_ipi_to_others: unsafe extern "C" fn(u32),
    relax: unsafe extern "C" fn(u32),
    irqs_enabled: unsafe extern "C" fn(u32) -> bool,
    irqs_save: unsafe extern "C" fn(u32) -> u64,
    irqs_restore: unsafe extern "C" fn(u32, u64),
    now_cycles: unsafe extern "C" fn(u32) -> u64,
    late: unsafe extern "C" fn(u32, u32) -> u32,
    last_lazy_reference: Option<unsafe extern "C" fn(u32, *mut SpaceStorage)>,
    this_cpu: Option<unsafe extern "C" fn() -> u32>,
    unanswered: Option<unsafe extern "C" fn(u32, u32)>,
    patience_turns: u32,
    patience_rounds: u32,
}

impl Ops {
    pub(crate) const fn tells_of_last_reference(&self) -> bool {
        self.last_lazy_reference.is_some()
    }

    pub(crate) fn new(table: &HardwareOps) -> Result<Self, Status> {
        let missing = Status::NoFunction;
        Ok(Self {
            features: table.features.ok_or(missing)?,
            write_cr3: table.write_cr3.ok_or(missing)?,
            invlpg: table.invlpg.ok_or(missing)?,
            invpcid: table.invpcid.unwrap_or(no_invpcid),
            toggle_pge: table.toggle_pge.ok_or(missing)?,
            send_ipi: table.send_ipi.ok_or(missing)?,
            send_ipi_to_others: table.send_ipi_to_others.ok_or(missing)?,
            relax: table.relax.ok_or(missing)?,
            irqs_enabled: table.irqs_enabled.ok_or(missing)?,
            irqs_save: table.irqs_save.ok_or(missing)?,
            irqs_restore: table.irqs_restore.ok_or(missing)?,
            now_cycles: table.now_cycles.unwrap_or(no_clock),
            late: table.late.unwrap_or(ask_again),
            last_lazy_reference: table.last_lazy_reference,
            this_cpu: table.this_cpu,
            unanswered: table.unanswered,
            patience_turns: or(table.patience_turns, 1 << 14),
            patience_rounds: or(table.patience_rounds, 1 << 15),
        })
    }
}

extern "C" fn no_invpcid(_cpu: u32, _kind: u32, _pcid: u32, _va: u64) {
    panic!("a CPU has INVPCID and the table of functions does not");
}

const extern "C" fn no_clock(_cpu: u32) -> u64 {
    0
}

const extern "C" fn ask_again(_cpu: u32, _missing: u32) -> u32 {
    LateChoice::AskAgain as u32
}

/// `chosen`, or the library's own if the kernel has chosen nothing.
const fn or(chosen: u32, own: u32) -> u32 {
    if chosen == 0 { own } else { chosen }
}

/// Names in the kernel's hook all who are missing.
#[cold]
#[inline(never)]
fn stop_unanswered(missing: Missing<'_>) -> ! {
    let (mut text, mut before) = (Text::new("a flush is not answered by "), "CPU ");
    missing.each(|cpu| {
        text.push(before);
        text.push_number(cpu.0);
        before = ", CPU ";
    });
    stop(&text, file!(), line!())
}

/// One CPU of the kernel's.
pub(crate) struct OpsHardware<'m> {
    pub(crate) ops: &'m Ops,
    pub(crate) cpu: u32,
    /// The protocol has found it elsewhere.
    is_elsewhere: Cell<bool>,
}

impl<'m> OpsHardware<'m> {
    pub(crate) const fn new(ops: &'m Ops, cpu: u32) -> Self {
        Self { ops, cpu, is_elsewhere: Cell::new(false) }
    }

    /// Refuses a call in another CPU's name, as far as the kernel can tell.
    pub(crate) fn assert_here(&self) -> Result<(), Status> {
        match self.this_cpu() {
            Some(here) if here.0 != self.cpu => Err(Status::WrongCpu),
            _ => self.assert_stayed(),
        }
    }

    /// Refuses to go on after a wait in which the task was found on another CPU.
    pub(crate) fn assert_stayed(&self) -> Result<(), Status> {
        if self.is_elsewhere.get() { Err(Status::WrongCpu) } else { Ok(()) }
    }
}

/// Calls a function of the table.
macro_rules! call {
    ($self:ident.$function:ident($($argument:expr),*)) => {
        // SAFETY: a function of the kernel's table, which lives as long as the machine, called as the header says.
        unsafe { ($self.ops.$function)($self.cpu $(, $argument)*) }
    };
}

impl Hardware for OpsHardware<'_> {
    type Set = Set;
    type Token = SpaceToken;

    fn features(&self) -> Features {
        let bits = call!(self.features());
        Features { pcid: bits & TLBKIT_FEATURE_PCID != 0, invpcid: bits & TLBKIT_FEATURE_INVPCID != 0 }
    }

    fn write_cr3(&self, cr3: Cr3) {
        call!(self.write_cr3(cr3.0));
    }

    fn invlpg(&self, va: VirtAddr) {
        call!(self.invlpg(va.0));
    }

    fn invpcid(&self, what: Invpcid) {
        let (kind, pcid, va) = what.operands();
        call!(self.invpcid(kind as u32, u32::from(pcid.0), va.0));
    }

    fn toggle_pge(&self) {
        call!(self.toggle_pge());
    }

    fn send_ipi(&self, to: CpuId) {
        call!(self.send_ipi(to.0));
    }

    fn send_ipi_to_others(&self) {
        call!(self.send_ipi_to_others());
    }

    fn relax(&self) {
        call!(self.relax());
    }

    fn late(&self, cpu: CpuId) -> Late {
        if call!(self.late(cpu.0)) == LateChoice::AskAgain as u32 { Late::AskAgain } else { Late::Wait }
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
            // SAFETY: a function of the kernel's table, called as the header says.
            Some(tell) => missing.each(|missing| unsafe { tell(self.cpu, missing.0) }),
            None => stop_unanswered(missing),
        }
    }

    fn this_cpu(&self) -> Option<CpuId> {
        // SAFETY: as above.
        self.ops.this_cpu.map(|ask| CpuId(unsafe { ask() }))
    }

    fn wrong_cpu(&self, _named: CpuId, _here: CpuId) {
        self.is_elsewhere.set(true);
    }

    fn irqs_enabled(&self) -> bool {
        call!(self.irqs_enabled())
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        let saved = call!(self.irqs_save());
        let result = f(&IrqsOff::assume());
        call!(self.irqs_restore(saved));
        result
    }

    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        // SAFETY: a token is the address of a made space (`space.rs`), and the protocol asks only while it is alive.
        f(unsafe { &(*(token.0 as *const Space)).inner })
    }

    fn event(&self, event: Event) {
        if let (Event::LastLazyReference(token), Some(tell)) = (event, self.ops.last_lazy_reference) {
            // SAFETY: a function of the kernel's table, as those of `call`.
            unsafe { tell(self.cpu, token.0 as *mut SpaceStorage) };
        }
    }

    fn now_cycles(&self) -> u64 {
        call!(self.now_cycles())
    }
}
