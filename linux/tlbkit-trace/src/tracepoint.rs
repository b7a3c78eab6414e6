//! The catalogue of tracepoints: which ones are read, which of their fields are used, and what these mean.
//!
//! All forms of traces meet here. A reader knows how a field is written down in its form: as bytes at an offset, as
//! text after a key, or as a column of differences. It hands over an array of numbers in the catalogue's order. Only
//! this file turns such an array into an [`EventKind`], and back.

use crate::event::{Edge, EventKind, Fan, FaultMode, FlushReason, FlushSize, Syscall};
use crate::names::{Code, Name};

/// The largest number of fields that are used of one tracepoint.
pub(crate) const MAX_FIELDS: usize = 5;

/// The fields of one event, in the catalogue's order. Those beyond the tracepoint's last field are 0.
pub(crate) type Fields = [u64; MAX_FIELDS];

/// What the number of a field stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FieldKind {
    /// A number. A negative one is sign-extended to 64 bits.
    Number,
    /// A text, by its number in [`Names`](crate::Names).
    Text,
    /// A place in code, as the word of a [`Code`].
    Code,
    /// A set of CPUs, of which only the size is used.
    CpuMask,
    /// The state in which a thread leaves its CPU: 1 if it could run on, 0 if not.
    Runnable,
}

/// A field: Linux's name of it, and what its number stands for.
pub(crate) type Field = (&'static str, FieldKind);

/// One tracepoint, and which of its fields are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    /// Its name as `perf record -e` takes it.
    pub(crate) event: &'static str,
    /// The fields, in the order in which Linux prints them.
    pub(crate) fields: &'static [Field],
}

use FieldKind::{Code as C, CpuMask, Number as N, Runnable, Text as T};

macro_rules! catalogue {
    ($($tag:ident $event:literal [$($name:literal $kind:expr),*]),+ $(,)?) => {
        /// A tracepoint that this library reads. Its number is part of the compact form, so new ones go to the end.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(crate) enum Tracepoint { $($tag),+ }

        const ALL: &[(Tracepoint, Spec)] =
            &[$((Tracepoint::$tag, Spec { event: $event, fields: &[$(($name, $kind)),*] })),+];

        const NAMES: &[&str] = &[$($event),+];
    };
}

