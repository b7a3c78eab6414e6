//! What a trap finds: the registers as `gates.s` stores them, for the kernel's own traps and for its monitor's; and the
//! table that leads there.

/// The selector of the kernel's code.
pub(super) const KERNEL_CODE: u16 = 0x08;
/// The interrupt that no flag holds up.
pub(crate) const NON_MASKABLE: u64 = 2;
/// The exception of an instruction that does not exist.
pub(crate) const INVALID_OPCODE: u64 = 6;
/// The exception of an operand that may not be.
pub(crate) const GENERAL_PROTECTION: u64 = 13;
/// The exception of a translation that does not exist or does not allow the access.
pub(crate) const PAGE_FAULT: u64 = 14;
/// In the error code of a page fault: there is a translation.
pub(crate) const FAULT_PRESENT: u64 = 1;
/// In the error code of a page fault: the access was a store.
pub(crate) const FAULT_WRITE: u64 = 1 << 1;
/// In the error code of a page fault: the access came from ring 3.
pub(crate) const FAULT_USER: u64 = 1 << 2;
/// In the error code of a page fault: an entry has a bit that must be 0.
pub(crate) const FAULT_RESERVED_BIT: u64 = 1 << 3;
/// Number of the stack pointer.
pub(crate) const RSP: usize = 4;

/// What the CPU and the gate have stored, lowest address first.
#[repr(C)]
pub(crate) struct Frame {
    /// By number; that of the stack pointer is in `rsp`.
    registers: [u64; 16],
    pub(crate) vector: u64,
    pub(crate) error: u64,
    pub(crate) rip: u64,
    pub(crate) cs: u64,
    pub(crate) flags: u64,
    pub(crate) rsp: u64,
    pub(crate) ss: u64,
}

impl Frame {
    pub(crate) fn get(&self, register: usize) -> u64 {
        if register == RSP { self.rsp } else { self.registers[register] }
    }

    pub(crate) fn set(&mut self, register: usize, value: u64) {
        if register == RSP { self.rsp = value } else { self.registers[register] = value }
    }

    pub(crate) const fn is_from_user(&self) -> bool {
        self.cs & 3 == 3
    }
}

/// One gate: 16 bytes, as two words.
type Gate = [u64; 2];
/// One for each vector.
pub(crate) type Gates = [Gate; 256];

/// Interrupt gates to handlers that lie 16 bytes apart from `first` on, each with its entry of the table of stacks.
pub(crate) fn gates_at(first: u64, stack_of: impl Fn(usize) -> u64) -> Gates {
    let mut gates = [[0; 2]; 256];
    for (vector, gate) in gates.iter_mut().enumerate() {
        let at = first + 16 * vector as u64;
        let present_interrupt_gate = 0x8e00;
        gate[0] = at & 0xffff
            | u64::from(KERNEL_CODE) << 16
            | stack_of(vector) << 32
            | (present_interrupt_gate >> 8) << 40
            | (at >> 16 & 0xffff) << 48;
        gate[1] = at >> 32;
    }
    gates
}
