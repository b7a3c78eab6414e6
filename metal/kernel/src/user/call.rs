//! The system calls, and how a program makes one.

use core::arch::asm;

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
    LimitFilePages,
    WrongValue,
    End,
}

impl Call {
    const ALL: [Self; 16] = [
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
        Self::LimitFilePages,
        Self::WrongValue,
        Self::End,
    ];

    /// The call of that number.
    pub(crate) fn of_number(number: u64) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

/// Makes a system call.
pub(super) fn call(call: Call, first: u64, second: u64, third: u64) -> u64 {
    let result;
    // SAFETY: the kernel keeps what the calling convention keeps, and this stack.
    unsafe {
        asm!("syscall", in("rdi") call as u64, in("rsi") first, in("rdx") second, in("r10") third,
            lateout("rax") result, clobber_abi("sysv64"));
    }
    result
}
