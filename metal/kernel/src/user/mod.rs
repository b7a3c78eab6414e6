//! What runs in ring 3: the programs of `tlbkit-workloads`, and [`Os`] as system calls.
//!
//! Loads and stores are real ones. What the kernel need not be asked stands in one page that programs may write.

mod program;
pub(crate) mod race;
pub(crate) mod shared;

use core::arch::asm;

use tlbkit_workloads::Task;

use program::Program;

/// System calls, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Call {
    Map,
    Unmap,
    Protect,
    DontNeed,
    Fork,
    Thread,
    Exec,
    Join,
    Pin,
    Wait,
    Post,
    Yield,
    ReadFile,
    WrongValue,
    End,
}

impl Call {
    const ALL: [Self; 15] = [
        Self::Map,
        Self::Unmap,
        Self::Protect,
        Self::DontNeed,
        Self::Fork,
        Self::Thread,
        Self::Exec,
        Self::Join,
        Self::Pin,
        Self::Wait,
        Self::Post,
        Self::Yield,
        Self::ReadFile,
        Self::WrongValue,
        Self::End,
    ];

    /// The call of that number.
    pub(crate) fn of_number(number: u64) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

/// What a program is started with.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Start {
    pub(crate) program: Task,
    pub(crate) seed: u64,
}

/// Scrambles 64 bits, as the simulator does: the same run has the same random numbers on both machines.
pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// Where the random numbers of the run's task `number` begin.
pub(crate) const fn seed(of_run: u64, number: u64) -> u64 {
    mix(of_run ^ mix(number + 1))
}

/// The first instruction in ring 3.
pub(crate) extern "C" fn main(start: &Start) -> ! {
    let program = Program::new(start.program.workload, start.seed);
    if start.program.part.role & race::ROLE == 0 {
        start.program.run(&program);
    } else {
        race::run(start.program, &program);
    }
    call(Call::End, 0, 0, 0);
    unreachable!("a task that has ended goes on")
}

/// Asks the kernel.
fn call(call: Call, first: u64, second: u64, third: u64) -> u64 {
    let result;
    // SAFETY: the kernel keeps what the calling convention keeps, and this stack.
    unsafe {
        asm!("syscall", in("rdi") call as u64, in("rsi") first, in("rdx") second, in("r10") third,
            lateout("rax") result, clobber_abi("sysv64"));
    }
    result
}
