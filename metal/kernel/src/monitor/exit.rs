//! What the monitor does about each trap out of the guest.

use core::hint::spin_loop;

use tlbkit_x86::{read_cr2, read_msr, write_msr};

use super::control::Refused;
use super::decode::{Instruction, RAX, RCX, RDX, decode};
use super::shadow::Shadow;
use super::state::{Core, Ring, core_of_this_cpu};
use super::walk::Asker;
use crate::arch::gates::{FAULT_WRITE, Frame, GENERAL_PROTECTION, INVALID_OPCODE, NON_MASKABLE, PAGE_FAULT};
use crate::report;

/// The selectors of ring 3.
pub(super) const CODE: u64 = 0x2b;
pub(super) const DATA: u64 = 0x23;

const FIRST_INTERRUPT: u64 = 32;
/// The x2APIC's registers, which the guest may have.
const APIC_MSRS: core::ops::RangeInclusive<u64> = 0x800..=0x8ff;
/// How often a trap ends in PAUSE, where emulators that run CPUs in turns go on to the next: the seed varies who is
/// overtaken between which instructions.
const ONE_OF: u64 = 8;
/// Turns of a CPU that has nothing to do.
const HALT_TURNS: u32 = 100;

/// Every trap out of the guest, interrupts off.
pub(super) extern "C" fn on_exit(frame: &mut Frame) {
    if frame.cs != CODE {
        if frame.vector == NON_MASKABLE {
            return; // the monitor looks what is asked before it goes back to its guest
        }
        stop(frame, "a trap of the monitor itself");
    }
    // SAFETY: ring 0, out of ring 3, once.
    let core = unsafe { core_of_this_cpu() };
    match frame.vector {
        PAGE_FAULT => core.page_fault(frame),
        INVALID_OPCODE | GENERAL_PROTECTION => core.instruction(frame),
        NON_MASKABLE => {}
        vector if vector >= FIRST_INTERRUPT => core.deliver(frame, vector, 0),
        _ => stop(frame, "a trap that no guest should cause"),
    }
    core.speculate(core.monitor.guesses);
    if core.random.bits().is_multiple_of(ONE_OF) {
        spin_loop();
    }
    core.preempt_at_random();
    core.do_asked();
}

fn stop(frame: &Frame, what: &str) -> ! {
    report::failure(&format_args!(
        "{what}: vector {}, error {:#x}, at {:#x}, selector {:#x}, flags {:#x}",
        frame.vector, frame.error, frame.rip, frame.cs, frame.flags
    ))
}

impl Core {
    fn page_fault(&mut self, frame: &mut Frame) {
        // SAFETY: ring 0.
        let va = unsafe { read_cr2() };
        if !Shadow::has(va) {
            report::failure(&format_args!("an access to {va:#x} at {:#x}, where nothing is", frame.rip));
        }
        let asker = if frame.error & FAULT_WRITE != 0 { Asker::Store(self.ring) } else { Asker::Load(self.ring) };
        match self.translate(va, asker) {
            Ok(entry) => self.shadow.map(va, &entry),
            Err(error) => {
                self.cr2 = va;
                // What the hardware holds of the page comes from the entry that was just dropped.
                self.shadow.empty();
                self.deliver(frame, PAGE_FAULT, error);
            }
        }
    }

    fn instruction(&mut self, frame: &mut Frame) {
        let Some((instruction, next)) = decode(frame) else { stop(frame, "an instruction that nobody knows") };
        if instruction == Instruction::Syscall && self.ring == Ring::Program {
            return self.syscall(frame, next);
        }
        if self.ring == Ring::Program {
            stop(frame, "a program uses an instruction of its kernel");
        }
        match instruction {
            Instruction::Sysret => self.sysret(frame),
            Instruction::Iret => self.iret(frame),
            _ => match self.execute(frame, instruction) {
                Ok(()) => frame.rip = next,
                Err(Refused::Opcode) => self.deliver(frame, INVALID_OPCODE, 0),
                Err(Refused::Protection) => self.deliver(frame, GENERAL_PROTECTION, 0),
            },
        }
    }

    fn execute(&mut self, frame: &mut Frame, instruction: Instruction) -> Result<(), Refused> {
        match instruction {
            Instruction::WriteControl { control: 3, from } => return self.write_cr3(frame.get(from)),
            Instruction::WriteControl { control: 4, from } => return self.write_cr4(frame.get(from)),
            Instruction::Invlpg(va) => return self.invlpg(va),
            Instruction::Invpcid { kind, operand } => {
                // SAFETY: the guest's operand, on its stack.
                let operand = unsafe { *(operand as *const [u64; 2]) };
                return self.invpcid(frame.get(kind), operand);
            }
            Instruction::Invlpgb => {
                return self.invlpgb(frame.get(RAX), frame.get(RCX) as u32, frame.get(RDX) as u32);
            }
            Instruction::Tlbsync => return self.tlbsync(),
            Instruction::ReadControl { control, to } => frame.set(to, self.read_control(control)?),
            Instruction::Halt => (0..HALT_TURNS).for_each(|_| spin_loop()),
            Instruction::ReadMsr if APIC_MSRS.contains(&frame.get(RCX)) => {
                // SAFETY: ring 0; a register of the APIC that the guest has enabled.
                let value = unsafe { read_msr(frame.get(RCX) as u32) };
                frame.set(RAX, value & u64::from(u32::MAX));
                frame.set(RDX, value >> 32);
            }
            Instruction::WriteMsr if APIC_MSRS.contains(&frame.get(RCX)) => {
                let value = frame.get(RDX) << 32 | frame.get(RAX) & u64::from(u32::MAX);
                // SAFETY: as above; the monitor has no interrupts of its own to confuse with the guest's.
                unsafe { write_msr(frame.get(RCX) as u32, value) }
            }
            _ => return Err(Refused::Protection),
        }
        Ok(())
    }

    fn read_control(&self, control: usize) -> Result<u64, Refused> {
        match control {
            0 => Ok(x86_64::registers::control::Cr0::read_raw()),
            2 => Ok(self.cr2),
            3 => Ok(self.cr3.0),
            4 => Ok(self.cr4),
            _ => Err(Refused::Opcode),
        }
    }
}
