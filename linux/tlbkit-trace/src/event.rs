//! One event of a trace, whatever file it came from: when, on which CPU, in which thread, and what.

use crate::names::{Code, Name, StackId};

/// One thing that the kernel recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// CPU that recorded it.
    pub cpu: u32,
    /// Process (Linux: thread group) of the current thread; -1 once it is gone.
    pub pid: i32,
    /// Current thread; 0 is the idle thread of any CPU.
    pub tid: i32,
    /// Name of the current thread.
    pub comm: Name,
    /// Who called, if the recording has stacks.
    pub stack: Option<StackId>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// Translations were dropped, kept over a switch, or asked to be dropped elsewhere.
    TlbFlush {
        /// Why and where.
        reason: FlushReason,
        /// How many translations.
        size: FlushSize,
    },
    /// A CPU turned to another thread.
    Switch {
        /// Thread that leaves.
        prev: i32,
        /// Name of the thread that leaves.
        prev_comm: Name,
        /// It would run on: it was preempted or yielded, rather than blocked.
        prev_is_runnable: bool,
        /// Thread that comes.
        next: i32,
        /// Name of the thread that comes.
        next_comm: Name,
    },
    /// A thread or process was made.
    Fork {
        /// Thread that asked.
        parent: i32,
        /// The new thread.
        child: i32,
        /// Name of the new thread.
        child_comm: Name,
    },
    /// A process got a new program, and so a new address space.
    Exec {
        /// The program's file.
        path: Name,
        /// Thread after the call.
        tid: i32,
        /// Thread that called; differs if it was not the leader.
        old_tid: i32,
    },
    /// A thread ended.
    Exit {
        /// The thread.
        tid: i32,
        /// Its process ended with it; unknown in old kernels, then false.
        is_last: bool,
    },
    /// A thread was moved to another CPU's queue.
    Migrate {
        /// The thread.
        tid: i32,
        /// CPU whose queue it leaves.
        from_cpu: u32,
        /// CPU whose queue it joins.
        to_cpu: u32,
    },
    /// A page fault.
    Fault {
        /// Whose access faulted.
        mode: FaultMode,
        /// Address that was accessed.
        address: u64,
        /// Instruction that accessed it.
        ip: Code,
        /// The processor's error code: 1 protection, 2 write, 4 user, 16 fetch.
        error_code: u32,
    },
    /// A system call begins.
    Enter {
        /// The system call.
        call: Syscall,
        /// Its arguments, as many as [`Syscall::arguments`] names; the rest 0.
        args: [u64; 5],
    },
    /// A system call ends; those of fork and its kin in parent and child.
    Leave {
        /// The system call.
        call: Syscall,
        /// What it returned.
        result: i64,
    },
    /// The handler of a function-call interrupt.
    CallInterrupt {
        /// Begins or ends.
        edge: Edge,
        /// Interrupt for one target or for several.
        fan: Fan,
    },
    /// An interrupt was sent to one CPU.
    IpiSend {
        /// CPU that is asked.
        cpu: u32,
        /// Who sent it.
        callsite: Code,
        /// What it runs.
        callback: Code,
    },
    /// One interrupt was sent to several CPUs.
    IpiSendMask {
        /// How many CPUs.
        targets: u32,
        /// Who sent it.
        callsite: Code,
        /// What it runs.
        callback: Code,
    },
    /// A function was queued for another CPU.
    CallQueue {
        /// CPU that is asked.
        cpu: u32,
        /// Who queued it.
        callsite: Code,
        /// The function.
        func: Code,
        /// Address of the request.
        csd: u64,
    },
    /// A function that was called across CPUs runs here.
    CallRun {
        /// Begins or ends.
        edge: Edge,
        /// The function.
        func: Code,
        /// Address of the request; 0 where the sender runs its own half.
        csd: u64,
    },
    /// A part of the process's memory was mapped, grew, or was there when the recording began: told by the recorder.
    Map {
        /// Where it begins.
        address: u64,
        /// How long it is, with what it grew together with.
        bytes: u64,
        /// Where in the file it begins, in bytes.
        offset: u64,
        /// What is allowed, with Linux's bits: 1 read, 2 write, 4 execute. 0 where an old recorder does not tell.
        protection: u32,
        /// The file, or what Linux calls it: `//anon`, `[heap]`, `[stack]`.
        file: Name,
    },
    /// The recorder had no room for so many events, at some time before this.
    Lost {
        /// How many events.
        count: u64,
    },
}

