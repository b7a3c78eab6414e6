//! Each setting, applied to a real program of its kind: what it promises is seen in the faults, which no load changes.
//!
//! Where the library, the compiler or the right is missing, the test says so and is over.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;
use tlbkit_host::trial::{Change, Journal, Knob, Measured, Outcome, PAIRS_MIN, Plan, Quantity, attempt};
use tlbkit_host::{Allocator, PairedRatio};

use super::allocator::keeping;

/// Two threads take, touch and free blocks of 150 to 950 KB.
const BLOCKS: &str = r#"
    #include <pthread.h>
    #include <stdlib.h>
    static void *work(void *seed) {
        unsigned state = (unsigned)(size_t)seed;
        for (int n = 0; n < 400; n++) {
            state = state * 1103515245 + 12345;
            size_t bytes = 150000 + (state >> 8) % 800000;
            volatile char *block = malloc(bytes);
            for (size_t at = 0; at < bytes; at += 4096)
                block[at] = 1;
            free((void *)block);
        }
        return 0;
    }
    int main(void) {
        pthread_t threads[2];
        for (size_t n = 0; n < 2; n++)
            pthread_create(&threads[n], 0, work, (void *)n);
        for (size_t n = 0; n < 2; n++)
            pthread_join(threads[n], 0);
        return 0;
    }
"#;

/// Takes 64 MiB, touches and frees them, until tcmalloc begins to give memory back: after 2 GiB.
const ROUNDS: &str = r#"
    #include <stdlib.h>
    int main(void) {
        static char *kept[64];
        for (int round = 0; round < 120; round++) {
            for (int n = 0; n < 64; n++) {
                kept[n] = malloc(1 << 20);
                for (int at = 0; at < 1 << 20; at += 4096)
                    ((volatile char *)kept[n])[at] = 1;
            }
            for (int n = 0; n < 64; n++)
                free(kept[n]);
        }
        return 0;
    }
"#;

/// Touches 32 MiB, once.
const ONCE: &str = r#"
    #include <sys/mman.h>
    int main(void) {
        const long bytes = 32 << 20;
        volatile char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (long at = 0; at < bytes; at += 4096)
            memory[at] = 1;
        return 0;
    }
"#;

/// Takes 64 MiB and gives them back, again and again.
const IN_GO: &str = r#"
    package main
    import "runtime/debug"
    var kept [][]byte
    func main() {
        for round := 0; round < 20; round++ {
            kept = nil
            for n := 0; n < 64; n++ {
                block := make([]byte, 1<<20)
                for at := 0; at < len(block); at += 4096 { block[at] = 1 }
                kept = append(kept, block)
            }
            kept = nil
            debug.FreeOSMemory()
        }
    }
"#;

/// A program that the compiler made of this; none where there is no compiler.
fn built(compiler: &str, arguments: &[&str], source: &str, name: &str) -> Option<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join(name), folder.path().join("program"));
    fs::write(&file, source).unwrap();
    let mut command = Command::new(compiler);
    command.args(arguments).arg("-o").arg(&program).arg(&file).env("GOCACHE", folder.path().join("cache"));
    let is_built = command.current_dir(folder.path()).status().is_ok_and(|status| status.success());
    if !is_built {
        println!("skipped: no {compiler}");
    }
    is_built.then_some((folder, program))
}

/// One trial at a time: two may not change the machine at once, and huge pages that one tries would save the faults
/// that another counts.
static ONE_TRIAL: Mutex<()> = Mutex::new(());

/// Faults with `change`, as a part of those without.
fn faults(words: &[OsString], change: &str) -> PairedRatio {
    let _alone = ONE_TRIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let changes: [Change; 1] = [change.parse().unwrap()];
    let root = Path::new("/");
    let journal = changes[0].is_of_machine().then(|| Journal::open(root).unwrap());
    let plan = Plan {
        command: words,
        changes: &changes,
        pairs: PAIRS_MIN,
        root,
        is_stop_wanted: &|| false,
        after_run: &|| {},
    };
    let Outcome::Tried(trial) = attempt(&plan, journal.as_ref()).unwrap() else {
        panic!("{change} breaks the program")
    };
    let ratio = trial.of(Quantity::Faults).and_then(Measured::ratio).unwrap();
    println!("{change}: {:.3} of the faults, {:.3} to {:.3}", ratio.ratio, ratio.low, ratio.high);
    ratio
}

fn advised(allocator: &Allocator) -> String {
    keeping(allocator).change().to_string()
}

/// Faults of a program in C with a library before its own, and with what tune says of that; none without the library.
/// Its user has set `before`, which the advice comes after.
fn with_library(names: &[&str], before: &str, source: &str) -> Option<(Allocator, PairedRatio)> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];
    let files = names.iter().flat_map(|name| folders.map(|folder| Path::new(folder).join(name)));
    // A library that cannot be told this is none of ours.
    let found = files.filter(|path| path.exists()).find_map(|path| Some((Allocator::of_file(&path)?, path)));
    let Some((allocator, path)) = found else {
        println!("skipped: no {}", names.join(", no "));
        return None;
    };
    let (_folder, program) = built("gcc", &["-O1", "-pthread"], source, "a.c")?;
    let line = format!("{before} LD_PRELOAD={} exec {}", path.display(), program.display());
    let ratio = faults(&["sh".into(), "-c".into(), line.into()], &advised(&allocator));
    Some((allocator, ratio))
}