catalogue! {
    TlbFlush "tlb:tlb_flush" ["pages" N, "reason" N],
    Switch "sched:sched_switch"
        ["prev_comm" T, "prev_pid" N, "prev_state" Runnable, "next_comm" T, "next_pid" N],
    Fork "sched:sched_process_fork" ["pid" N, "child_comm" T, "child_pid" N],
    Exec "sched:sched_process_exec" ["filename" T, "pid" N, "old_pid" N],
    Exit "sched:sched_process_exit" ["pid" N, "group_dead" N],
    Migrate "sched:sched_migrate_task" ["pid" N, "orig_cpu" N, "dest_cpu" N],
    FaultUser "exceptions:page_fault_user" ["address" N, "ip" C, "error_code" N],
    FaultKernel "exceptions:page_fault_kernel" ["address" N, "ip" C, "error_code" N],
    EnterMmap "syscalls:sys_enter_mmap" ["addr" N, "len" N, "prot" N, "flags" N, "fd" N],
    EnterMunmap "syscalls:sys_enter_munmap" ["addr" N, "len" N],
    EnterMprotect "syscalls:sys_enter_mprotect" ["start" N, "len" N, "prot" N],
    EnterMadvise "syscalls:sys_enter_madvise" ["start" N, "len_in" N, "behavior" N],
    EnterBrk "syscalls:sys_enter_brk" ["brk" N],
    EnterMremap "syscalls:sys_enter_mremap" ["addr" N, "old_len" N, "new_len" N, "flags" N, "new_addr" N],
    EnterClone "syscalls:sys_enter_clone" ["clone_flags" N],
    EnterClone3 "syscalls:sys_enter_clone3" ["uargs" N, "size" N],
    EnterVfork "syscalls:sys_enter_vfork" [],
    EnterExecve "syscalls:sys_enter_execve" ["filename" N],
    EnterExitGroup "syscalls:sys_enter_exit_group" ["error_code" N],
    LeaveMmap "syscalls:sys_exit_mmap" ["ret" N],
    LeaveMunmap "syscalls:sys_exit_munmap" ["ret" N],
    LeaveMprotect "syscalls:sys_exit_mprotect" ["ret" N],
    LeaveMadvise "syscalls:sys_exit_madvise" ["ret" N],
    LeaveBrk "syscalls:sys_exit_brk" ["ret" N],
    LeaveMremap "syscalls:sys_exit_mremap" ["ret" N],
    LeaveClone "syscalls:sys_exit_clone" ["ret" N],
    LeaveClone3 "syscalls:sys_exit_clone3" ["ret" N],
    LeaveVfork "syscalls:sys_exit_vfork" ["ret" N],
    LeaveExecve "syscalls:sys_exit_execve" ["ret" N],
    LeaveExitGroup "syscalls:sys_exit_exit_group" ["ret" N],
    SingleBegin "irq_vectors:call_function_single_entry" [],
    SingleEnd "irq_vectors:call_function_single_exit" [],
    ManyBegin "irq_vectors:call_function_entry" [],
    ManyEnd "irq_vectors:call_function_exit" [],
    IpiSend "ipi:ipi_send_cpu" ["cpu" N, "callsite" C, "callback" C],
    IpiSendMask "ipi:ipi_send_cpumask" ["cpumask" CpuMask, "callsite" C, "callback" C],
    CallQueue "csd:csd_queue_cpu" ["cpu" N, "callsite" C, "func" C, "csd" N],
    CallBegin "csd:csd_function_entry" ["func" C, "csd" N],
    CallEnd "csd:csd_function_exit" ["func" C, "csd" N],
    Map "PERF_RECORD_MMAP2" ["address" N, "bytes" N, "offset" N, "protection" N, "file" T],
    EnterFtruncate "syscalls:sys_enter_ftruncate" ["fd" N, "length" N],
    EnterTruncate "syscalls:sys_enter_truncate" ["path" N, "length" N],
    EnterFallocate "syscalls:sys_enter_fallocate" ["fd" N, "mode" N, "offset" N, "len" N],
    EnterPkeyMprotect "syscalls:sys_enter_pkey_mprotect" ["start" N, "len" N, "prot" N, "pkey" N],
    EnterProcessMadvise "syscalls:sys_enter_process_madvise" ["pidfd" N, "vec" N, "vlen" N, "behavior" N],
    EnterShmdt "syscalls:sys_enter_shmdt" ["shmaddr" N],
    EnterMsync "syscalls:sys_enter_msync" ["start" N, "len" N, "flags" N],
    EnterFsync "syscalls:sys_enter_fsync" ["fd" N],
    EnterFdatasync "syscalls:sys_enter_fdatasync" ["fd" N],
    EnterMbind "syscalls:sys_enter_mbind" ["start" N, "len" N, "mode" N],
    EnterMovePages "syscalls:sys_enter_move_pages" ["pid" N, "nr_pages" N],
    LeaveFtruncate "syscalls:sys_exit_ftruncate" ["ret" N],
    LeaveTruncate "syscalls:sys_exit_truncate" ["ret" N],
    LeaveFallocate "syscalls:sys_exit_fallocate" ["ret" N],
    LeavePkeyMprotect "syscalls:sys_exit_pkey_mprotect" ["ret" N],
    LeaveProcessMadvise "syscalls:sys_exit_process_madvise" ["ret" N],
    LeaveShmdt "syscalls:sys_exit_shmdt" ["ret" N],
    LeaveMsync "syscalls:sys_exit_msync" ["ret" N],
    LeaveFsync "syscalls:sys_exit_fsync" ["ret" N],
    LeaveFdatasync "syscalls:sys_exit_fdatasync" ["ret" N],
    LeaveMbind "syscalls:sys_exit_mbind" ["ret" N],
    LeaveMovePages "syscalls:sys_exit_move_pages" ["ret" N],
    Sample "cpu-clock" ["ip" C],
}

/// The names of all tracepoints that this library uses, as `perf record -e` takes them. A kernel may lack some of them.
pub const EVENTS: &[&str] = &TRACED;

/// All but mappings and samples.
const TRACED: [&str; NAMES.len() - 2] = {
    let (mut traced, mut at) = ([""; NAMES.len() - 2], 0);
    while at < traced.len() {
        traced[at] = NAMES[if at < Tracepoint::Map as usize { at } else { at + 1 }];
        at += 1;
    }
    traced
};

/// The number that stands for [`EventKind::Lost`] in the compact form: it is no tracepoint.
pub(crate) const LOST_TAG: u8 = 255;

