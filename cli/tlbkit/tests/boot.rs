//! The test kernel, really booted; skipped where QEMU or the kernel's target is missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// How the messages begin that mean: not here.
const NO_QEMU: &str = "tlbkit: no program qemu";
const NO_KERNEL: &str = "tlbkit: the kernel does not build";

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("boot");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Nothing, and a line that says so, if nothing can be booted here.
fn boot(arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tlbkit"));
    let output = command.args(["--json", "boot"]).args(arguments).current_dir(folder()).output().unwrap();
    let message = message(&output);
    if message.starts_with(NO_QEMU) || message.starts_with(NO_KERNEL) && !has_target() {
        println!("skipped: {message}");
        return None;
    }
    Some(output)
}

fn has_target() -> bool {
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", "x86_64-unknown-none"]).output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn rows(output: &Output) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(0), "{}", message(output));
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect()
}

#[test]
fn a_workload_runs_and_is_counted() {
    let Some(output) = boot(&["--workload", "flushsizes", "--set", "rounds=50", "--cpus", "1"]) else { return };
    let rows = rows(&output);
    let [run] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((run["run"].as_str(), run["score"].as_u64()), (Some("flushsizes"), Some(50)));
    // Each gives back pages by name; the end of the space flushes nothing.
    assert_eq!(run["flushes"].as_u64(), Some(50));
    assert_eq!(run["cycles"].is_null(), run["accelerator"] == "emulation");
}

/// Which CPU is where when is another matter with each version of the emulator, so no single seed must do it.
#[test]
fn a_broken_machine_is_noticed() {
    let words = ["--workload", "tlb-flush2", "--set", "rounds=10", "--set", "pages=16", "--cpus", "4"];
    for seed in 1..=10 {
        let seed = format!("seed={seed}");
        let Some(output) = boot(&[&words[..], &["--option", "fault=no-invalidation", "--option", &seed]].concat())
        else {
            return;
        };
        if output.status.code() != Some(0) {
            assert_eq!(output.status.code(), Some(1));
            assert!(message(&output).contains("a flush was lost"), "{}", message(&output));
            return;
        }
    }
    panic!("no seed showed it");
}

/// The emulator's clock counts instructions, so that what is seen can be seen again.
#[test]
fn an_emulated_run_is_the_same_again() {
    let words = ["--workload", "ebizzy-m", "--cpus", "3", "--option", "seed=5"];
    let Some((first, second)) = boot(&words).zip(boot(&words)) else { return };
    let without_seconds = |output: &Output| {
        let mut rows = rows(output);
        rows[0].as_object_mut().expect("a row").remove("boot_to_result_seconds");
        rows
    };
    let [first, second] = [without_seconds(&first), without_seconds(&second)];
    if first[0]["accelerator"] == "emulation" {
        assert_eq!(first, second);
    }
}

#[test]
fn wrong_words_are_named_in_one_line() {
    let Some(output) = boot(&["--option", "monitor=maybe"]) else { return };
    assert_eq!(output.status.code(), Some(2));
    let message = message(&output);
    assert!(message.starts_with("tlbkit: monitor=maybe: must be ") && message.lines().count() == 1, "{message}");
}

/// Nothing needs to be built or booted for it.
#[test]
fn a_name_that_nothing_has_is_answered_with_the_nearest_one() {
    for (words, said) in [
        ("--workload madvise", "no workload madvise; did you mean madvise1? see tlbkit list workloads"),
        ("--workload racers", "no workload racers; did you mean races? see tlbkit list workloads"),
        ("--policy linux-6.1", "no policy linux-6.1; did you mean linux-6.18? see tlbkit list policies"),
        ("--bench --policy xnu:ceilin=1", "did you mean ceiling? see tlbkit list settings"),
        (
            "--set round=1,threads=1",
            "workload ebizzy-m: no parameter round; did you mean rounds? see tlbkit list parameters",
        ),
        (
            "--workload race --set thread=1",
            "madvise1: no parameter thread; did you mean threads? see tlbkit list parameters",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tlbkit"));
        let output = command.arg("boot").args(words.split(' ')).env("PATH", "").output().unwrap();
        let message = message(&output);
        assert!(message.ends_with(&format!("{said}\n")) && message.lines().count() == 1, "{words}: {message}");
        assert_eq!(output.status.code(), Some(2), "{words}");
    }
}

/// Known before anything is built or booted.
#[test]
fn a_machine_file_that_is_there_is_replaced_by_force_alone() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let name = file.path().to_str().unwrap();
    std::fs::write(name, "# Written by tlbkit boot on a day").unwrap();
    let by_hand = tempfile::NamedTempFile::new().unwrap();
    let other = by_hand.path().to_str().unwrap();
    std::fs::write(other, "by hand").unwrap();
    let is_other = format!("tlbkit: {other}: is there already, and is no machine file of tlbkit; choose another name");
    for (words, said) in [
        (&["--bench", "-o", other][..], is_other.clone()),
        (&["--bench", "-o", other, "--force"], is_other),
        (&["--bench", "-o", name], format!("tlbkit: {name}: is there already; --force replaces it\n")),
        (&["--bench", "-o", name, "--force"], "tlbkit: no program qemu".to_owned()),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tlbkit"));
        let output = command.arg("boot").args(words).env("PATH", "").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(message(&output).starts_with(&said), "{words:?}: {}", message(&output));
    }
}

#[test]
fn a_bench_counts_everywhere_and_times_on_hardware_alone() {
    let Some(output) = boot(&["--bench"]) else { return };
    let rows = rows(&output);
    let run = |name: &str| rows.iter().find(|row| row["run"] == name).unwrap_or_else(|| panic!("no {name}"));
    let kept = |name: &str| run(name)["switches_kept"].as_u64().unwrap();
    assert!(kept("512 pages, PCID") > 0);
    assert_eq!(kept("512 pages, no PCID"), 0);
    let pages = |name: &str| run(name)["pages"].as_u64().unwrap();
    if run("isolated, INVPCID")["invpcid"] == true {
        // One beside each INVLPG, against a CR3 write on the way out.
        assert_eq!(pages("isolated, INVPCID"), 2 * pages("isolated, deferred CR3"));
    }
    assert_eq!(pages("everything"), 0);
    let is_emulated = rows.last().is_some_and(|row| row["accelerator"] == "emulation");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.contains("\"cost\"") || text.contains("\"cycles\""), !is_emulated, "{text}");
    if is_emulated {
        refuses_a_machine_file();
    }
}

/// No file may be made of an emulator's cycles.
fn refuses_a_machine_file() {
    let output = boot(&["--bench", "-o", "emulated.toml"]).expect("it booted before");
    assert_eq!(output.status.code(), Some(2));
    assert!(message(&output).starts_with("tlbkit: emulated.toml: not written: emulated"), "{}", message(&output));
    assert!(!folder().join("emulated.toml").exists());
}