#[test]
fn glibc_s_setting_saves_faults_and_half_of_it_multiplies_them() {
    let Some((_folder, program)) = built("gcc", &["-O1", "-pthread"], BLOCKS, "a.c") else { return };
    let Some(allocator) = Allocator::of_file(&program) else { return println!("skipped: another C library") };
    assert_eq!(allocator, Allocator::Glibc);
    let (words, advised) = ([program.into_os_string()], advised(&allocator));
    assert!(faults(&words, &advised).ratio <= 1.02);
    let half = advised.split(":glibc").next().unwrap();
    let ratio = faults(&words, half);
    assert!(ratio.ratio >= 10.0, "{half}: {ratio:?}");
}

#[test]
fn jemalloc_s_setting_ends_the_faults_of_a_decay_at_once() {
    let before = "MALLOC_CONF=dirty_decay_ms:0,$MALLOC_CONF";
    let Some((allocator, ratio)) = with_library(&["libjemalloc.so.2"], before, BLOCKS) else { return };
    assert_eq!(allocator, Allocator::Jemalloc { variable: "MALLOC_CONF".into() });
    assert!(ratio.high <= 0.2, "{ratio:?}");
}

#[test]
fn tcmalloc_s_setting_ends_the_faults_of_what_it_releases() {
    let names = ["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"];
    let Some((allocator, ratio)) = with_library(&names, "", ROUNDS) else { return };
    assert_eq!(allocator, Allocator::Tcmalloc);
    assert!(ratio.high <= 0.8, "{ratio:?}");
}

#[test]
fn tcmalloc_s_setting_rules_over_giving_back_at_once() {
    let names = ["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"];
    let Some((_, ratio)) = with_library(&names, "TCMALLOC_AGGRESSIVE_DECOMMIT=1", BLOCKS) else { return };
    assert!(ratio.high <= 0.8, "{ratio:?}");
}

#[test]
fn mimalloc_s_setting_ends_the_faults_of_a_purge_at_once() {
    let names = ["libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so"];
    // Each version reads its own of the two, and what is tried comes after it.
    let before = "MIMALLOC_PURGE_DELAY=${MIMALLOC_PURGE_DELAY:-0} MIMALLOC_DECOMMIT_DELAY=0";
    let Some((allocator, ratio)) = with_library(&names, before, BLOCKS) else { return };
    assert!([Allocator::Mimalloc, Allocator::OldMimalloc].contains(&allocator), "{allocator:?}");
    assert!(ratio.high <= 0.7, "{ratio:?}");
}

#[test]
fn go_s_setting_saves_the_faults_of_a_program_that_gives_memory_back() {
    let Some((_folder, program)) = built("go", &["build"], IN_GO, "a.go") else { return };
    let allocator = Allocator::of_file(&program);
    assert_eq!(allocator, Some(Allocator::Go));
    assert!(faults(&[program.into_os_string()], &advised(&Allocator::Go)).ratio <= 0.9);
}

#[test]
fn huge_pages_save_the_faults_of_a_program_that_touches_much() {
    let Some((_folder, program)) = built("gcc", &["-O1"], ONCE, "a.c") else { return };
    let words = [program.into_os_string()];
    let mode = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if mode.contains("[always]") {
        let ratio = faults(&words, "no-huge-pages");
        return assert!(ratio.ratio >= 2.0, "{ratio:?}");
    }
    if mode.is_empty() || !may_set() {
        return println!("skipped: no huge pages, or no right to set them");
    }
    let ratio = faults(&words, "thp=always");
    assert!(ratio.ratio <= 0.5, "{ratio:?}");
}

#[test]
fn a_ceiling_is_there_while_the_program_runs_and_gone_afterwards() {
    let file = Knob::CEILING.file(Path::new("/"));
    let Some(before) =
        fs::read_to_string(&file).ok().filter(|_| fs::OpenOptions::new().write(true).open(&file).is_ok())
    else {
        return println!("skipped: {} cannot be read and written here", file.display());
    };
    let other = if before.trim() == "7" { "8" } else { "7" };
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    let line = format!("cat {} >> {}", file.display(), seen.display());
    faults(&["sh".into(), "-c".into(), line.into()], &format!("ceiling={other}"));
    let seen = fs::read_to_string(seen).unwrap();
    assert_eq!(seen.lines().filter(|value| *value == other).count(), PAIRS_MIN, "{seen}");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
}

/// Whether this user may set what is of the whole machine.
fn may_set() -> bool {
    fs::OpenOptions::new().write(true).open("/sys/kernel/mm/transparent_hugepage/enabled").is_ok()
        && fs::metadata("/run").is_ok_and(|data| !data.permissions().readonly())
}