impl Tracepoint {
    /// All tracepoints, in the order of their numbers.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        ALL.iter().map(|&(tracepoint, _)| tracepoint)
    }

    /// Its name and its fields.
    pub(crate) fn spec(self) -> &'static Spec {
        &ALL[self as usize].1
    }

    /// Whether the kernel records it as a tracepoint. The recorder tells of mappings by records of another kind, and
    /// samples are of a clock.
    pub(crate) fn is_traced(self) -> bool {
        !matches!(self, Self::Map | Self::Sample)
    }

    /// The tracepoint with this number, or none if there is none.
    pub(crate) fn from_tag(tag: u8) -> Option<Self> {
        ALL.get(tag as usize).map(|&(tracepoint, _)| tracepoint)
    }

    /// The tracepoint that stands `n` places behind `first` in the catalogue.
    fn offset(first: Self, n: u8) -> Self {
        ALL[first as usize + n as usize].0
    }

    /// The event that these fields describe, or none if one of the numbers has no meaning.
    pub(crate) fn kind(self, f: &Fields) -> Option<EventKind> {
        Some(match self {
            Self::TlbFlush => EventKind::TlbFlush {
                reason: *FlushReason::ALL.get(usize::try_from(f[1]).ok()?)?,
                size: if f[0] == u64::MAX { FlushSize::All } else { FlushSize::Pages(f[0]) },
            },
            Self::Switch => EventKind::Switch {
                prev: f[1] as i32,
                prev_comm: Name(f[0] as u32),
                prev_is_runnable: f[2] != 0,
                next: f[4] as i32,
                next_comm: Name(f[3] as u32),
            },
            Self::Fork => EventKind::Fork { parent: f[0] as i32, child: f[2] as i32, child_comm: Name(f[1] as u32) },
            Self::Exec => EventKind::Exec { path: Name(f[0] as u32), tid: f[1] as i32, old_tid: f[2] as i32 },
            Self::Exit => EventKind::Exit { tid: f[0] as i32, is_last: f[1] != 0 },
            Self::Migrate => EventKind::Migrate { tid: f[0] as i32, from_cpu: f[1] as u32, to_cpu: f[2] as u32 },
            Self::FaultUser => fault(FaultMode::User, f),
            Self::FaultKernel => fault(FaultMode::Kernel, f),
            Self::SingleBegin => EventKind::CallInterrupt { edge: Edge::Begin, fan: Fan::Single },
            Self::SingleEnd => EventKind::CallInterrupt { edge: Edge::End, fan: Fan::Single },
            Self::ManyBegin => EventKind::CallInterrupt { edge: Edge::Begin, fan: Fan::Many },
            Self::ManyEnd => EventKind::CallInterrupt { edge: Edge::End, fan: Fan::Many },
            Self::IpiSend => EventKind::IpiSend { cpu: f[0] as u32, callsite: Code(f[1]), callback: Code(f[2]) },
            Self::IpiSendMask => {
                EventKind::IpiSendMask { targets: f[0] as u32, callsite: Code(f[1]), callback: Code(f[2]) }
            }
            Self::CallQueue => {
                EventKind::CallQueue { cpu: f[0] as u32, callsite: Code(f[1]), func: Code(f[2]), csd: f[3] }
            }
            Self::CallBegin => EventKind::CallRun { edge: Edge::Begin, func: Code(f[0]), csd: f[1] },
            Self::CallEnd => EventKind::CallRun { edge: Edge::End, func: Code(f[0]), csd: f[1] },
            Self::Map => EventKind::Map {
                address: f[0],
                bytes: f[1],
                offset: f[2],
                protection: f[3] as u32,
                file: Name(f[4] as u32),
            },
            Self::Sample => EventKind::Sample { ip: Code(f[0]) },
            _ => return self.system_call(f),
        })
    }

    fn system_call(self, f: &Fields) -> Option<EventKind> {
        let is_this = |tracepoint: fn(Syscall) -> Self| Syscall::ALL.into_iter().find(|&call| tracepoint(call) == self);
        if let Some(call) = is_this(Self::leave) {
            return Some(EventKind::Leave { call, result: f[0] as i64 });
        }
        is_this(Self::enter).map(|call| EventKind::Enter { call, args: *f })
    }

    /// The tracepoint at which a system call begins. The calls from `ftruncate` on came later than the rest.
    fn enter(call: Syscall) -> Self {
        match (call as u8).checked_sub(Syscall::Ftruncate as u8) {
            Some(later) => Self::offset(Self::EnterFtruncate, later),
            None => Self::offset(Self::EnterMmap, call as u8),
        }
    }

    /// The tracepoint at which a system call ends.
    fn leave(call: Syscall) -> Self {
        match (call as u8).checked_sub(Syscall::Ftruncate as u8) {
            Some(later) => Self::offset(Self::LeaveFtruncate, later),
            None => Self::offset(Self::LeaveMmap, call as u8),
        }
    }

    /// The tracepoint and the fields of an event, or none for [`EventKind::Lost`]. The inverse of [`Tracepoint::kind`].
    pub(crate) fn of(kind: &EventKind) -> Option<(Self, Fields)> {
        Some(match *kind {
            EventKind::TlbFlush { reason, size } => {
                let pages = if let FlushSize::Pages(pages) = size { pages } else { u64::MAX };
                Self::TlbFlush.with([pages, reason as u64])
            }
            EventKind::Switch { prev, prev_comm, prev_is_runnable, next, next_comm } => {
                let (prev_comm, next_comm) = (u64::from(prev_comm.0), u64::from(next_comm.0));
                Self::Switch.with([prev_comm, prev as u64, prev_is_runnable.into(), next_comm, next as u64])
            }
            EventKind::Fork { parent, child, child_comm } => {
                Self::Fork.with([parent as u64, child_comm.0.into(), child as u64])
            }
            EventKind::Exec { path, tid, old_tid } => Self::Exec.with([path.0.into(), tid as u64, old_tid as u64]),
            EventKind::Exit { tid, is_last } => Self::Exit.with([tid as u64, is_last.into()]),
            EventKind::Migrate { tid, from_cpu, to_cpu } => {
                Self::Migrate.with([tid as u64, from_cpu.into(), to_cpu.into()])
            }
            EventKind::Fault { mode, address, ip, error_code } => {
                Self::offset(Self::FaultUser, mode as u8).with([address, ip.0, error_code.into()])
            }
            EventKind::Enter { call, args } => Self::enter(call).with(args),
            EventKind::Leave { call, result } => Self::leave(call).with([result as u64]),
            EventKind::CallInterrupt { edge, fan } => {
                Self::offset(Self::SingleBegin, fan as u8 * 2 + edge as u8).with([])
            }
            EventKind::IpiSend { cpu, callsite, callback } => Self::IpiSend.with([cpu.into(), callsite.0, callback.0]),
            EventKind::IpiSendMask { targets, callsite, callback } => {
                Self::IpiSendMask.with([targets.into(), callsite.0, callback.0])
            }
            EventKind::CallQueue { cpu, callsite, func, csd } => {
                Self::CallQueue.with([cpu.into(), callsite.0, func.0, csd])
            }
            EventKind::CallRun { edge, func, csd } => Self::offset(Self::CallBegin, edge as u8).with([func.0, csd]),
            EventKind::Map { address, bytes, offset, protection, file } => {
                Self::Map.with([address, bytes, offset, protection.into(), file.0.into()])
            }
            EventKind::Sample { ip } => Self::Sample.with([ip.0]),
            EventKind::Lost { .. } => return None,
        })
    }

    fn with<const N: usize>(self, first: [u64; N]) -> (Self, Fields) {
        let mut fields = [0; MAX_FIELDS];
        fields[..N].copy_from_slice(&first);
        (self, fields)
    }
}

