//! The programs of the foreign judges: Linux's own selftests, built from the kernel's source, and stress-ng, in a file
//! system in memory of their own.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::guest::Guest;
use super::source;
use crate::setup::{self, Need};

/// What selftests are compiled with.
const FLAGS: &str = "-O2 -w -std=gnu11 -static -pthread -mxsave -no-pie -U_FORTIFY_SOURCE";
/// Libraries that a few of them want.
const HEADERS: [Need; 2] =
    [Need::File("/usr/include/sys/capability.h", "libcap-dev"), Need::File("/usr/include/numa.h", "libnuma-dev")];
/// Tests that are made of a second file, or must be linked otherwise, as Linux's own Makefiles say.
const MORE: &[(&str, &str)] = &[
    ("x86/sysret_ss_attrs", "thunks.S"),
    ("x86/sysret_rip", "clang_helpers_64.S"),
    ("x86/fsgsbase_restore", "clang_helpers_64.S"),
    ("x86/check_initial_reg_state", "-Wl,-ereal_start"),
    ("x86/nx_stack", "-Wl,-z,noexecstack"),
    ("mm/uffd-stress", "uffd-common.c"),
    ("mm/uffd-unit-tests", "uffd-common.c"),
];

/// One line of metal/linux/judges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Judge {
    pub(super) name: String,
    pub(super) seconds: u64,
    /// The program that it runs, as `mm/cow`; nothing if that is stress-ng.
    program: Option<String>,
}

/// All of them, in their order.
pub(super) fn list(root: &Path) -> Result<Vec<Judge>> {
    let text = fs::read_to_string(root.join("metal/linux/judges"))?;
    text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')).map(|(at, line)| read(at + 1, line)).collect()
}

fn read(number: usize, line: &str) -> Result<Judge> {
    let wrong = || format!("metal/linux/judges:{number}: must be a name, seconds and a command: {line}");
    let (name, rest) = line.split_once(' ').with_context(wrong)?;
    let (seconds, command) = rest.split_once(' ').with_context(wrong)?;
    let folder = name.split_once('/').with_context(wrong)?.0;
    let program = command.split_whitespace().find_map(|word| word.strip_prefix("./"));
    let program = program.map(|program| format!("{folder}/{program}"));
    Ok(Judge { name: name.to_owned(), seconds: seconds.parse().with_context(wrong)?, program })
}

/// What was built.
#[derive(Debug)]
pub(super) struct Judges {
    pub(super) guest: Guest,
    /// Tests that cannot be run, each with the reason.
    pub(super) missing: Vec<(String, String)>,
}

impl Judges {
    pub(super) fn build(root: &Path) -> Result<Self> {
        // Without one the few tests that want it are named as missing.
        HEADERS.iter().for_each(|header| _ = header.lack());
        let (judges, folder) = (list(root)?, setup::target_dir(root).join("linux/judges"));
        let programs: BTreeSet<&String> = judges.iter().filter_map(|judge| judge.program.as_ref()).collect();
        let compiler = Compiler { tree: source::stock(root)?, headers: source::headers(root)?, folder };
        let mut files =
            format!("dir /judges 0755 0 0\nfile /judges/list {} 0644 0 0\n", on(root, "metal/linux/judges"));
        for group in ["mm", "x86", "stress", "load"] {
            fs::create_dir_all(compiler.folder.join(group))?;
            files += &format!("dir /judges/{group} 0755 0 0\n");
        }
        let mut missing = Vec::new();
        for program in programs {
            match compiler.build(program)? {
                Ok(file) => files += &format!("file /judges/{program} {} 0755 0 0\n", file.display()),
                Err(why) => missing.push((program.clone(), why)),
            }
        }
        match stress() {
            Ok(stress) => files += &stress,
            Err(why) => missing.push(("stress-ng".to_owned(), why)),
        }
        let why = |judge: &Judge| {
            let program = judge.program.as_deref().unwrap_or("stress-ng");
            missing.iter().find(|(name, _)| name == program).map(|(_, why)| (judge.name.clone(), why.clone()))
        };
        let missing = judges.iter().filter_map(why).collect();
        Ok(Self { guest: Guest::pack(root, "judges", &files)?, missing })
    }
}

