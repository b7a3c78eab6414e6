//! One event of a trace, in the same form for all kinds of files: its time, its CPU, its thread, and what happened.

use crate::names::{Code, Name, StackId};

/// A flush that comes at most this long after a user fault of the same thread, in nanoseconds, is taken to be caused by
/// the fault, where no stack tells better.
pub(crate) const FAULT_WINDOW_NS: u64 = 50_000;
/// The most threads that are followed. If there are more, all are forgotten and learned anew.
pub(crate) const MAX_THREADS: usize = 1 << 18;

/// One thing that the kernel recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Time of the event, in nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// Number of the CPU on which it happened.
    pub cpu: u32,
    /// Number of the process (in Linux: the thread group) that the current thread belongs to; -1 once the thread has
    /// ended.
    pub pid: i32,
    /// Number of the thread that was current on the CPU; 0 for the idle thread of any CPU.
    pub tid: i32,
    /// Name of the current thread, Linux's `comm`.
    pub comm: Name,
    /// The call stack, if the recording has stacks.
    pub stack: Option<StackId>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A CPU dropped translations, kept them over a switch, or asked other CPUs to drop them.
    TlbFlush {
        /// Why, and on whose behalf.
        reason: FlushReason,
        /// How many pages were meant.
        size: FlushSize,
    },
    /// A CPU switched from one thread to another.
    Switch {
        /// Number of the thread that leaves the CPU.
        prev: i32,
        /// Name of the thread that leaves.
        prev_comm: Name,
        /// True if the thread that leaves could run on: it was preempted or yielded. False if it sleeps or has ended.
        prev_is_runnable: bool,
        /// Number of the thread that comes.
        next: i32,
        /// Name of the thread that comes.
        next_comm: Name,
    },
    /// A thread or a process was created.
    Fork {
        /// Number of the thread that asked for it.
        parent: i32,
        /// Number of the new thread.
        child: i32,
        /// Name of the new thread.
        child_comm: Name,
    },
    /// A process executed another program, and so has a new address space.
    Exec {
        /// Path of the program's file.
        path: Name,
        /// Number of the thread after the call.
        tid: i32,
        /// Number that the thread had before the call. It differs if the thread was not the leader of its process.
        old_tid: i32,
    },
    /// A thread ended.
    Exit {
        /// Number of the thread.
        tid: i32,
        /// True if it was the last thread of its process. Old kernels do not record this; then it is false.
        is_last: bool,
    },
    /// A thread was moved to another CPU's queue.
    Migrate {
        /// Number of the thread.
        tid: i32,
        /// Number of the CPU whose queue it leaves.
        from_cpu: u32,
        /// Number of the CPU whose queue it joins.
        to_cpu: u32,
    },
    /// A page fault.
    Fault {
        /// In which mode the access was made.
        mode: FaultMode,
        /// Address whose access faulted.
        address: u64,
        /// Instruction that made the access.
        ip: Code,
        /// The processor's error code, a sum of bits: 1 the page was present, 2 write, 4 user mode, 16 instruction
        /// fetch.
        error_code: u32,
    },
    /// A system call begins.
    Enter {
        /// The system call.
        call: Syscall,
        /// Its arguments, as its row of `tracepoint.rs` lists them; those beyond its last one are 0.
        args: [u64; 5],
    },
    /// A system call ends. One that creates a process ends twice: in the parent and in the child.
    Leave {
        /// The system call.
        call: Syscall,
        /// What it returned: a negative number of an error, or a value.
        result: i64,
    },
    /// The handler of a function-call interrupt begins or ends.
    CallInterrupt {
        /// Which of both.
        edge: Edge,
        /// Which of Linux's two function-call interrupts it was.
        fan: Fan,
    },
    /// An interrupt was sent to one CPU.
    IpiSend {
        /// Number of the CPU that the interrupt is sent to.
        cpu: u32,
        /// Function of the kernel that sent the interrupt.
        callsite: Code,
        /// Function that the target runs.
        callback: Code,
    },
    /// One interrupt was sent to several CPUs.
    IpiSendMask {
        /// To how many CPUs.
        targets: u32,
        /// Function of the kernel that sent the interrupt.
        callsite: Code,
        /// Function that the targets run.
        callback: Code,
    },
    /// A function was queued for another CPU.
    CallQueue {
        /// Number of the CPU that is to run the function.
        cpu: u32,
        /// Function of the kernel that queued it.
        callsite: Code,
        /// The function that was queued.
        func: Code,
        /// Address of the request (Linux's `call_single_data`), by which its run is found again.
        csd: u64,
    },
    /// A function that was called across CPUs begins or ends on this CPU.
    CallRun {
        /// Which of both.
        edge: Edge,
        /// The function.
        func: Code,
        /// Address of the request; 0 where the sender runs the function on its own CPU.
        csd: u64,
    },
    /// The recorder tells of a mapping of the process: it is new, has grown, or was there when the recording began.
    Map {
        /// Address at which the mapping begins.
        address: u64,
        /// Its length in bytes. Linux merges neighbours, and then this is the length of the merged mapping.
        bytes: u64,
        /// Offset in the file at which it begins, in bytes.
        offset: u64,
        /// Which accesses are allowed, a sum of bits: 1 read, 2 write, 4 execute. 0 if the recorder is too old to tell.
        protection: u32,
        /// Path of the file, or Linux's name for memory without a file: `//anon`, `[heap]` or `[stack]`.
        file: Name,
    },
    /// What the thread was doing when the CPU's time was sampled. The event's stack has the kernel's functions alone,
    /// and there is none while the program's own code runs.
    Sample {
        /// The instruction that came next.
        ip: Code,
    },
    /// The recorder lost events because its buffer was full, at some time before this event.
    Lost {
        /// How many events were lost.
        count: u64,
    },
}

