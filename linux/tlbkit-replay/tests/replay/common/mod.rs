//! Small traces, written as `perf script` writes them.

use std::fmt::Write;
use tlbkit_replay::{Cause, Op, OpKind, Recording, Taken};

/// A trace under way.
#[derive(Default)]
pub(crate) struct Script {
    text: String,
    time_ns: u64,
}

impl Script {
    /// Thread `tid` of process `pid` on `cpu`, a microsecond after the event before.
    pub(crate) fn at(&mut self, cpu: u32, who: (i32, i32), event: &str) -> &mut Self {
        self.named("prog", cpu, who, event)
    }

    /// The same, of a thread with another name.
    pub(crate) fn named(&mut self, comm: &str, cpu: u32, (pid, tid): (i32, i32), event: &str) -> &mut Self {
        self.time_ns += 1000;
        let (seconds, ns) = (1 + self.time_ns / 1_000_000_000, self.time_ns % 1_000_000_000);
        writeln!(self.text, "            {comm}  {pid}/{tid}  [{cpu:03}]  {seconds}.{ns:09}: {event}")
            .expect("a string");
        self
    }

    /// The same for thread 1 of process 1 on CPU 0.
    pub(crate) fn one(&mut self, event: &str) -> &mut Self {
        self.at(0, (1, 1), event)
    }

    /// Process 1 gets a new program: from here on all that it has mapped is known.
    pub(crate) fn exec(&mut self) -> &mut Self {
        self.one("sched:sched_process_exec: filename=/bin/prog pid=1 old_pid=1")
    }

    /// Maps `pages` pages at page `first`.
    pub(crate) fn mmap(&mut self, first: u64, pages: u64, flags: u64) -> &mut Self {
        let bytes = pages * 4096;
        self.one(&format!(
            "syscalls:sys_enter_mmap: addr: 0x0, len: {bytes:#x}, prot: 0x3, flags: {flags:#x}, fd: 0x0, off: 0x0"
        ));
        self.one(&format!("syscalls:sys_exit_mmap: {:#x}", first << 12))
    }

    /// A call with up to three arguments that succeeds.
    pub(crate) fn call(&mut self, call: &str, arguments: &[(&str, u64)]) -> &mut Self {
        let list: Vec<_> = arguments.iter().map(|(name, value)| format!("{name}: {value:#x}")).collect();
        self.one(&format!("syscalls:sys_enter_{call}: {}", list.join(", ")));
        self.one(&format!("syscalls:sys_exit_{call}: 0x0"))
    }

    /// A first access to each of `pages`.
    pub(crate) fn write(&mut self, pages: impl IntoIterator<Item = u64>) -> &mut Self {
        self.fault(pages, 6)
    }

    /// Faults: 4 is a read of what is not there, 6 a write, 7 a write to what is write-protected.
    pub(crate) fn fault(&mut self, pages: impl IntoIterator<Item = u64>, error_code: u32) -> &mut Self {
        for page in pages {
            let address = page << 12;
            self.one(&format!("exceptions:page_fault_user: address={address:#x} ip=0x1 error_code={error_code:#x}"));
        }
        self
    }

    /// Process 1 forks process 2, which begins to run on CPU 1.
    pub(crate) fn fork(&mut self) -> &mut Self {
        self.one("syscalls:sys_enter_clone: clone_flags: 0x1200011, newsp: 0x0");
        self.one("sched:sched_process_fork: comm=prog pid=1 child_comm=prog child_pid=2");
        self.one("syscalls:sys_exit_clone: 0x2");
        self.at(1, (2, 2), "syscalls:sys_exit_clone: 0x0")
    }

    pub(crate) fn read(&self) -> Recording<'_> {
        let open = || tlbkit_trace::open_pipe(std::io::Cursor::new(self.text.clone().into_bytes()));
        let recording = Recording::read(open, &|_, _, _| true).expect("a good trace");
        assert_eq!(recording.health().damages, [], "{}", self.text);
        recording
    }

    /// What was taken away since the last exec.
    pub(crate) fn taken(&self) -> Vec<(Cause, Taken)> {
        let taken = ops(&self.read()).into_iter().filter_map(|op| match op.kind {
            OpKind::Revoke { cause, taken, .. } => Some((cause, taken)),
            _ => None,
        });
        taken.filter(|(cause, _)| *cause != Cause::Call(tlbkit_trace::Syscall::Execve)).collect()
    }
}

/// All operations.
pub(crate) fn ops(recording: &Recording<'_>) -> Vec<Op> {
    let mut ops = Vec::new();
    recording.ops(|op| ops.push(*op)).expect("it is in memory");
    ops
}
