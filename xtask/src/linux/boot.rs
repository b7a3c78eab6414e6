//! One boot of a Linux, and what its guest said.

use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tlbkit_boot::{LIMIT, Machine};

use super::guest::Guest;
use crate::qemu::emulator::Threads;

/// What the guest returns through the emulator when all went well.
pub(super) const WELL: i32 = 33;
/// Nanoseconds of the clock for each instruction, as a power of two, where instructions are counted.
pub(super) const CLOCK_SHIFT: u32 = 2;

/// Counting does not depend on the host's load, so it may take as long as that makes it.
const COUNTED_LIMIT: Duration = Duration::from_secs(1800);
/// One instruction at a time, and a line for many of them.
const LOGGED_LIMIT: Duration = Duration::from_secs(7200);

/// One boot.
#[derive(Clone, Debug)]
pub(super) struct Boot {
    cpus: u32,
    words: String,
    accelerator: Vec<String>,
    limit: Duration,
}

/// How it ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) text: String,
    pub(super) seconds: f64,
}

impl Ended {
    pub(super) fn is_well(&self) -> bool {
        self.code == Some(WELL)
    }

    /// The objects of one kind that the guest wrote.
    pub(super) fn lines(&self, kind: &str) -> Vec<Value> {
        // The kernel's own messages may stand before one on its line.
        let objects = self.text.lines().filter_map(|line| line.find("{\"kind\"").map(|at| &line[at..]));
        let objects = objects.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        objects.filter(|object| object["kind"] == kind).collect()
    }

    /// What the guest says that is no object: what a test wrote that failed.
    pub(super) fn remarks(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(|line| line.strip_prefix("# ")).map(str::trim_end)
    }

    /// The last lines, for whoever must find out what went wrong.
    pub(super) fn tail(&self) -> String {
        let lines: Vec<&str> = self.text.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }
}

impl Boot {
    /// CPUs that run at the same time.
    pub(super) fn at_once(cpus: u32, words: &str, verb: &str) -> Self {
        let accelerator = owned(Threads::Parallel.accelerator());
        Self { cpus, words: command_line(words, verb), accelerator, limit: LIMIT }
    }

    /// The same with more memory, and for longer.
    pub(super) fn at_length(self, limit: Duration) -> Self {
        Self { accelerator: [self.accelerator, owned(&["-m", "2048"])].concat(), limit, ..self }
    }

    /// CPUs in turns, and a clock that counts instructions: the same kernel and words give the same run.
    pub(super) fn counted(cpus: u32, words: &str, verb: &str) -> Self {
        let accelerator =
            owned(&["-accel", "tcg,thread=single", "-cpu", "max", "-icount", "shift=2,align=off,sleep=off"]);
        Self { cpus, words: command_line(words, verb), accelerator, limit: COUNTED_LIMIT }
    }

    /// The same, one instruction at a time, and the address of each in one of `ranges` written into `log`.
    pub(super) fn logged(mut self, log: &Path, ranges: &str) -> Self {
        let log = log.display().to_string();
        self.accelerator.extend(owned(&["-singlestep", "-d", "exec,nochain", "-D", &log, "-dfilter", ranges]));
        self.limit = LOGGED_LIMIT;
        self
    }

    pub(super) fn run(&self, kernel: &Path, guest: &Guest) -> Result<Ended> {
        let image = guest.image.display().to_string();
        let mut accelerator: Vec<&str> = self.accelerator.iter().map(String::as_str).collect();
        accelerator.extend(["-initrd", &image]);
        let (command_line, cpus) = (&self.words, self.cpus);
        let ended = Machine { kernel, command_line, cpus, accelerator: &accelerator }.boot_within(self.limit)?;
        Ok(Ended { code: ended.code, text: ended.text, seconds: ended.seconds })
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// What the kernel is told, and behind the hyphens what its guest is.
pub(super) fn command_line(words: &str, verb: &str) -> String {
    format!("console=ttyS0 quiet panic=-1 norandmaps tsc=reliable rdinit=/guest {words} -- {verb}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_behind_the_kernels_words() {
        let text = "[    1.0] smp: {\"kind\":\"row\",\"ticks\":8}\r\n{\"kind\":\"end\"}\n{\"kind\":\"ro";
        let ended = Ended { code: Some(WELL), text: text.to_owned(), seconds: 0.0 };
        assert_eq!(ended.lines("row").len(), 1);
        assert_eq!(ended.lines("row")[0]["ticks"], 8);
        assert!(ended.is_well() && !Ended { code: Some(35), ..ended }.is_well());
    }

    #[test]
    fn the_shift_is_the_one_that_the_emulator_is_told() {
        let boot = Boot::counted(1, "", "rows");
        assert!(boot.accelerator.iter().any(|word| word.starts_with(&format!("shift={CLOCK_SHIFT},"))));
    }
}
