//! What the protocol's paths cost on do-nothing hardware: nanoseconds, and instructions counted by callgrind.
//!
//! `cargo bench -p tlbkit` prints a table. For the instructions it runs itself under `valgrind --tool=callgrind`, which
//! counts the same on every host for the same compiler; without valgrind that column says why it is empty. The last
//! column is Linux 7.3 in its leanest build, counted on its own objects (README, "How fast").

mod machine;
mod measure;

use machine::{Bench, Mode, counted, nothing};
use measure::Path;
use tlbkit::Tags;

/// Linux 7.3.4, build D: `own + other` instructions of tlb.o and of what it calls.
const LINUX_D: [Option<u32>; 18] = [
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
    None,
];

/// The default policy's; Linux has no such slots.
const BY_LAST_USE: Tags = Tags::LeastRecent(6);

fn main() {
    let paths = paths();
    measure::run(&paths, &LINUX_D);
}

/// Each path is a loop of calls; of its time, the same loop of calls of an empty function is taken off.
fn paths() -> Vec<Path> {
    let mut paths = vec![
        switches("switch to the same space", &[0]),
        current_slot("switch, current slot 0", &[1, 0]),
        current_slot("switch, current slot 3", &[0, 3]),
        current_slot("switch, current slot 5", &[0, 5]),
        Path::new("switch, stale slot", |bench, n| {
            let cpu = bench.cpu();
            for i in 0..n {
                bench.make_stale((i % 2) as usize);
                counted::switch(&cpu, &bench.spaces[(i % 2) as usize], &bench.irqs);
            }
        })
        .prepared(|bench| bench.switch_around(2, &[0, 1], counted::switch))
        .less(|bench, n| {
            let cpu = bench.cpu();
            for i in 0..n {
                bench.make_stale((i % 2) as usize);
                nothing(&cpu, &bench.spaces[(i % 2) as usize], &bench.irqs);
            }
        }),
        switches("switch, new slot", &[0, 1, 2, 3, 4, 5, 6, 7]),
        current_slot("switch, current, by last use", &[0, 5]).on(BY_LAST_USE),
        current_slot("switch, ring of 6, by last use", &[0, 1, 2, 3, 4, 5]).on(BY_LAST_USE),
        switches("switch, new, by last use", &[0, 1, 2, 3, 4, 5, 6, 7]).on(BY_LAST_USE),
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
    paths
}

fn switches(name: &'static str, order: &'static [usize]) -> Path {
    Path::new(name, |bench, n| bench.switch_around(n, order, counted::switch))
        .less(|bench, n| bench.switch_around(n, order, nothing))
}

fn current_slot(name: &'static str, order: &'static [usize]) -> Path {
    switches(name, order).prepared(|bench| bench.switch_around(6, &[0, 1, 2, 3, 4, 5], counted::switch))
}

/// The cost of one more CPU: a flush with four others in the set, less one with three.
fn remote() -> [Path; 3] {
    let with = |remotes: u32, mode: Mode| move |bench: &Bench| (1..=remotes).for_each(|cpu| bench.join(cpu, mode));
    [
        Path::new("one more remote CPU told", |bench, n| bench.flush(n, 1))
            .prepared(with(4, Mode::Running))
            .compared_with(with(3, Mode::Running)),
        Path::new("one more lazy CPU skipped", |bench, n| bench.flush(n, 1))
            .prepared(with(4, Mode::Lazy))
            .compared_with(with(3, Mode::Lazy)),
        Path::new("flush 1 page, 1 remote CPU", |bench, n| bench.flush(n, 1)).prepared(with(1, Mode::Running)),
    ]
}
