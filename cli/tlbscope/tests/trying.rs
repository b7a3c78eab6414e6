//! `try` as somebody types it: verdicts on real programs, and a machine that is as it was whatever ends the trial. The
//! machine's settings are files of a folder of the test's own, for which `--root` stands.

mod command;
#[path = "command/not_here.rs"]
mod not_here;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use command::{run, text};
use not_here::is_not_here;
use serde_json::Value;

const THP: &str = "sys/kernel/mm/transparent_hugepage/enabled";
const JOURNAL: &str = "run/tlbkit-try.journal";
const LOCK: &str = "run/tlbkit-try.lock";
/// How long anything may take, however busy the machine: it only ends a hang.
const PATIENCE: Duration = Duration::from_secs(300);

/// A machine whose huge pages are by `madvise`.
fn machine(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trying").join(name);
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(root.join(THP).parent().unwrap()).unwrap();
    fs::create_dir_all(root.join("run")).unwrap();
    fs::write(root.join(THP), "madvise").unwrap();
    root
}

fn thp(root: &Path) -> String {
    fs::read_to_string(root.join(THP)).unwrap()
}

/// A line of a shell that writes what the setting is into the file `seen` at each run, and then does `more`.
fn looking(root: &Path, more: &str) -> String {
    format!("cat {} >> {seen}; echo >> {seen}; {more}", root.join(THP).display(), seen = root.join("seen").display())
}

/// Waits until it holds.
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(10));
    }
}

/// Begins a trial whose command takes longer than the test, once the setting is tried; waits for that.
/// The shell that becomes it does `before` first.
fn trial_under_way(root: &Path, before: &str) -> Child {
    let line = looking(root, &format!("grep -q never {} && exec sleep 3600; true", root.join(THP).display()));
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{before}exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_tlbscope")]);
    command.args(["try", "thp=never", "--root", root.to_str().unwrap(), "--", "sh", "-c", &line]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the setting is tried", || thp(root) == "never");
    wait_until("the command runs under it", || {
        fs::read_to_string(root.join("seen")).is_ok_and(|seen| seen.contains("never"))
    });
    assert!(root.join(JOURNAL).exists(), "what is changed is written down before");
    child
}

fn signal(child: &Child, name: &str) {
    Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
}

#[test]
fn the_machine_is_put_back_whichever_signal_ends_the_trial() {
    for (name, status) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let root = machine(name);
        let mut child = trial_under_way(&root, "");
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(status), "{name}");
        assert_eq!(thp(&root), "madvise", "{name}");
        assert!(!root.join(JOURNAL).exists(), "{name}");
    }
}

#[test]
fn a_guardian_puts_the_machine_back_after_what_no_program_can_catch() {
    let root = machine("killed");
    let mut child = trial_under_way(&root, "");
    signal(&child, "-KILL");
    child.wait().unwrap();
    wait_until("the guardian puts it back", || thp(&root) == "madvise" && !root.join(JOURNAL).exists());
}

/// The lock of a process that is killed may outlive the pipe by which its guardian sees that.
#[test]
fn a_guardian_waits_until_the_one_that_it_guards_has_let_go() {
    let root = machine("late");
    let [path, journal, lock] = [THP, JOURNAL, LOCK].map(|file| root.join(file));
    fs::write(&path, "never").unwrap();
    fs::write(&journal, format!("{}\tmadvise\tnever\n", path.display())).unwrap();
    let held = File::create(lock).unwrap();
    held.lock().unwrap();
    let mut guardian = Command::new(env!("CARGO_BIN_EXE_tlbscope"));
    guardian.args(["try", "--restore", "--after-input", "--root", root.to_str().unwrap()]);
    let guardian = guardian.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    sleep(Duration::from_millis(300));
    drop(held);
    let output = guardian.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(thp(&root), "madvise");
    assert!(!journal.exists());
}

#[test]
fn what_somebody_sets_meanwhile_is_left_alone_and_said() {
    let root = machine("meddled");
    let (path, root_name) = (root.join(THP), root.to_str().unwrap());
    let line = format!("grep -q never {0} && printf always > {0}; true", path.display());
    let output = run(&["try", "thp=never", "--root", root_name, "--", "sh", "-c", &line]);
    let left = format!("{}: was madvise before a trial set never, and is always now, which stays\n", path.display());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said, format!("Cannot tell: somebody else changed the machine meanwhile: {left}"));
    assert_eq!((output.status.code(), thp(&root).as_str()), (Some(1), "always"));
}

/// As under `nohup`.
#[test]
fn a_signal_that_was_to_be_ignored_ends_nothing() {
    let root = machine("ignored");
    let mut child = trial_under_way(&root, "trap '' HUP; ");
    signal(&child, "-HUP");
    sleep(Duration::from_millis(500));
    assert_eq!((child.try_wait().unwrap(), thp(&root).as_str()), (None, "never"));
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(thp(&root), "madvise");
}

