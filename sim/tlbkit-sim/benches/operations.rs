//! Host speed of whole machines: nanoseconds an operation by CPUs, and page touches a second.
//!
//! An operation is a system call, a page fault or an interrupt taken, to flush or to wake. Small sizes are run again
//! and again until the time is long enough to be measured. Arguments choose workloads by name and sizes by their
//! numbers of CPUs; without any, everything runs.

mod clock;

use std::io::Write;
use std::time::Duration;

use tlbkit::Policy;
use tlbkit_machine::Machine;
use tlbkit_sim::Run;
use tlbkit_workloads::Workload;

const CPUS: [usize; 5] = [1, 8, 64, 512, 4096];
/// Shorter measurements are repeated.
const ENOUGH: Duration = Duration::from_millis(500);

type Failure = Box<dyn std::error::Error>;

/// A workload's settings on a machine of so many CPUs.
type Settings = fn(usize) -> Vec<String>;

/// Workloads, and what each CPU does in them.
///
/// In `netperf` and `buildsh` each CPU does the same at every size, so starting and ending weigh the same in all of
/// them; `buildsh` uses no windows of the kernel's own space, whose flushes interrupt every CPU of the machine. The
/// threads of `tlb-flush2` share a space and each page interrupts the CPUs of all others: eight of them on machines of
/// any size, for so long that starting the machine hardly counts.
const ROWS: [(&str, Settings); 3] = [
    ("netperf", |_| vec!["rounds=256".into()]),
    ("buildsh", |_| vec!["files=0".into(), "rounds=1".into()]),
    ("tlb-flush2", |cpus| vec!["rounds=128".into(), "pages=64".into(), format!("threads={}", cpus.min(8))]),
];

fn main() -> Result<(), Failure> {
    let machine = Machine::builtin("server-2018-48cpu")?;
    let policy = Policy::preset("linux-6.18").ok_or("no such preset")?;
    println!("ns an operation |{}", CPUS.map(|cpus| format!("{cpus:>6} |")).concat());
    for (name, settings) in ROWS {
        if !CPUS.into_iter().any(|cpus| is_wanted(name, cpus)) {
            continue;
        }
        print!("{name:15} |");
        for cpus in CPUS {
            let run = Run { cpus, ..Run::new(&machine, policy, workload(name, &settings(cpus))?) };
            let shown = if is_wanted(name, cpus) { format!("{:.0}", nanos_each(&run)?) } else { "-".into() };
            print!("{shown:>6} |");
            std::io::stdout().flush()?;
        }
        println!();
    }
    // Touches that hit the second level, twice, and the first.
    for (name, settings) in [
        ("pingpong", &["pages=512", "rounds=20000", "own_pages=5"]),
        ("ebizzy-modern", &["threads=1", "rounds=50000", "chunks=1"]),
        ("lat-ctx", &["processes=1", "kib=192", "rounds=200000"]),
    ] {
        if !is_wanted(name, 1) {
            continue;
        }
        let settings = settings.map(String::from);
        let run = Run { cpus: 1, ..Run::new(&machine, policy, workload(name, &settings)?) };
        let (outcome, spent) = clock::timed(|| run.execute());
        let touches = outcome?.tlb.accesses as f64;
        println!("{name:15} | {:.1} million touches a second on one CPU", touches / spent.as_secs_f64() / 1e6);
    }
    Ok(())
}

fn workload(name: &str, settings: &[String]) -> Result<Workload, Failure> {
    let mut workload = tlbkit_workloads::by_name(name).ok_or("no such workload")?;
    for setting in settings {
        workload.set(setting).map_err(|error| error.to_string())?;
    }
    Ok(workload)
}

/// True if the arguments name the workload and the size, or name nothing of the kind.
fn is_wanted(name: &str, cpus: usize) -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let (sizes, names): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| argument.parse::<usize>().is_ok());
    (names.is_empty() || names.iter().any(|wanted| *wanted == name))
        && (sizes.is_empty() || sizes.iter().any(|wanted| **wanted == cpus.to_string()))
}

/// Host time of one operation.
fn nanos_each(run: &Run<'_>) -> Result<f64, Failure> {
    let (mut operations, mut spent) = (0, Duration::ZERO);
    while spent < ENOUGH {
        let (outcome, time) = clock::timed(|| run.execute());
        let outcome = outcome?;
        let interrupts = outcome.ipis.received + outcome.ipis.wakes_sent;
        operations += outcome.kernel.syscalls + outcome.kernel.faults + interrupts;
        spent += time;
    }
    Ok(spent.as_nanos() as f64 / operations as f64)
}
