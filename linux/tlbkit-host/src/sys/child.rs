//! Child processes: what one has used, what it inherits, and how often the kernel passed a tracepoint for it. And the
//! page faults of this thread, which the kernel counts in the same place.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use rustix::process::Pid;

use crate::error::{Error, Result};

/// What a process and those that it waited for have used.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Usage {
    /// User and system time.
    pub(crate) cpu_seconds: f64,
    /// Page faults, with and without input.
    pub(crate) faults: u64,
    /// The most memory that one of them had at a time.
    pub(crate) peak_bytes: u64,
}

/// A child that has ended.
pub(crate) struct Reaped {
    /// How.
    pub(crate) status: ExitStatus,
    /// What it has used.
    pub(crate) usage: Usage,
}

/// Waits for a child, which nobody else may wait for.
pub(crate) fn reap(child: Pid) -> Result<Reaped> {
    loop {
        if let Some(reaped) = wait_for(child, 0)? {
            return Ok(reaped);
        }
    }
}

/// What a child has used that has ended; none if it still runs.
pub(crate) fn reap_if_ended(child: Pid) -> Result<Option<Reaped>> {
    wait_for(child, libc::WNOHANG)
}

/// None if it runs on, or if a signal ended the waiting.
fn wait_for(child: Pid, options: i32) -> Result<Option<Reaped>> {
    let mut status = 0;
    // SAFETY: `rusage` is numbers alone, of which all zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both places live until the call returns, which is all the kernel writes.
    let reaped = unsafe { libc::wait4(child.as_raw_nonzero().get(), &raw mut status, options, &raw mut usage) };
    match io::Error::last_os_error() {
        _ if reaped > 0 => {}
        _ if reaped == 0 => return Ok(None),
        error if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
        error => return Err(Error::kernel("waiting for the command")(error)),
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let usage = Usage {
        cpu_seconds: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        faults: (usage.ru_minflt + usage.ru_majflt).cast_unsigned(),
        // The kernel counts KiB.
        peak_bytes: usage.ru_maxrss.cast_unsigned() * 1024,
    };
    Ok(Some(Reaped { status: ExitStatus::from_raw(status), usage }))
}

/// Page faults that this thread has had, with and without input.
pub(crate) fn faults_of_this_thread() -> u64 {
    // SAFETY: `rusage` is numbers alone, of which all zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the place lives until the call returns, which is all the kernel writes.
    let answer = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(answer, 0, "a thread may ask for itself, and the place is good");
    (usage.ru_minflt + usage.ru_majflt).cast_unsigned()
}

/// CPU time of this thread, in nanoseconds.
pub(crate) fn cpu_time_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place lives until the call returns, which is all the kernel writes.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(answer, 0, "every thread has such a clock, and the place is good");
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// A system call that does nothing: `munmap` of no bytes, which the kernel refuses.
pub(crate) fn unmap_nothing() {
    // SAFETY: the call takes numbers alone, and a range without bytes holds no memory.
    unsafe { libc::syscall(libc::SYS_munmap, 0, 0) };
}

/// Has what `command` starts, and all that this starts, get no transparent huge page.
pub(crate) fn forbid_huge_pages(command: &mut Command) {
    let in_child = || {
        // SAFETY: this call takes numbers alone.
        let answer = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(in_child) };
}

/// How often a tracepoint is passed by what this thread starts while this lives, from each program's beginning on.
#[derive(Debug)]
pub(crate) struct Counter(File);

/// `struct perf_event_attr` in its first form, which every kernel takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    bytes: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

const KIND_TRACEPOINT: u32 = 2;
/// Not counting yet, counting what is started, and beginning with its exec.
const FLAGS: u64 = 1 | 1 << 1 | 1 << 12;
const CLOSE_ON_EXEC: libc::c_ulong = 8;
/// `PERF_EVENT_IOC_SET_FILTER`.
const SET_FILTER: libc::c_ulong = 0x4008_2406;

impl Counter {
    /// Opens a counter of the events of the tracepoint with this number for which `filter` holds.
    pub(crate) fn open(tracepoint: u64, filter: &std::ffi::CStr) -> io::Result<Self> {
        let attributes = Attributes {
            kind: KIND_TRACEPOINT,
            bytes: size_of::<Attributes>() as u32,
            config: tracepoint,
            flags: FLAGS,
            ..Attributes::default()
        };
        let (this_thread, any_cpu, no_group) = (0, -1, -1);
        let call = libc::SYS_perf_event_open;
        // SAFETY: the attributes live until the call returns, and say how long they are.
        let fd = unsafe { libc::syscall(call, &raw const attributes, this_thread, any_cpu, no_group, CLOSE_ON_EXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made this descriptor, and nobody else has it.
        let file = unsafe { File::from_raw_fd(fd as i32) };
        // SAFETY: the text ends in a zero byte and lives until the call returns.
        let answer = unsafe { libc::ioctl(file.as_raw_fd(), SET_FILTER, filter.as_ptr()) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(file)) }
    }

    /// How often until now.
    pub(crate) fn read(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}
