//! One boot under QEMU, and what the kernel wrote. An emulator's cycles end here: nobody behind this file sees them.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::accelerator::Accelerator;

const PROGRAM: &str = "qemu-system-x86_64";
/// How long a boot may take: minutes on an emulator that shares the host.
const LIMIT: Duration = Duration::from_secs(240);

/// A machine to boot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Qemu<'a> {
    pub(super) program: &'a Path,
    pub(super) kernel: &'a Path,
    pub(super) accelerator: &'a Accelerator,
    pub(super) cpus: u32,
}

/// What came of a boot in which all of the kernel's checks held.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    /// Timed costs; none of an emulator.
    pub(super) costs: Vec<Value>,
    /// The last line.
    pub(super) result: Value,
    pub(super) seconds: f64,
}

/// What the kernel says went wrong.
#[derive(Debug)]
pub(super) struct Failed(String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel: {}", self.0)
    }
}

impl std::error::Error for Failed {}

/// QEMU's program.
pub(super) fn find() -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join(PROGRAM)).find(|file| file.is_file());
    found.with_context(|| format!("no program {PROGRAM}: on Debian, sudo apt-get install qemu-system-x86"))
}

impl Qemu<'_> {
    /// Boots the kernel with `words` as its command line, beside the number of CPUs.
    pub(super) fn boot(&self, words: &str) -> Result<Ended> {
        let folder = tempfile::tempdir().context("making a folder for the kernel's output")?;
        let [serial, complaints] = ["serial", "complaints"].map(|name| folder.path().join(name));
        let begun = Instant::now();
        let code = self.command(words, &serial).stderr(fs::File::create(&complaints)?).spawn().map(wait);
        let code = code.with_context(|| format!("running {PROGRAM}"))??;
        let seconds = begun.elapsed().as_secs_f64();
        let text = fs::read(&serial).unwrap_or_default();
        let mut lines = lines(&String::from_utf8_lossy(&text));
        let complaint = fs::read_to_string(&complaints).unwrap_or_default();
        match lines.pop() {
            Some(result) => self.judge(lines, result, seconds),
            None if code.is_none() => Err(Failed(format!("no result in {} s", LIMIT.as_secs())).into()),
            None => {
                bail!("{PROGRAM} did not start the kernel: {}", complaint.lines().next_back().unwrap_or("no reason"))
            }
        }
    }

    fn command(&self, words: &str, serial: &Path) -> Command {
        let mut command = Command::new(self.program);
        command
            .args(["-nodefaults", "-no-reboot", "-display", "none", "-m", "512", "-smp", &self.cpus.to_string()])
            .args(self.accelerator.arguments())
            .args(["-serial", &format!("file:{}", serial.display())])
            .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"])
            .args(["-append", &format!("cpus={} {words}", self.cpus), "-kernel"])
            .arg(self.kernel)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    fn judge(&self, mut costs: Vec<Value>, mut result: Value, seconds: f64) -> Result<Ended> {
        let what = result["what"].as_str().unwrap_or("it stopped in the middle of a line");
        match result["kind"].as_str() {
            Some("result") => {}
            Some("usage") => bail!("{what}"),
            _ => return Err(Failed(what.to_owned()).into()),
        }
        costs.retain(|line| line["kind"] == "cost");
        if *self.accelerator != Accelerator::Hardware {
            costs.clear();
            forget_cycles(&mut result);
        }
        Ok(Ended { costs, result, seconds })
    }
}

/// Takes every field `cycles` out.
fn forget_cycles(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("cycles");
            fields.values_mut().for_each(forget_cycles);
        }
        Value::Array(elements) => elements.iter_mut().for_each(forget_cycles),
        _ => {}
    }
}

/// The exit code, or nothing if it had to be ended.
fn wait(mut child: Child) -> Result<Option<i32>> {
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.code().unwrap_or_default()));
        }
        sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// The JSON objects among the lines.
fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIAL: &str = "SeaBIOS\n{\"kind\":\"cost\",\"name\":\"invlpg\",\"median\":7}\n\
        {\"kind\":\"result\",\"pages\":3,\"cycles\":9,\"sizes\":[{\"pages\":1,\"samples\":3,\"cycles\":8}]}\n";

    fn judged(accelerator: &Accelerator, serial: &str) -> Result<Ended> {
        let mut lines = lines(serial);
        let last = lines.pop().unwrap();
        let nowhere = Path::new("");
        Qemu { program: nowhere, kernel: nowhere, accelerator, cpus: 1 }.judge(lines, last, 0.5)
    }

    #[test]
    fn an_emulators_cycles_are_forgotten_and_hardwares_kept() {
        let emulated = judged(&Accelerator::Emulation { because: String::new() }, SERIAL).unwrap();
        assert!(emulated.costs.is_empty() && !emulated.result.to_string().contains("cycles"));
        assert_eq!(emulated.result["sizes"][0]["samples"], 3);
        let real = judged(&Accelerator::Hardware, SERIAL).unwrap();
        assert_eq!((real.costs.len(), &real.result["cycles"]), (1, &Value::from(9)));
        assert_eq!(real.result["sizes"][0]["cycles"], 8);
    }

    #[test]
    fn what_the_kernel_found_wrong_is_no_misuse() {
        let error = |line| judged(&Accelerator::Hardware, line).unwrap_err();
        assert!(error(r#"{"kind":"failure","what":"a flush was lost"}"#).is::<Failed>());
        assert!(error(r#"{"kind":"panic","what":"x"}"#).is::<Failed>());
        assert!(error(r#"{"kind":"resu"#).is::<Failed>());
        let usage = error(r#"{"kind":"usage","what":"policy=x: must be y"}"#);
        assert!(!usage.is::<Failed>() && usage.to_string() == "policy=x: must be y");
    }
}