/// Why translations were dropped. The order is that of Linux's `enum tlb_flush_reason`, so the discriminants are its
/// numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FlushReason {
    /// A switch to another address space. A size of 0 pages means that the entries of its tag were kept.
    TaskSwitch,
    /// Another CPU asked for the flush.
    RemoteShootdown,
    /// This CPU flushed for itself and asked nobody, as kernels before 6 record it.
    LocalShootdown,
    /// The initiator's own part of a flush of an address space.
    LocalMmShootdown,
    /// The initiator sent interrupts that ask others to flush.
    RemoteSendIpi,
    /// Another CPU asked for a flush of a space that is not loaded on this CPU.
    RemoteWrongCpu,
}

impl FlushReason {
    /// All reasons, in order of Linux's numbers.
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

/// How much a flush drops.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FlushSize {
    /// The number of pages that are invalidated one by one; 0 if the flush had nothing left to do.
    Pages(u64),
    /// All entries of the space.
    All,
}

/// In which mode of the processor an access faulted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FaultMode {
    /// In user mode, by the program itself.
    User,
    /// In kernel mode, on behalf of the program.
    Kernel,
}

/// Whether an event tells of the begin or of the end of something that lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Edge {
    /// It begins.
    Begin,
    /// It ends.
    End,
}

/// Which of Linux's two function-call interrupts was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Fan {
    /// The one for a single CPU.
    Single,
    /// The one for several CPUs at once.
    Many,
}

/// The system calls that create, change or end address spaces, or take pages of files away from them.
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
    Ftruncate,
    Truncate,
    Fallocate,
    PkeyMprotect,
    ProcessMadvise,
    Shmdt,
    Msync,
    Fsync,
    Fdatasync,
    Mbind,
    MovePages,
}

impl Syscall {
    /// All of these system calls, in the order of their declaration.
    pub const ALL: [Self; 22] = [
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
        Self::Ftruncate,
        Self::Truncate,
        Self::Fallocate,
        Self::PkeyMprotect,
        Self::ProcessMadvise,
        Self::Shmdt,
        Self::Msync,
        Self::Fsync,
        Self::Fdatasync,
        Self::Mbind,
        Self::MovePages,
    ];

    /// Linux's name of the system call.
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
            Self::Ftruncate => "ftruncate",
            Self::Truncate => "truncate",
            Self::Fallocate => "fallocate",
            Self::PkeyMprotect => "pkey_mprotect",
            Self::ProcessMadvise => "process_madvise",
            Self::Shmdt => "shmdt",
            Self::Msync => "msync",
            Self::Fsync => "fsync",
            Self::Fdatasync => "fdatasync",
            Self::Mbind => "mbind",
            Self::MovePages => "move_pages",
        }
    }
}
