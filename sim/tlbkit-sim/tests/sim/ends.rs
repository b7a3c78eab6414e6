//! The ends of spaces: one that an idle CPU holds lazily, three ways, and many at a time; and what counting costs.

use tlbkit::{LazyReferences, Policy};
use tlbkit_machine::{Machine, Noise};
use tlbkit_sim::Code;
use tlbkit_sim::{KernelSettings, Run, RunOutcome};

/// A command: fork, exec, a move to the other CPU, exit and wait. It maps nothing but its data, and ends on another
/// CPU than it ran on.
const SETTINGS: [&str; 7] =
    ["jobs=1", "files=0", "heap_steps=0", "text_pages=8", "data_pages=4", "moves=2", "rounds=200"];

fn outcome(lazy_references: LazyReferences) -> RunOutcome {
    let machine = Machine::builtin("recent-bare").unwrap();
    let mut workload = tlbkit_workloads::by_name("buildsh").unwrap();
    SETTINGS.iter().for_each(|setting| workload.set(setting).unwrap());
    let policy = Policy { lazy_references, ..Policy::DEFAULT };
    Run { cpus: 2, ..Run::new(&machine, policy, workload) }.execute().unwrap()
}

/// A number of millions as the guide writes it.
fn by_thousands(number: u64) -> String {
    format!("{},{:03},{:03}", number / 1_000_000, number / 1_000 % 1_000, number % 1_000)
}

#[test]
fn the_end_of_a_space_interrupts_nobody_unless_its_holders_are_shot_down() {
    use LazyReferences::{Awaited, Counted, ShotDown};
    let [shot_down, counted, awaited] = [ShotDown, Counted, Awaited].map(outcome);
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/kernel/recipes.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    for outcome in [&shot_down, &counted, &awaited] {
        let said = format!("| {} | {} |", outcome.flushes.exit_interrupts, by_thousands(outcome.elapsed_cycles));
        assert!(guide.contains(&said), "docs/kernel/recipes.md does not say `{said}`");
    }
    assert!(shot_down.flushes.exit_interrupts >= 100, "a CPU holds the space when it ends");
    assert_eq!((counted.flushes.exit_interrupts, awaited.flushes.exit_interrupts), (0, 0));
    assert!(awaited.elapsed_cycles <= shot_down.elapsed_cycles, "nobody is waited for");
}

/// Where interrupts are long, one comes between a thread's last instruction and the switch away from it.
#[test]
fn a_space_ends_when_its_threads_end_together() {
    let machine = Machine::builtin("recent-vm").unwrap();
    let limit_cycles = Some((0.005 * machine.system.frequency_mhz.value * 1e6) as u64);
    for lazy_references in [LazyReferences::ShotDown, LazyReferences::Counted, LazyReferences::Awaited] {
        for seed in 1..=4 {
            let workload = tlbkit_workloads::by_name("tlb-flush2").unwrap();
            let run = Run::new(&machine, Policy { lazy_references, ..Policy::DEFAULT }, workload);
            let outcome = Run { cpus: 8, seed, limit_cycles, noise: Noise::On, ..run }.execute().unwrap();
            assert_eq!(outcome.flushes.exits, 1, "{lazy_references:?}, seed {seed}");
        }
    }
}

/// Cache lines that move for one more request to each thread of a server, whose CPUs idle in between.
fn lines_a_request(lazy_references: LazyReferences) -> f64 {
    let machine = Machine::builtin("recent-bare").unwrap();
    let policy = Policy { lazy_references, ..Policy::preset("linux-6.18").unwrap() };
    let moved = |rounds: u64| {
        let mut workload = tlbkit_workloads::by_name("memcache").unwrap();
        ["workers=16".into(), format!("rounds={rounds}")].iter().for_each(|setting| workload.set(setting).unwrap());
        Run { cpus: 32, ..Run::new(&machine, policy, workload) }.execute().unwrap().lines.same_socket as f64
    };
    (moved(60) - moved(20)) / (40.0 * 16.0)
}

/// One line moves when a CPU goes idle, and once more when it comes back: the generation that it then reads stays.
#[test]
fn counting_who_holds_a_space_lazily_moves_two_lines_a_request() {
    let [counted, awaited] = [LazyReferences::Counted, LazyReferences::Awaited].map(lines_a_request);
    assert!((1.8..2.1).contains(&(counted - awaited)), "{counted} for {awaited}");
}

/// Cache lines that move for one more command of each job. The kernel is one without LRU lists in its file, as all
/// processes would share their lines.
fn lines_a_command(jobs: usize) -> f64 {
    let machine = Machine::builtin("skylake-desktop-pti").unwrap();
    let moved = |rounds: u64| {
        let mut workload = tlbkit_workloads::by_name("buildsh").unwrap();
        [format!("jobs={jobs}"), format!("rounds={rounds}")].iter().for_each(|setting| workload.set(setting).unwrap());
        let kernel = KernelSettings { code: Code::of_preset("netbsd-10"), ..KernelSettings::default() };
        let run = Run { cpus: jobs, kernel, ..Run::new(&machine, Policy::DEFAULT, workload) };
        run.execute().unwrap().lines.same_socket as f64
    };
    (moved(60) - moved(20)) / (40 * jobs) as f64
}

/// With 1,024 CPUs a lock that every end of a space takes, whatever for, held all of them up for longer than they ran.
#[test]
fn processes_that_come_and_go_share_no_line_but_the_one_that_numbers_spaces() {
    let [alone, beside_others] = [1, 8].map(lines_a_command);
    assert!((beside_others - alone - 1.0).abs() < 0.1, "{beside_others} for {alone}");
}
