//! Judged by the host's own allocator: a record of ebizzy faults as often under glibc as it does in the simulation.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::hint::black_box;
use std::mem::MaybeUninit;

use tlbkit::Policy;
use tlbkit_machine::Machine;
use tlbkit_sim::Run;

/// Bytes of a buffer, as of a chunk.
const BUFFER_BYTES: usize = 512 << 10;
const RECORDS: u64 = 8;

/// What glibc is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Malloc {
    /// To trim an arena whenever a page on its top is free, as all versions up to 2.21 did.
    Trims,
    /// To keep its threshold for mappings at the 128 KiB that it begins with.
    Maps,
}

/// Faults of one more record under the host's malloc, in a thread other than the first, which alone has no heap of its
/// own.
fn faults_of_glibc(malloc: Malloc) -> u64 {
    let (option, value) = match malloc {
        // Either setting also ends the adaptation of both thresholds.
        Malloc::Trims => (libc::M_TRIM_THRESHOLD, 4096),
        Malloc::Maps => (libc::M_MMAP_THRESHOLD, 128 << 10),
    };
    let thresholds = [(libc::M_MMAP_THRESHOLD, 32 << 20), (option, value)];
    // SAFETY: they change how much memory malloc keeps, and nothing that is allocated.
    assert!(thresholds.iter().all(|&(option, value)| unsafe { libc::mallopt(option, value) } == 1));
    let thread = std::thread::spawn(|| {
        record();
        let before = minor_faults();
        (0..RECORDS).for_each(|_| record());
        minor_faults() - before
    });
    let faults = thread.join().expect("a thread that only allocates ends well");
    // A few more may be the thread's own.
    faults / RECORDS
}

fn record() {
    // SAFETY: what malloc gave is written within its length and freed once.
    unsafe {
        let buffer = libc::malloc(BUFFER_BYTES);
        assert!(!buffer.is_null());
        black_box(libc::memset(buffer, 1, BUFFER_BYTES));
        libc::free(buffer);
    }
}

fn minor_faults() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the call fills the structure if it ends with 0.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    usage.ru_minflt as u64
}

fn faults_simulated(workload: &str) -> u64 {
    let machine = Machine::builtin("haswell-4770").expect("it is built in");
    let policy = Policy::preset("linux-4.13").expect("it is a preset");
    let faults = |rounds: u64| {
        let mut ebizzy = tlbkit_workloads::by_name(workload).expect("it is a workload");
        for setting in ["threads=1".to_owned(), format!("rounds={rounds}")] {
            ebizzy.set(&setting).expect("it is in range");
        }
        Run { cpus: 1, ..Run::new(&machine, policy, ebizzy) }.execute().expect("it ends well").kernel.faults
    };
    faults(4) - faults(3)
}

/// One test, as malloc's settings are the process's.
#[test]
fn a_record_of_ebizzy_faults_as_often_as_with_the_hosts_malloc() {
    for (malloc, workload) in [(Malloc::Trims, "ebizzy-arena-old"), (Malloc::Maps, "ebizzy-mapped")] {
        assert_eq!(faults_simulated(workload), faults_of_glibc(malloc), "{workload}, {malloc:?}");
    }
}