/// Why translations were dropped, with Linux's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FlushReason {
    /// A switch to a space; 0 pages: what its tag held was kept.
    TaskSwitch,
    /// Another CPU asked.
    RemoteShootdown,
    /// This CPU, without others (kernels before 6).
    LocalShootdown,
    /// The half of a flush that its sender does itself.
    LocalMmShootdown,
    /// Others were asked by interrupt.
    RemoteSendIpi,
    /// Another CPU asked, but the space is not loaded here.
    RemoteWrongCpu,
}

impl FlushReason {
    /// All of them, in order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::TaskSwitch,
        Self::RemoteShootdown,
        Self::LocalShootdown,
        Self::LocalMmShootdown,
        Self::RemoteSendIpi,
        Self::RemoteWrongCpu,
    ];

    /// Short name for tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::TaskSwitch => "task switch",
            Self::RemoteShootdown => "remote shootdown",
            Self::LocalShootdown => "local shootdown",
            Self::LocalMmShootdown => "local mm shootdown",
            Self::RemoteSendIpi => "remote IPI send",
            Self::RemoteWrongCpu => "remote wrong CPU",
        }
    }
}

/// How much was dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FlushSize {
    /// So many pages; 0: nothing was left to do.
    Pages(u64),
    /// Everything that the space holds.
    All,
}

/// Whose access faulted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FaultMode {
    /// The program's own.
    User,
    /// The kernel's, on behalf of the program.
    Kernel,
}

/// Begin or end of what has a length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Edge {
    /// It begins.
    Begin,
    /// It ends.
    End,
}

/// How many CPUs an interrupt was meant for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Fan {
    /// One.
    Single,
    /// Several.
    Many,
}

/// The system calls that make, change or end address spaces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "they are the system calls of these names")]
pub enum Syscall {
    Mmap,
    Munmap,
    Mprotect,
    Madvise,
    Brk,
    Mremap,
    Clone,
    Clone3,
    Vfork,
    Execve,
    ExitGroup,
}

impl Syscall {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Mmap,
        Self::Munmap,
        Self::Mprotect,
        Self::Madvise,
        Self::Brk,
        Self::Mremap,
        Self::Clone,
        Self::Clone3,
        Self::Vfork,
        Self::Execve,
        Self::ExitGroup,
    ];

    /// Linux's name.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Mmap => "mmap",
            Self::Munmap => "munmap",
            Self::Mprotect => "mprotect",
            Self::Madvise => "madvise",
            Self::Brk => "brk",
            Self::Mremap => "mremap",
            Self::Clone => "clone",
            Self::Clone3 => "clone3",
            Self::Vfork => "vfork",
            Self::Execve => "execve",
            Self::ExitGroup => "exit_group",
        }
    }

    /// The arguments that [`EventKind::Enter`] carries, by Linux's names and in this order.
    #[must_use]
    pub const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Mmap => &["addr", "len", "prot", "flags", "fd"],
            Self::Munmap => &["addr", "len"],
            Self::Mprotect => &["start", "len", "prot"],
            Self::Madvise => &["start", "len_in", "behavior"],
            Self::Brk => &["brk"],
            Self::Mremap => &["addr", "old_len", "new_len", "flags", "new_addr"],
            Self::Clone => &["clone_flags"],
            Self::Clone3 => &["uargs", "size"],
            Self::Vfork => &[],
            Self::Execve => &["filename"],
            Self::ExitGroup => &["error_code"],
        }
    }
}