fn on(root: &Path, file: &str) -> String {
    root.join(file).display().to_string()
}

/// Where selftests come from and go to.
#[derive(Debug)]
struct Compiler {
    tree: PathBuf,
    headers: PathBuf,
    folder: PathBuf,
}

impl Compiler {
    /// The program, or why there is none. What is there already is not built again: the source does not change.
    fn build(&self, program: &str) -> Result<Result<PathBuf, String>> {
        let (file, log) = (self.folder.join(program), self.folder.join(format!("{program}.log")));
        let (group, name) = program.split_once('/').context("a program without a folder")?;
        if file.is_file() {
            return Ok(Ok(file));
        }
        let selftests = self.tree.join("tools/testing/selftests");
        let mut gcc = Command::new("gcc");
        gcc.current_dir(selftests.join(group)).args(FLAGS.split_whitespace());
        gcc.arg("-I").arg(&self.folder).arg("-I").arg(&self.tree).arg("-isystem").arg(&self.headers);
        gcc.arg("-isystem").arg(self.tree.join("tools/include/uapi")).arg(format!("{name}.c"));
        gcc.args(MORE.iter().filter(|(of, _)| *of == program).map(|(_, more)| more));
        if group == "mm" {
            gcc.args(["vm_util.c", "thp_settings.c"]);
        }
        // Linux's own Makefile writes this header; empty, it says that there is no liburing.
        fs::write(self.folder.join("local_config.h"), "")?;
        gcc.args(["-lrt", "-lpthread", "-lm", "-ldl"]).args(libraries(&selftests.join(group).join(name)));
        let output = gcc.arg("-o").arg(&file).output().context("running gcc")?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        fs::write(&log, &text)?;
        let why = text.lines().find(|line| line.contains("error") || line.contains("undefined"));
        Ok(if output.status.success() { Ok(file) } else { Err(why.unwrap_or("gcc does not say why").to_owned()) })
    }
}

/// Libraries that the source names by their headers.
fn libraries(source: &Path) -> Vec<&'static str> {
    let text = fs::read_to_string(source.with_extension("c")).unwrap_or_default();
    let named = [("<sys/capability.h>", "-lcap"), ("<numa.h>", "-lnuma")];
    named.into_iter().filter(|(header, _)| text.contains(header)).map(|(_, library)| library).collect()
}

/// stress-ng of the distribution, and what it is linked with.
fn stress() -> Result<String, String> {
    if let Some(how) = Need::Program("stress-ng", "stress-ng").lack() {
        return Err(how);
    }
    let program = setup::find("stress-ng").ok_or("stress-ng is gone")?;
    let output = Command::new("ldd").arg(&program).output().map_err(|error| format!("ldd: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    let mut files = String::from("dir /lib 0755 0 0\ndir /lib64 0755 0 0\ndir /dev/shm 0777 0 0\n");
    files += &format!("file /bin/stress-ng {} 0755 0 0\n", program.display());
    for path in paths {
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        // The loader has a fixed place, and looks for the others in this one.
        let to = if name.starts_with("ld-linux") { "/lib64" } else { "/lib" };
        files += &format!("file {to}/{name} {path} 0755 0 0\n");
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_name_seconds_and_a_command() -> Result<()> {
        let judge = read(1, "mm/gup_test-fast 60 echo 1 > /proc/x; ./gup_test -u")?;
        assert_eq!((judge.name.as_str(), judge.seconds), ("mm/gup_test-fast", 60));
        assert_eq!(judge.program.as_deref(), Some("mm/gup_test"));
        assert_eq!(read(2, "stress/vm 90 stress-ng --vm 2")?.program, None);
        let error = read(3, "mm/cow soon ./cow").map(|_| ()).expect_err("these are no seconds");
        assert!(error.to_string().contains("metal/linux/judges:3"), "{error}");
        Ok(())
    }

    #[test]
    fn no_two_tests_have_the_same_name() -> Result<()> {
        let judges = list(&setup::root()?)?;
        let names: BTreeSet<&String> = judges.iter().map(|judge| &judge.name).collect();
        assert_eq!(names.len(), judges.len());
        assert!(judges.iter().all(|judge| (judge.seconds <= 400 || judge.name == "load/all") && judge.name.len() < 64));
        Ok(())
    }
}
