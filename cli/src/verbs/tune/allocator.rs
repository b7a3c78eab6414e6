//! How allocators are told to keep memory that programs free, instead of giving it back to be faulted in again.
//!
//! A setting must never make a program slower than it was without it: the test below applies glibc's to a program.

use tlbkit_replay::Cause;
use tlbkit_trace::Syscall;

/// Both, or none. glibc raises its own `mmap_threshold`, up to 32 MiB, as large blocks are freed; to set either of the
/// two ends that, and with the trim threshold alone each block above 128 KiB is mapped and unmapped anew.
const GLIBC: &str = concat!(
    "GLIBC_TUNABLES=glibc.malloc.trim_threshold=268435456:glibc.malloc.mmap_threshold=33554432",
    "   # glibc: both, or none"
);
const JEMALLOC: &str = "MALLOC_CONF=dirty_decay_ms:60000,muzzy_decay_ms:60000   # jemalloc";
const GO: &str = "GODEBUG=madvdontneed=0   # Go";

/// What every such setting costs, and what it is not known for.
pub(super) const KEEPS_MEMORY: &str = "If it is the allocator that calls. The process keeps the memory instead, up to \
    256 MiB an arena with glibc. Faults saved are not counted.";

/// The settings that end calls of this kind, a line for each allocator.
pub(super) fn keep_memory(cause: Cause) -> Vec<String> {
    let lines: &[&str] = match cause {
        Cause::DontNeed => &[GLIBC, JEMALLOC, GO],
        Cause::Free => &[JEMALLOC],
        _ => &[GLIBC],
    };
    lines.iter().map(ToString::to_string).collect()
}

/// True for the calls by which allocators give memory back.
pub(super) const fn gives_back(cause: Cause) -> bool {
    matches!(cause, Cause::DontNeed | Cause::Free | Cause::Call(Syscall::Brk | Syscall::Munmap))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Two threads take, touch and free blocks of 150 to 950 KB, and tell their faults.
    const PROGRAM: &str = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/resource.h>
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
            struct rusage usage;
            getrusage(RUSAGE_SELF, &usage);
            printf("%ld\n", usage.ru_minflt);
            return 0;
        }
    "#;

    #[test]
    fn glibc_s_setting_saves_faults_and_half_of_it_multiplies_them() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("a.c"), folder.path().join("a"));
        std::fs::write(&source, PROGRAM).unwrap();
        let built = Command::new("gcc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source).status();
        if !built.is_ok_and(|status| status.success()) {
            return println!("skipped: no gcc");
        }
        let faults = |tunables: &str| -> u64 {
            let output = Command::new(&program).env("GLIBC_TUNABLES", tunables).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
        };
        let advised = GLIBC.split_whitespace().next().unwrap().strip_prefix("GLIBC_TUNABLES=").unwrap();
        let (plain, kept) = (faults(""), faults(advised));
        assert!(kept <= plain, "{kept} faults with the setting, {plain} without");
        let half = advised.split(':').next().unwrap();
        if faults(half) < 10 * plain {
            println!("this C library does not mind half of it");
        }
    }
}
