//! The instructions that trap, as bytes: those that `tlbkit-x86` and the kernel use, and no others.

use crate::arch::gates::{Frame, RSP};

pub(super) const RAX: usize = 0;
pub(super) const RCX: usize = 1;
pub(super) const RDX: usize = 2;
pub(super) const R11: usize = 11;
const RBP: usize = 5;

/// An instruction that traps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Instruction {
    /// MOV to control register `control`.
    WriteControl { control: usize, from: usize },
    /// MOV from control register `control`.
    ReadControl { control: usize, to: usize },
    /// INVLPG of this address.
    Invlpg(u64),
    /// INVPCID of the type in this register, with its operand at this address.
    Invpcid { kind: usize, operand: u64 },
    /// INVLPGB.
    Invlpgb,
    /// TLBSYNC.
    Tlbsync,
    /// RDMSR.
    ReadMsr,
    /// WRMSR.
    WriteMsr,
    /// HLT.
    Halt,
    /// SYSCALL.
    Syscall,
    /// SYSRET.
    Sysret,
    /// IRET.
    Iret,
}

/// Reads bytes one after another.
struct Reader<'f> {
    frame: &'f Frame,
    at: u64,
    /// The prefix that widens operands and registers.
    rex: u8,
}

/// The instruction that trapped, and where the next one begins; nothing if it is none of them.
pub(super) fn decode(frame: &Frame) -> Option<(Instruction, u64)> {
    let mut reader = Reader { frame, at: frame.rip, rex: 0 };
    let instruction = reader.instruction()?;
    Some((instruction, reader.at))
}

impl Reader<'_> {
    fn peek(&self) -> u8 {
        // SAFETY: the guest's code is the image's, which is mapped.
        unsafe { (self.at as *const u8).read() }
    }

    fn byte(&mut self) -> u8 {
        let byte = self.peek();
        self.at += 1;
        byte
    }

    fn of_three_bytes(&mut self, instruction: Instruction) -> Option<Instruction> {
        self.at += 1;
        Some(instruction)
    }

    fn instruction(&mut self) -> Option<Instruction> {
        let mut byte = self.byte();
        let has_size_prefix = byte == 0x66;
        if has_size_prefix {
            byte = self.byte();
        }
        if byte & 0xf0 == 0x40 {
            self.rex = byte;
            byte = self.byte();
        }
        match byte {
            0xf4 => Some(Instruction::Halt),
            0xcf => Some(Instruction::Iret),
            0x0f => match self.byte() {
                0x05 => Some(Instruction::Syscall),
                0x07 => Some(Instruction::Sysret),
                0x30 => Some(Instruction::WriteMsr),
                0x32 => Some(Instruction::ReadMsr),
                0x20 => self.registers(|control, to| Instruction::ReadControl { control, to }),
                0x22 => self.registers(|control, from| Instruction::WriteControl { control, from }),
                0x01 => match self.peek() {
                    0xfe => self.of_three_bytes(Instruction::Invlpgb),
                    0xff => self.of_three_bytes(Instruction::Tlbsync),
                    _ => self.memory(|kind, address| (kind & 7 == 7).then_some(Instruction::Invlpg(address))),
                },
                0x38 if has_size_prefix && self.byte() == 0x82 => {
                    self.memory(|kind, operand| Some(Instruction::Invpcid { kind, operand }))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The two fields of three bits, each with its bit of the prefix.
    fn fields(&mut self) -> (u8, usize, usize) {
        let byte = self.byte();
        let reg = usize::from(byte >> 3 & 7 | (self.rex & 4) << 1);
        let rm = usize::from(byte & 7 | (self.rex & 1) << 3);
        (byte >> 6, reg, rm)
    }

    fn registers(&mut self, make: impl Fn(usize, usize) -> Instruction) -> Option<Instruction> {
        let (_, reg, rm) = self.fields();
        Some(make(reg, rm))
    }

    /// An operand in memory: base, index and displacement, but nothing relative to the instruction.
    fn memory(&mut self, make: impl Fn(usize, u64) -> Option<Instruction>) -> Option<Instruction> {
        let (mode, reg, rm) = self.fields();
        if mode == 3 || mode == 0 && rm & 7 == RBP {
            return None;
        }
        let base = if rm & 7 == RSP { self.scaled()? } else { self.frame.get(rm) };
        let displacement = match mode {
            1 => i64::from(self.byte().cast_signed()),
            2 => i64::from(i32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])),
            _ => 0,
        };
        make(reg, base.wrapping_add_signed(displacement))
    }

    fn scaled(&mut self) -> Option<u64> {
        let index_bit = (self.rex & 2) << 2;
        let byte = self.byte();
        let base = usize::from(byte & 7 | (self.rex & 1) << 3);
        let index = usize::from(byte >> 3 & 7 | index_bit);
        let offset = if index == RSP { 0 } else { self.frame.get(index) << (byte >> 6) };
        (base & 7 != RBP).then(|| self.frame.get(base).wrapping_add(offset))
    }
}
