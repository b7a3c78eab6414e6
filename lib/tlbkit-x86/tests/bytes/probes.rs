//! Functions of one wrapper each, as a kernel would call them: what the compiler makes of these is looked at.

use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, CpuId, Cr3, Hardware, Invpcid, Pcid, SpaceToken, VirtAddr};
use tlbkit_x86::interrupts::{self, Interrupts};
use tlbkit_x86::{Apic, Destination, Identity, Kernel, Operands, X86Cpu};

/// A name and the function that has it.
pub(crate) type Probe = (&'static str, usize);

/// A kernel of which nothing is asked.
pub(crate) struct Nobody;

impl Kernel for Nobody {
    type Set = &'static [AtomicU64];
    type Token = SpaceToken;

    fn with_space_of<R>(&self, _token: SpaceToken, _f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        unreachable!("no test calls it")
    }

    fn apic_id(&self, _cpu: CpuId) -> u32 {
        unreachable!("no test calls it")
    }
}

/// Defines functions that keep their names, and a constant for each.
macro_rules! probes {
    ($($name:ident = $symbol:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)? $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            #[inline(never)]
            extern "C" fn $symbol($($argument: $kind),*) $(-> $result)? {
                #[allow(unused_unsafe, reason = "a few of the wrappers are safe or hold their own block")]
                // SAFETY: no test calls it.
                unsafe { $body }
            }
            pub(crate) fn $name() -> Probe {
                (stringify!($symbol), $symbol as *const () as usize)
            }
        )*
    };
}

probes! {
    invlpg = tlbkit_probe_invlpg(va: u64) { tlbkit_x86::invlpg(VirtAddr(va)) }
    invpcid_single = tlbkit_probe_invpcid_single(pcid: u16) { tlbkit_x86::invpcid(Invpcid::Single(Pcid(pcid))) }
    invpcid_all = tlbkit_probe_invpcid_all() { tlbkit_x86::invpcid(Invpcid::All) }
    invpcid_all_and_globals = tlbkit_probe_invpcid_globals() { tlbkit_x86::invpcid(Invpcid::AllAndGlobals) }
    invlpgb = tlbkit_probe_invlpgb(rax: u64, ecx: u32, edx: u32) { Operands { rax, ecx, edx }.execute() }
    tlbsync = tlbkit_probe_tlbsync() { tlbkit_x86::tlbsync() }
    write_cr3 = tlbkit_probe_write_cr3(value: u64) { tlbkit_x86::write_cr3(Cr3(value)) }
    write_cr4 = tlbkit_probe_write_cr4(value: u64) { tlbkit_x86::write_cr4(value) }
    read_cr2 = tlbkit_probe_read_cr2() -> u64 { tlbkit_x86::read_cr2() }
    read_cr3 = tlbkit_probe_read_cr3() -> u64 { tlbkit_x86::read_cr3().0 }
    read_cr4 = tlbkit_probe_read_cr4() -> u64 { tlbkit_x86::read_cr4() }
    toggle_pge = tlbkit_probe_toggle_pge() { tlbkit_x86::toggle_pge() }
    write_msr = tlbkit_probe_write_msr(index: u32, value: u64) { tlbkit_x86::write_msr(index, value) }
    read_msr = tlbkit_probe_read_msr(index: u32) -> u64 { tlbkit_x86::read_msr(index) }
    disable = tlbkit_probe_disable() { interrupts::disable() }
    enable = tlbkit_probe_enable() { interrupts::enable() }
    enable_and_halt = tlbkit_probe_enable_and_halt() { interrupts::enable_and_halt() }
    are_enabled = tlbkit_probe_are_enabled() -> bool { interrupts::are_enabled() }
    irqs_enabled = tlbkit_probe_irqs_enabled(cpu: &X86Cpu<'static, Nobody>) -> bool { cpu.irqs_enabled() }
    save_and_disable = tlbkit_probe_save_and_disable() -> u8 { interrupts::save_and_disable() as u8 }
    restore = tlbkit_probe_restore(before: u8) {
        interrupts::restore(if before == 1 { Interrupts::Enabled } else { Interrupts::Disabled })
    }
    send_x2apic = tlbkit_probe_send_x2apic(id: u32, vector: u8) { Apic::Registers.send(Destination::One(id), vector) }
    send_xapic = tlbkit_probe_send_xapic(registers: *mut u32, id: u32, vector: u8) {
        Apic::Memory(registers).send(Destination::One(id), vector)
    }
    read_microcode = tlbkit_probe_read_microcode(cpu: &Identity) -> u32 { cpu.with_microcode_read().microcode }
}

/// What a probe of order stores before the instruction, and after it.
pub(crate) const STORED: [u64; 2] = [0x5aa5_0001, 0x5aa5_0002];

/// Functions that store to a word, execute an instruction, load the word and store to it again. A compiler that took
/// the instruction for one that has nothing to do with memory would keep the last store alone.
macro_rules! orders {
    ($($symbol:ident($argument:ident: $kind:ty) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            #[inline(never)]
            extern "C" fn $symbol(word: *mut u64, $argument: $kind) -> u64 {
                // SAFETY: no test calls it.
                unsafe {
                    *word = STORED[0];
                    $body
                    let seen = *word;
                    *word = STORED[1];
                    seen
                }
            }
        )*
        /// Each, by name.
        pub(crate) fn orders() -> Vec<Probe> {
            vec![$((stringify!($symbol), $symbol as *const () as usize)),*]
        }
    };
}

orders! {
    tlbkit_order_invlpg(va: u64) { tlbkit_x86::invlpg(VirtAddr(va)) }
    tlbkit_order_invpcid(pcid: u16) { tlbkit_x86::invpcid(Invpcid::Single(Pcid(pcid))) }
    tlbkit_order_invlpgb(rax: u64) { Operands { rax, ecx: 0, edx: 0 }.execute() }
    tlbkit_order_tlbsync(_none: u64) { tlbkit_x86::tlbsync() }
    tlbkit_order_write_cr3(value: u64) { tlbkit_x86::write_cr3(Cr3(value)) }
    tlbkit_order_write_cr4(value: u64) { tlbkit_x86::write_cr4(value) }
    tlbkit_order_toggle_pge(_none: u64) { tlbkit_x86::toggle_pge() }
    tlbkit_order_write_msr(value: u64) { tlbkit_x86::write_msr(0x830, value) }
    tlbkit_order_disable(_none: u64) { interrupts::disable() }
    tlbkit_order_enable(_none: u64) { interrupts::enable() }
    tlbkit_order_enable_and_halt(_none: u64) { interrupts::enable_and_halt() }
    tlbkit_order_send_x2apic(id: u32) { Apic::Registers.send(Destination::One(id), 0xf1) }
}

/// The same with an instruction that is declared not to touch memory: what the wrappers must not be.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn tlbkit_order_of_no_memory(word: *mut u64) -> u64 {
    // SAFETY: no test calls it.
    unsafe {
        *word = STORED[0];
        std::arch::asm!("pause", options(nomem, nostack, preserves_flags));
        let seen = *word;
        *word = STORED[1];
        seen
    }
}

/// The counterexample.
pub(crate) fn order_of_no_memory() -> Probe {
    ("tlbkit_order_of_no_memory", tlbkit_order_of_no_memory as *const () as usize)
}