#[test]
fn what_a_killed_trial_left_is_put_back_by_the_next_one_and_by_restore() {
    let root = machine("left");
    let [path, journal] = [THP, JOURNAL].map(|file| root.join(file));
    let leave = || {
        fs::write(&path, "always").unwrap();
        fs::write(&journal, format!("{}\tmadvise\talways\n", path.display())).unwrap();
    };
    leave();
    let root_name = root.to_str().unwrap();
    let said = text(&["try", "--restore", "--root", root_name]);
    assert_eq!(said, format!("{}: put back to madvise, an earlier trial had left always\n", path.display()));
    assert_eq!(thp(&root), "madvise");
    assert_eq!(text(&["try", "--restore", "--root", root_name]), "nothing to put back\n");
    leave();
    let output = run(&["try", "A=1", "--root", root_name, "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("put back to madvise"), "{said}");
    assert_eq!(thp(&root), "madvise");
}

#[test]
fn a_setting_that_is_not_there_is_refused_with_what_would_help() {
    let root = machine("without");
    let root_name = root.to_str().unwrap();
    let refused = |change: &str| {
        let output = run(&["try", change, "--root", root_name, "--", "true"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        said
    };
    let ceiling = refused("ceiling=5");
    assert!(ceiling.starts_with(&format!("tlbscope: ceiling: {root_name}/sys/kernel/debug/x86/tlb_")), "{ceiling}");
    assert!(ceiling.ends_with("; run: sudo mount -t debugfs none /sys/kernel/debug\n"), "{ceiling}");
    let defrag = refused("thp-defrag=defer");
    assert!(defrag.ends_with("; this kernel has no such setting, so try another one\n"), "{defrag}");
    fs::remove_dir_all(root.join("run")).unwrap();
    let unwritten = refused("thp=never");
    assert!(unwritten.starts_with(&format!("tlbscope: {root_name}/run/tlbkit-try.lock: cannot be")), "{unwritten}");
}

#[test]
fn a_change_is_told_from_none_in_rows_and_by_the_status() {
    let line = "i=0; while [ $i -lt ${TLBKIT_ROUNDS:-60000} ]; do i=$((i+1)); done";
    let run = |change: &str| run(&["--json", "try", change, "--least", "30", "--", "sh", "-c", line]);
    let output = run("TLBKIT_ROUNDS=600");
    let rows: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (verdict, measured) = rows.split_last().unwrap();
    assert_eq!((output.status.code(), &verdict["verdict"]), (Some(0), &"yes".into()), "{rows:?}");
    assert_eq!(verdict["to_keep"][0], "export TLBKIT_ROUNDS=600");
    for name in ["CPU time, s", "wall time, s", "page faults", "peak memory, MiB"] {
        let row = measured.iter().find(|row| row["quantity"] == name).unwrap();
        assert!(row["ratio"]["pairs"] == 6 && row["without"]["repetitions"] == 6, "{row}");
    }
    assert_eq!(run("TLBKIT_ROUNDS=600000").status.code(), Some(1), "ten times the work is no gain");
}

#[test]
fn only_what_holds_is_to_be_kept() {
    let output = run(&["try", "TLBKIT_NOTHING=1", "--least", "90", "--", "true"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("changed by ") && said.contains("to undo it: "), "{said}");
    assert!(!said.contains("to keep it"), "{said}");
}

#[test]
fn a_change_that_breaks_the_command_is_refused() {
    let output = run(&["try", "TLBKIT_BREAK=3", "--", "sh", "-c", "exit ${TLBKIT_BREAK:-0}"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.starts_with("No: with TLBKIT_BREAK=3 the command failed (exit status: 3)"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    let silent = run(&["try", "A=1", "--", "false"]);
    let said = String::from_utf8_lossy(&silent.stderr).into_owned();
    assert_eq!(said, "tlbscope: the command fails without any change (exit status: 1)\n");
}

#[test]
fn help_names_the_variables_that_keep_what_they_say() {
    let help = String::from_utf8(run(&["try", "--help"]).stdout).unwrap();
    for variable in ["GLIBC_TUNABLES", "GODEBUG", "MALLOC_CONF", "JDK_JAVA_OPTIONS"] {
        assert!(help.contains(variable), "{help}");
    }
}

#[test]
fn wrong_input_is_one_line_and_status_2() {
    let cases: [(&[&str], &str); 14] = [
        (&["try", "nothing", "--", "true"], "tlbscope: nothing: must be NAME=VALUE"),
        (&["try", "thp=on", "--", "true"], "tlbscope: thp=on: must be one of always, madvise, never"),
        (&["try", "A=1", "A=1", "--", "true"], "tlbscope: A=1: A is named before; want each"),
        (&["try", "thp=always", "thp=never", "--", "true"], "tlbscope: thp=never: thp is named before; want each"),
        (&["try", "hugepages=1", "--", "true"], "tlbscope: hugepages=1: must be env:hugepages=1 (an environment"),
        (&["try", "A=1", "--pairs", "4", "--", "true"], "tlbscope: --pairs 4: must be 5 to 100"),
        (&["try", "A=1", "--", "false"], "tlbscope: the command fails without any change (exit status: 1)"),
        (&["try", "A=1", "--", "/nowhere/a"], "tlbscope: /nowhere/a: cannot be run: No such file"),
        (
            &["try", "thp=never", "--root", "/nowhere", "--", "true"],
            "tlbscope: --root /nowhere: no such folder; want the",
        ),
        (&["try", "--restore", "--root", "/nowhere"], "tlbscope: --root /nowhere: no such folder; want the"),
        (&["doctor", "--root", "/nowhere"], "tlbscope: --root /nowhere: no such folder; want the"),
        (
            &["try", "tph=always", "--", "true"],
            "tlbscope: tph=always: no change tph; did you mean thp=always? or, for a",
        ),
        (
            &["try", "no-hugepages", "--", "true"],
            "tlbscope: no-hugepages: no change no-hugepages; did you mean no-huge-",
        ),
        (&["try", "", "--", "true"], "tlbscope: a change is empty; see tlbscope try --help"),
    ];
    for (arguments, start) in cases {
        let output = run(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.starts_with(start) && message.lines().count() == 1, "{arguments:?}: {message}");
        assert_eq!(output.status.code(), Some(2), "{message}");
    }
}

/// Two threads whose blocks all lie on top of their arenas, and go back to the kernel each time.
const LOAD: &str = r#"
    #include <pthread.h>
    #include <stdlib.h>
    static void *work(void *nothing) {
        for (int round = 0; round < 300; round++) {
            volatile char *blocks[20];
            for (int n = 0; n < 20; n++) {
                blocks[n] = malloc(60000);
                for (int at = 0; at < 60000; at += 4096)
                    blocks[n][at] = 1;
            }
            for (int n = 19; n >= 0; n--)
                free((void *)blocks[n]);
        }
        return nothing;
    }
    int main(void) {
        pthread_t threads[2];
        for (int n = 0; n < 2; n++)
            pthread_create(&threads[n], 0, work, 0);
        for (int n = 0; n < 2; n++)
            pthread_join(threads[n], 0);
        return 0;
    }
"#;

#[test]
fn the_whole_way_from_a_command_to_what_held() {
    let root = machine("whole");
    let (source, program) = (root.join("load.c"), root.join("load"));
    fs::write(&source, LOAD).unwrap();
    let built = Command::new("gcc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source).status();
    if !built.is_ok_and(|status| status.success()) {
        return println!("skipped: no gcc");
    }
    let (root, program) = (root.to_str().unwrap(), program.to_str().unwrap());
    let recorded = run(&["--json", "record", "-o", &format!("{root}/load.tlbtrace"), "--", program]);
    let said = String::from_utf8_lossy(&recorded.stderr).into_owned();
    if recorded.status.code() == Some(2) {
        assert!(is_not_here(&said) && said.lines().count() == 1, "{said}");
        return println!("skipped: {said}");
    }
    let rows: Vec<Value> =
        String::from_utf8(recorded.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let first = rows.iter().find(|row| row["kind"] == "cause").expect("threads give memory back");
    let fix = first["try"][0].as_str().unwrap_or_else(|| panic!("malloc has a setting: {first}"));
    assert!(fix.starts_with("GLIBC_TUNABLES="), "{first}");
    let output = run(&["--json", "try", fix, "--root", root, "--", program]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "what is advised helps: {said}");
}

#[test]
fn a_doctor_names_the_command_for_each_lack() {
    let root = machine("doctor");
    let output = run(&["--json", "doctor", "--root", root.to_str().unwrap()]);
    let rows: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |what: &str| rows.iter().find(|row| row["what"] == what).unwrap();
    assert_eq!(of("tracefs")["run"], "sudo mount -t tracefs none /sys/kernel/tracing");
    assert_eq!((&of("tracefs")["state"], &of("thp")["state"]), (&"lacking".into(), &"fine".into()));
    assert_eq!(output.status.code(), Some(1));
    let mut lacking = rows.iter().filter(|row| row["state"] == "lacking");
    assert!(lacking.all(|row| row["run"].is_string()), "{rows:?}");
}
