//! Counts the instructions of one function of a program by single-stepping it, so the count is the same on any host.
//!
//! A privileged instruction traps. It is counted as one instruction and skipped. The figures of Linux were counted in
//! the same way.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use iced_x86::{Decoder, DecoderOptions};

/// Functions of a program by address.
pub(crate) struct Symbols(BTreeMap<u64, String>);

impl Symbols {
    /// As `nm` prints them.
    pub(crate) fn of(program: &Path) -> io::Result<Self> {
        let output = Command::new("nm").args(["--demangle", "--defined-only"]).arg(program).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let one = |line: &str| -> Option<(u64, String)> {
            let (address, rest) = line.split_once(' ')?;
            let (kind, name) = rest.split_once(' ')?;
            kind.contains(['t', 'T', 'w', 'W']).then_some((u64::from_str_radix(address, 16).ok()?, name.to_owned()))
        };
        Ok(Self(text.lines().filter_map(one).collect()))
    }

    fn address(&self, name: &str) -> Option<u64> {
        self.0.iter().find_map(|(address, known)| (known == name).then_some(*address))
    }

    fn name(&self, address: u64) -> &str {
        self.0.range(..=address).next_back().map_or("?", |(_, name)| name)
    }
}

/// Instructions by function.
pub(crate) type Counts = BTreeMap<String, u64>;

/// A program that is being stepped.
struct Child(libc::pid_t);

/// Whether instructions count now, and when that changes: at the return from the function that was entered last.
#[derive(Default)]
struct Inside {
    counted: Option<u64>,
    left_out: Option<u64>,
}

/// Runs `program path turns` and counts what each call of `function` executes, with all that it calls but `left_out`:
/// one entry a call, in their order.
pub(crate) fn count(program: &Path, args: [u64; 2], function: &str, left_out: &str) -> io::Result<Vec<Counts>> {
    let symbols = Symbols::of(program)?;
    let entry = |name| symbols.address(name).ok_or_else(|| io::Error::other(format!("no function {name}")));
    let (function, left_out) = (entry(function)?, entry(left_out)?);
    let mut command = Command::new(program);
    command.args(args.map(|arg| arg.to_string()));
    // SAFETY: between fork and exec one system call, which is safe there.
    unsafe { command.pre_exec(|| result(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0))) };
    let child = Child(command.spawn()?.id() as libc::pid_t);
    let (mut calls, mut inside) = (Vec::new(), Inside::default());
    // The program stops once it has been loaded, then at its own breakpoint after it has initialized its machine, and
    // from then on after every instruction.
    let mut traps = 0;
    while let Some(signal) = child.stopped()? {
        match signal {
            libc::SIGTRAP => traps += 1,
            libc::SIGSEGV | libc::SIGILL => child.skip()?,
            other => {
                return Err(io::Error::other(format!("signal {other} in {}", symbols.name(child.registers()?.rip))));
            }
        }
        if traps < 2 {
            child.go_on()?;
            continue;
        }
        let registers = child.registers()?;
        let (at, sp) = (registers.rip, registers.rsp);
        if inside.left_out.is_some_and(|back| sp > back) {
            inside.left_out = None;
        }
        if inside.counted.is_some_and(|back| sp > back) {
            inside.counted = None;
        }
        match at {
            _ if at == function && inside.counted.is_none() => {
                inside.counted = Some(sp);
                calls.push(Counts::new());
            }
            _ if at == left_out && inside.left_out.is_none() => inside.left_out = Some(sp),
            _ => {}
        }
        if let Some(call) = calls.last_mut()
            && inside.counted.is_some()
            && inside.left_out.is_none()
        {
            *call.entry(symbols.name(at).to_owned()).or_default() += 1;
        }
        child.step()?;
    }
    Ok(calls)
}

fn result(returned: libc::c_long) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Child {
    /// The signal with which it has stopped; none if it has ended.
    fn stopped(&self) -> io::Result<Option<i32>> {
        let mut status = 0;
        // SAFETY: a child of ours, and a place for its status.
        result(libc::c_long::from(unsafe { libc::waitpid(self.0, &raw mut status, 0) }))?;
        if libc::WIFSTOPPED(status) {
            return Ok(Some(libc::WSTOPSIG(status)));
        }
        let has_ended_well = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        if has_ended_well { Ok(None) } else { Err(io::Error::other(format!("the program ended with status {status}"))) }
    }

    fn registers(&self) -> io::Result<libc::user_regs_struct> {
        // SAFETY: zeros are a value of the struct.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: a stopped child of ours, and a place for its registers.
        result(unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.0, 0, &raw mut registers) })?;
        Ok(registers)
    }

    /// Goes on behind the instruction that trapped.
    fn skip(&self) -> io::Result<()> {
        let mut registers = self.registers()?;
        let mut bytes = [0; 16];
        for (index, chunk) in bytes.chunks_mut(8).enumerate() {
            let address = registers.rip + 8 * index as u64;
            // SAFETY: a stopped child of ours.
            let word = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, self.0, address, 0) };
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        let instruction = Decoder::with_ip(64, &bytes, registers.rip, DecoderOptions::NONE).decode();
        if !instruction.is_privileged() {
            return Err(io::Error::other(format!("{:#x} trapped, which no kernel's instruction did", registers.rip)));
        }
        registers.rip = instruction.next_ip();
        // SAFETY: a stopped child of ours, and its registers.
        result(unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.0, 0, &raw const registers) })
    }

    fn go_on(&self) -> io::Result<()> {
        // SAFETY: a stopped child of ours.
        result(unsafe { libc::ptrace(libc::PTRACE_CONT, self.0, 0, 0) })
    }

    fn step(&self) -> io::Result<()> {
        // SAFETY: a stopped child of ours.
        result(unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.0, 0, 0) })
    }
}