fn fault(mode: FaultMode, f: &Fields) -> EventKind {
    EventKind::Fault { mode, address: f[0], ip: Code(f[1]), error_code: f[2] as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_in_order_of_its_numbers() {
        for (index, (tracepoint, _)) in ALL.iter().enumerate() {
            assert_eq!(*tracepoint as usize, index);
        }
    }

    #[test]
    fn the_events_of_system_calls_bear_their_names() {
        for call in Syscall::ALL {
            let spec = Tracepoint::enter(call).spec();
            assert_eq!(spec.event, format!("syscalls:sys_enter_{}", call.label()));
            let spec = Tracepoint::leave(call).spec();
            assert_eq!(spec.event, format!("syscalls:sys_exit_{}", call.label()));
        }
    }

    #[test]
    fn kinds_survive_the_way_to_fields_and_back() {
        for tracepoint in Tracepoint::all() {
            let mut fields = [0; MAX_FIELDS];
            for (i, field) in tracepoint.spec().fields.iter().enumerate() {
                fields[i] = if field.1 == FieldKind::Runnable || field.0 == "group_dead" { 1 } else { i as u64 + 1 };
            }
            let kind = tracepoint.kind(&fields).expect("a kind for each tracepoint");
            assert_eq!(Tracepoint::of(&kind), Some((tracepoint, fields)), "{}", tracepoint.spec().event);
        }
    }

    #[test]
    fn reasons_that_linux_has_not_are_refused() {
        assert_eq!(Tracepoint::TlbFlush.kind(&[1, 6, 0, 0, 0]), None);
    }
}
