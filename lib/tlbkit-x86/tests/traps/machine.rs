//! A CPU of two registers behind the signal handler.

use std::sync::{Mutex, MutexGuard, Once};

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use libc::{c_int, c_void, siginfo_t, ucontext_t};
use tlbkit_x86::{CR4_PCIDE, CR4_PGE};

const ZERO_FLAG: i64 = 1 << 6;

/// What its microcode says of itself.
pub(crate) const MICROCODE: u32 = 0x118;

/// What an instruction did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Did {
    /// INVLPG of this address.
    Invlpg(u64),
    /// INVPCID: type, and the two words of its descriptor.
    Invpcid([u64; 3]),
    /// A CR3 write.
    Cr3(u64),
    /// A CR4 write.
    Cr4(u64),
    /// INVLPGB and its registers.
    Invlpgb { rax: u64, ecx: u32, edx: u32 },
    /// TLBSYNC.
    Tlbsync,
    /// WRMSR: register, value.
    Msr(u32, u64),
    /// RDMSR of this register.
    ReadMsr(u32),
    /// Interrupts off.
    Cli,
    /// Interrupts on.
    Sti,
    /// A load from the device's page: offset.
    Load(u64),
    /// A store to it: offset, value.
    Store(u64, u32),
    /// What a CPU would have refused.
    Fault(&'static str),
}

struct Machine {
    cr3: u64,
    cr4: u64,
    done: Vec<Did>,
    /// Address of the word to be noted at each trap.
    watched: usize,
    seen: Vec<u64>,
    device: Device,
}

/// A page of registers that traps at each access, as an interrupt controller is one.
#[derive(Clone, Copy)]
struct Device {
    start: u64,
    /// What loads give, one after the other; after that they give 0.
    loads: [u32; 4],
}

const PAGE_BYTES: u64 = 4096;
const NO_DEVICE: Device = Device { start: 0, loads: [0; 4] };

static MACHINE: Mutex<Machine> =
    Mutex::new(Machine { cr3: 0, cr4: 0, done: Vec::new(), watched: 0, seen: Vec::new(), device: NO_DEVICE });
/// One test at a time.
static TURN: Mutex<()> = Mutex::new(());

fn machine() -> MutexGuard<'static, Machine> {
    MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs `body` on a CPU that starts with these registers, and returns what it did.
pub(crate) fn trace(cr3: u64, cr4: u64, body: impl FnOnce()) -> Vec<Did> {
    run(cr3, cr4, std::ptr::null(), NO_DEVICE, body).0
}

/// Runs `body` with a page of registers, of which loads give `loads`, and returns what it did.
pub(crate) fn with_device(loads: [u32; 4], body: impl FnOnce(*mut u32)) -> Vec<Did> {
    let (bytes, private) = (PAGE_BYTES as usize, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new page that nothing lies in.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, private, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    let device = Device { start: page as u64, loads };
    let done = run(0, 0, std::ptr::null(), device, || body(page.cast())).0;
    // SAFETY: the page from above, of which nothing is left.
    assert_eq!(unsafe { libc::munmap(page, bytes) }, 0);
    done
}

/// Runs `body` and returns what `word` held at each trap.
pub(crate) fn watching(word: *const u64, body: impl FnOnce()) -> Vec<u64> {
    run(0, CR4_PGE | CR4_PCIDE, word, NO_DEVICE, body).1
}

fn run(cr3: u64, cr4: u64, word: *const u64, device: Device, body: impl FnOnce()) -> (Vec<Did>, Vec<u64>) {
    static HANDLERS: Once = Once::new();
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    HANDLERS.call_once(install);
    // Room beforehand: the handler must not allocate.
    let (done, seen) = (Vec::with_capacity(1024), Vec::with_capacity(64));
    *machine() = Machine { cr3, cr4, done, watched: word as usize, seen, device };
    body();
    let mut machine = machine();
    (std::mem::take(&mut machine.done), std::mem::take(&mut machine.seen))
}

fn install() {
    // SAFETY: a zeroed action with a handler of the type that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        for signal in [libc::SIGSEGV, libc::SIGILL] {
            assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
        }
    }
}

