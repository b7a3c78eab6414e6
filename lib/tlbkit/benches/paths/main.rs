//! What the protocol's paths cost on do-nothing hardware: nanoseconds, and instructions counted by callgrind.
//!
//! `cargo bench -p tlbkit` prints a table. For the instructions it runs itself under `valgrind --tool=callgrind`, which
//! counts the same on every host for the same compiler; without valgrind that column says why it is empty. The last
//! column is Linux 7.3 in its leanest build, counted on its own objects (README, "How fast"). `cargo bench -p tlbkit --
//! lines` prints the cache lines that each path touches instead, by lackey. `inline.md` beside
//! it says what each `inline` of the library is worth on these paths.

mod lines;
mod machine;
mod measure;

use machine::{Bench, Mode, counted, flush_by_broadcast, kept, nothing};
use measure::Path;
use tlbkit::Policy;

/// Linux 7.3.4, build D: `own + other` instructions of tlb.o and of what it calls. Paths of older kernels have none.
const LINUX_D: [Option<u32>; 20] = [
    Some(19),
    Some(99),
    Some(120),
    Some(134),
    Some(103),
    Some(145),
    None,
    None,
    None,
    Some(5),
    Some(30),
    Some(122),
    Some(346),
    None,
    None,
    Some(95),
    Some(37),
    Some(384),
    Some(304),
    None,
];

fn main() {
    let paths = paths();
    if std::env::args().any(|argument| argument == "lines") {
        return lines::run(&paths);
    }
    let linux: Vec<_> = LINUX_D.into_iter().chain(std::iter::repeat(None)).take(paths.len()).collect();
    measure::run(&paths, &linux);
}

/// Each path is a loop of calls; of its time, the same loop of calls of an empty function is taken off.
fn paths() -> Vec<Path> {
    let mut paths = vec![
        switches("switch to the same space", &[0]),
        current_asid("switch, current ASID 0", &[1, 0]),
        current_asid("switch, current ASID 3", &[0, 3]),
        current_asid("switch, current ASID 5", &[0, 5]),
        Path::new("switch, stale ASID", |bench, n| {
            let cpu = bench.cpu();
            for i in 0..n {
                bench.make_stale((i % 2) as usize);
                counted::switch(&cpu, &bench.spaces[(i % 2) as usize], &bench.irqs);
            }
        })
        .prepared(|bench| bench.switch_around(2, &[0, 1], counted::switch))
        // Always of the space that does not run: to make the other one stale would ask this CPU to flush it.
        .less(|bench, n| {
            let cpu = bench.cpu();
            for _ in 0..n {
                bench.make_stale(0);
                nothing(&cpu, &bench.spaces[0], &bench.irqs);
            }
        }),
        switches("switch, new ASID", &[0, 1, 2, 3, 4, 5, 6, 7]),
        current_asid("switch, current, by last use", &[0, 5]).under(kept(Policy::default())),
        current_asid("switch, ring of 6, by last use", &[0, 1, 2, 3, 4, 5]).under(kept(Policy::default())),
        switches("switch, new, by last use", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).under(kept(Policy::default())),
        Path::new("enter lazy", |bench, n| {
            let cpu = bench.cpu();
            (0..n).for_each(|_| counted::enter_lazy(&cpu, &bench.irqs));
        }),
        Path::new("leave lazy", |bench, n| bench.idle(n, counted::switch)).less(|bench, n| bench.idle(n, nothing)),
        Path::new("flush 1 page, local", |bench, n| bench.flush(n, 1)),
        Path::new("flush 33 pages, local", |bench, n| bench.flush(n, 33)),
        Path::new("gather 1 page, flush", |bench, n| bench.gather(n, 1)),
        Path::new("gather 512 pages, flush", |bench, n| bench.gather(n, 512)),
    ];
    paths.extend(remote());
    if cfg!(feature = "history") {
        paths.extend(older());
    }
    paths.extend(answers());
    paths.push(Path::new("flush 1 page, INVLPGB, 2 CPUs", |_, n| flush_by_broadcast(n, 2)));
    paths.push(Path::new("flush 1 page, INVLPGB, 64 CPUs", |_, n| flush_by_broadcast(n, 64)));
    paths
}

/// Paths under the policies of older kernels, which count lazy references, leave the set at each switch, or have no
/// tags; only with the feature `history`. `sim/machines/software/tlbkit.toml` has the counts.
fn older() -> [Path; 8] {
    let preset = |name: &str| Policy::preset(name).expect("a preset");
    let going_idle = || {
        Path::new("enter lazy, counted", |bench, n| {
            let cpu = bench.cpu();
            for _ in 0..n {
                counted::enter_lazy(&cpu, &bench.irqs);
                cpu.switch_to(&bench.spaces[0], &bench.irqs);
            }
        })
    };
    let counting = kept(preset("linux-6.18"));
    [
        going_idle().under(counting),
        going_idle().called("enter the kernel's tables").under(preset("linux-4.14")),
        Path::new("leave lazy, counted", |bench, n| bench.idle(n, counted::switch)).under(counting),
        current_asid("switch, current, counted", &[0, 5]).under(counting),
        current_asid("switch, current, exact set", &[0, 5]).under(preset("linux-4.20")),
        switches("switch, new, counted", &[0, 1, 2, 3, 4, 5, 6, 7]).under(counting),
        switches("switch, new, exact set", &[0, 1, 2, 3, 4, 5, 6, 7]).under(preset("linux-4.20")),
        switches("switch, no tags", &[0, 1]).under(preset("linux-4.13")),
    ]
}

fn switches(name: &'static str, order: &'static [usize]) -> Path {
    Path::new(name, |bench, n| bench.switch_around(n, order, counted::switch))
        .less(|bench, n| bench.switch_around(n, order, nothing))
}

fn current_asid(name: &'static str, order: &'static [usize]) -> Path {
    switches(name, order).prepared(|bench| bench.switch_around(6, &[0, 1, 2, 3, 4, 5], counted::switch))
}

/// What the responder does in the handler: for a request of one page, and when nothing is asked.
fn answers() -> [Path; 2] {
    [
        Path::new("answer, 1 page", |bench, n| bench.be_answered(n)).prepared(|bench| bench.join(1, Mode::Running)),
        Path::new("answer, nothing asked", |bench, n| bench.find_nothing(n)),
    ]
}

/// The cost of one more CPU: a flush with four others in the set, less one with three.
fn remote() -> [Path; 4] {
    let with = |remotes: u32, mode: Mode| move |bench: &Bench| (1..=remotes).for_each(|cpu| bench.join(cpu, mode));
    [
        Path::new("one more remote CPU", |bench, n| bench.flush(n, 1))
            .prepared(with(4, Mode::Running))
            .compared_with(with(3, Mode::Running)),
        Path::new("one more lazy CPU skipped", |bench, n| bench.flush(n, 1))
            .prepared(with(4, Mode::Lazy))
            .compared_with(with(3, Mode::Lazy)),
        Path::new("flush 1 page, 1 remote CPU", |bench, n| bench.flush(n, 1)).prepared(with(1, Mode::Running)),
        Path::new("flush 1 page, 1 lazy CPU", |bench, n| bench.flush(n, 1)).prepared(with(1, Mode::Lazy)),
    ]
}
