//! One boot under QEMU.

use std::env;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs::File, io};

use serde_json::Value;

use crate::error::{Error, PROGRAM};

/// How long a boot may take: minutes, on an emulator that shares the host.
pub const LIMIT: Duration = Duration::from_secs(240);
/// Options for a machine whose CPUs take turns on one host thread and whose clock counts instructions: the same image,
/// command line and version of QEMU give the same run, whatever else the host does. The clock advances by 2^7 ns an
/// instruction, or firmware would wait for it for seconds.
pub const REPEATABLE: &[&str] =
    &["-accel", "tcg,thread=single", "-cpu", "max", "-icount", "shift=7,align=off,sleep=off"];
/// QEMU's own exit code; those of a kernel, through isa-debug-exit, are odd and above.
const REFUSED: i32 = 1;

/// Where the emulator is.
///
/// # Errors
/// If it is not on the PATH.
pub fn find() -> Result<PathBuf, Error> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|folder| folder.join(PROGRAM)).find(|file| file.is_file()).ok_or(Error::NoQemu)
}

/// A machine to boot.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// An ELF file with a PVH note.
    pub kernel: &'a Path,
    /// What the kernel is told.
    pub command_line: &'a str,
    /// CPUs of the machine.
    pub cpus: u32,
    /// QEMU's options for what runs the machine.
    pub accelerator: &'a [&'a str],
}

/// A boot that ended, or was ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// What came over the serial port.
    pub text: String,
    /// The exit code; nothing if the limit ended it.
    pub code: Option<i32>,
    /// From the start of the emulator on.
    pub seconds: f64,
}

impl Ended {
    /// The JSON objects that the kernel wrote, one a line.
    #[must_use]
    pub fn lines(&self) -> Vec<Value> {
        lines(&self.text)
    }
}

impl Machine<'_> {
    /// Boots it, and waits for its end, for [`LIMIT`] at most.
    ///
    /// # Errors
    /// If QEMU is not there, or does not start the kernel.
    pub fn boot(&self) -> Result<Ended, Error> {
        self.boot_within(LIMIT)
    }

    /// The same with another limit.
    ///
    /// # Errors
    /// If QEMU is not there, or does not start the kernel.
    pub fn boot_within(&self, limit: Duration) -> Result<Ended, Error> {
        let [mut serial, mut complaints] = [tempfile::tempfile()?, tempfile::tempfile()?];
        let begun = Instant::now();
        let child = self.command().stdout(serial.try_clone()?).stderr(complaints.try_clone()?).spawn();
        let child = child.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NoQemu,
            _ => Error::Run(error),
        })?;
        let code = wait(child, limit)?.map(|status| status.code().unwrap_or(REFUSED));
        let seconds = begun.elapsed().as_secs_f64();
        if code == Some(REFUSED) {
            let all = read(&mut complaints)?;
            return Err(Error::Refused(all.lines().next_back().unwrap_or("it does not say why").to_owned()));
        }
        Ok(Ended { text: read(&mut serial)?, code, seconds })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio", "-m", "512"])
            .args(self.accelerator)
            .args(["-smp", &self.cpus.to_string()])
            .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-append", self.command_line, "-kernel"])
            .arg(self.kernel)
            .stdin(Stdio::null());
        command
    }
}

/// All of a file that another program has written.
fn read(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Waits for the end of `child`; nothing if it had to be ended after `limit`.
///
/// # Errors
/// The operating system's.
pub fn wait(mut child: Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// The JSON objects among the lines; null for one that breaks off.
#[must_use]
pub fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_machine_that_cannot_start_says_why_in_one_line() {
        let nowhere = Path::new("/no/such/kernel");
        let error = Machine { kernel: nowhere, command_line: "", cpus: 1, accelerator: &[] }.boot().map(|_| ());
        let text = error.map_err(|error| error.to_string()).expect_err("there is no such kernel");
        let wanted = if find().is_ok() { "/no/such/kernel" } else { "apt-get install" };
        assert!(text.contains(wanted) && text.lines().count() == 1, "{text}");
    }

    #[test]
    fn what_is_no_object_is_left_out_and_what_is_none_yet_is_null() {
        assert_eq!(lines("SeaBIOS\n{\"a\":1}\n\n{\"a\""), [serde_json::json!({ "a": 1 }), Value::Null]);
    }

    #[test]
    fn who_does_not_end_is_ended() -> io::Result<()> {
        let sleeper = || Command::new("sleep").arg("60").spawn();
        assert_eq!(wait(sleeper()?, Duration::from_millis(30))?, None);
        let quick = Command::new("true").spawn()?;
        assert!(wait(quick, Duration::from_secs(60))?.is_some_and(|status| status.success()));
        Ok(())
    }
}