extern "C" fn on_trap(signal: c_int, _info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands the interrupted context to a handler with SA_SIGINFO.
    let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    let at = registers[libc::REG_RIP as usize] as u64;
    // SAFETY: an instruction that has just trapped, and code behind it, lie there.
    let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, 15) };
    let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
    if machine().execute(&instruction, registers) {
        registers[libc::REG_RIP as usize] += instruction.len() as i64;
    } else {
        // Not ours: trap again, with the default action.
        // SAFETY: restores the default.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

type Registers = [i64; 23];

impl Machine {
    /// False if it is no instruction of this machine.
    fn execute(&mut self, it: &Instruction, registers: &mut Registers) -> bool {
        let rax = registers[libc::REG_RAX as usize] as u64;
        let (ecx, edx) = (registers[libc::REG_RCX as usize] as u32, registers[libc::REG_RDX as usize] as u32);
        let did = match it.mnemonic() {
            Mnemonic::Invlpg => Did::Invlpg(address(it, 0, registers)),
            Mnemonic::Invpcid => {
                let at = address(it, 1, registers) as *const u64;
                // SAFETY: the descriptor that the instruction names.
                let (pcid, va) = unsafe { (at.read(), at.add(1).read()) };
                Did::Invpcid([value(it.op0_register(), registers), pcid, va])
            }
            Mnemonic::Invlpgb => Did::Invlpgb { rax, ecx, edx },
            Mnemonic::Tlbsync => Did::Tlbsync,
            Mnemonic::Wrmsr => Did::Msr(ecx, u64::from(edx) << 32 | rax & 0xffff_ffff),
            Mnemonic::Rdmsr => read_msr(ecx, registers),
            Mnemonic::Cli => Did::Cli,
            Mnemonic::Sti => Did::Sti,
            Mnemonic::Mov => match self.move_control(it, registers) {
                Some(Some(did)) => did,
                Some(None) => return true,
                None => match self.device_access(it, registers) {
                    Some(did) => did,
                    None => return false,
                },
            },
            Mnemonic::Test => match self.device_access(it, registers) {
                Some(did) => did,
                None => return false,
            },
            _ => return false,
        };
        self.done.push(did);
        if self.watched != 0 {
            // SAFETY: a word of the test that is running.
            self.seen.push(unsafe { (self.watched as *const u64).read_volatile() });
        }
        true
    }

    /// `Some(None)` for a read, which changes nothing but a register.
    fn move_control(&mut self, it: &Instruction, registers: &mut Registers) -> Option<Option<Did>> {
        let (to, from) = (it.op0_register(), it.op1_register());
        match (to, from) {
            (Register::CR3, _) => Some(Some(self.write_cr3(value(from, registers)))),
            (Register::CR4, _) => Some(Some(self.write_cr4(value(from, registers)))),
            (_, Register::CR3) => Some(set(to, self.cr3, registers)),
            (_, Register::CR4) => Some(set(to, self.cr4, registers)),
            _ => None,
        }
    }

    /// A load or a store of 32 bits of the device, if it is one.
    fn device_access(&mut self, it: &Instruction, registers: &mut Registers) -> Option<Did> {
        let operand = (0..it.op_count()).find(|&n| it.op_kind(n) == OpKind::Memory)?;
        let offset = address(it, operand, registers).wrapping_sub(self.device.start);
        if self.device.start == 0 || offset >= PAGE_BYTES {
            return None;
        }
        match it.code() {
            Code::Mov_rm32_r32 => return Some(Did::Store(offset, value(it.op1_register(), registers) as u32)),
            Code::Mov_rm32_imm32 => return Some(Did::Store(offset, it.immediate32())),
            _ => {}
        }
        let loaded = self.device.loads[0];
        self.device.loads.rotate_left(1);
        self.device.loads[3] = 0;
        match it.code() {
            Code::Mov_r32_rm32 => registers[place(it.op0_register())] = loaded.into(),
            Code::Test_rm32_imm32 => {
                let is_zero = loaded & it.immediate32() == 0;
                let flags = &mut registers[libc::REG_EFL as usize];
                *flags = *flags & !ZERO_FLAG | if is_zero { ZERO_FLAG } else { 0 };
            }
            other => panic!("{other:?} is no access of a register of a device"),
        }
        Some(Did::Load(offset))
    }

    fn write_cr3(&mut self, value: u64) -> Did {
        if value >> 63 == 1 && self.cr4 & CR4_PCIDE == 0 {
            return Did::Fault("bit 63 without tags");
        }
        self.cr3 = value & !(1 << 63);
        Did::Cr3(value)
    }

    fn write_cr4(&mut self, value: u64) -> Did {
        if value & !self.cr4 & CR4_PCIDE != 0 && self.cr3 & 0xfff != 0 {
            return Did::Fault("tags switched on under another tag than 0");
        }
        self.cr4 = value;
        Did::Cr4(value)
    }
}

/// The address of a memory operand; an operand in memory that is none is a fault of the decoder's caller.
fn address(it: &Instruction, operand: u32, registers: &Registers) -> u64 {
    assert_eq!(it.op_kind(operand), OpKind::Memory);
    it.virtual_address(operand, 0, |register, _, _| {
        Some(if register.is_segment_register() { 0 } else { value(register, registers) })
    })
    .expect("every register is known")
}

/// The revision stands in the upper half, and the register's number in the lower one.
fn read_msr(register: u32, registers: &mut Registers) -> Did {
    (registers[libc::REG_RAX as usize], registers[libc::REG_RDX as usize]) = (register.into(), MICROCODE.into());
    Did::ReadMsr(register)
}

const GENERAL: [(Register, c_int); 16] = [
    (Register::RAX, libc::REG_RAX),
    (Register::RCX, libc::REG_RCX),
    (Register::RDX, libc::REG_RDX),
    (Register::RBX, libc::REG_RBX),
    (Register::RSP, libc::REG_RSP),
    (Register::RBP, libc::REG_RBP),
    (Register::RSI, libc::REG_RSI),
    (Register::RDI, libc::REG_RDI),
    (Register::R8, libc::REG_R8),
    (Register::R9, libc::REG_R9),
    (Register::R10, libc::REG_R10),
    (Register::R11, libc::REG_R11),
    (Register::R12, libc::REG_R12),
    (Register::R13, libc::REG_R13),
    (Register::R14, libc::REG_R14),
    (Register::R15, libc::REG_R15),
];

fn place(register: Register) -> usize {
    let found = GENERAL.iter().find(|(name, _)| *name == register.full_register());
    found.expect("a general register").1 as usize
}

fn value(register: Register, registers: &Registers) -> u64 {
    registers[place(register)] as u64
}

fn set(register: Register, value: u64, registers: &mut Registers) -> Option<Did> {
    registers[place(register)] = value as i64;
    None
}
