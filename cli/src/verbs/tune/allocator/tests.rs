//! Each setting, applied to a real program of its kind: never slower, and what it promises is seen in the faults.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tlbkit_host::PairedRatio;
use tlbkit_host::trial::{Change, Measured, Outcome, PAIRS_MIN, Plan, Quantity, attempt};

use super::Certainty::{No, Perhaps, Yes};
use super::*;

/// Two threads take, touch and free blocks of 150 to 950 KB.
const IN_C: &str = r#"
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

/// Faults with `change`, as a part of those without.
fn faults(words: &[OsString], change: &str) -> PairedRatio {
    let changes: [Change; 1] = [change.parse().unwrap()];
    let root = Path::new("/");
    let plan = Plan {
        command: words,
        changes: &changes,
        pairs: PAIRS_MIN,
        root,
        is_stop_wanted: &|| false,
        after_run: &|| {},
    };
    let Outcome::Tried(trial) = attempt(&plan, None).unwrap() else { panic!("{change} breaks the program") };
    let ratio = trial.of(Quantity::Faults).and_then(Measured::ratio).unwrap();
    println!("{change}: {:.3} of the faults, {:.3} to {:.3}", ratio.ratio, ratio.low, ratio.high);
    ratio
}

fn advised(allocator: &Allocator) -> String {
    keeping(allocator).change
}

#[test]
fn glibc_s_setting_saves_faults_and_half_of_it_multiplies_them() {
    let Some((_folder, program)) = built("gcc", &["-O1", "-pthread"], IN_C, "a.c") else { return };
    let Some(allocator) = Allocator::of_file(&program) else { return println!("skipped: another C library") };
    assert_eq!(allocator, Allocator::Glibc);
    let (words, advised) = ([program.into_os_string()], advised(&allocator));
    assert!(faults(&words, &advised).ratio <= 1.02);
    let half = advised.split(":glibc").next().unwrap();
    if faults(&words, half).ratio < 10.0 {
        println!("this C library does not mind half of it");
    }
}

#[test]
fn a_library_s_setting_is_no_harm_to_a_program_that_runs_with_it() {
    for (library, known) in [("libjemalloc.so.2", "jemalloc"), ("libtcmalloc_minimal.so.4", "tcmalloc")] {
        let path =
            ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"].map(|folder| Path::new(folder).join(library));
        let Some(path) = path.into_iter().find(|path| path.exists()) else {
            println!("skipped: no {library}");
            continue;
        };
        let allocator = Allocator::of_file(&path).expect(library);
        assert_eq!(allocator.label(), known);
        let Some((_folder, program)) = built("gcc", &["-O1", "-pthread"], IN_C, "a.c") else { return };
        let preload = format!("LD_PRELOAD={}", path.display());
        let words = ["env".into(), preload.into(), program.into_os_string()];
        // Threads that take memory from each other fault now more, now less: harm is what all pairs have.
        assert!(faults(&words, &advised(&allocator)).low <= 1.05, "{library}");
    }
}

#[test]
fn go_s_setting_saves_the_faults_of_a_program_that_gives_memory_back() {
    let Some((_folder, program)) = built("go", &["build"], IN_GO, "a.go") else { return };
    let allocator = Allocator::of_file(&program);
    assert_eq!(allocator, Some(Allocator::Go));
    assert!(faults(&[program.into_os_string()], &advised(&Allocator::Go)).ratio <= 0.9);
}

#[test]
fn a_setting_ends_calls_that_its_allocator_makes() {
    let ends = |allocator: &Allocator, cause| keeping(allocator).ends(cause);
    assert_eq!([BRK, MUNMAP, Cause::Free].map(|cause| ends(&Allocator::Glibc, cause)), [Yes, Perhaps, No]);
    assert_eq!(
        [Cause::ArenaDontNeed, Cause::DontNeed].map(|cause| ends(&Allocator::Glibc, cause)),
        [Yes, Perhaps],
        "a program on glibc may call madvise itself"
    );
    assert_eq!((ends(&Allocator::Go, BRK), ends(&Allocator::Tcmalloc, BRK)), (No, No));
    let jemalloc = Allocator::Jemalloc { variable: "JE_MALLOC_CONF".into() };
    assert_eq!([Cause::Free, MUNMAP].map(|cause| ends(&jemalloc, cause)), [Yes, No]);
    assert!(keeping(&jemalloc).change.starts_with("JE_MALLOC_CONF=dirty_decay_ms:"));
    for allocator in [Allocator::Glibc, jemalloc, Allocator::Tcmalloc, Allocator::Mimalloc, Allocator::Go] {
        let Keeping { change, remark, .. } = keeping(&allocator);
        assert!(change.parse::<Change>().is_ok(), "{change}");
        assert!(["Switches off: ", "Memory: ", "Scope: "].iter().all(|part| remark.contains(part)), "{remark}");
    }
}
