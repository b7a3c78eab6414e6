//! Time by the median of several rounds; instructions by running this very program under callgrind.

use std::process::Command;
use std::time::Instant;

use tlbkit::Policy;

use crate::machine::{Bench, in_turn, nothing};

type Body = Box<dyn Fn(&Bench, u64)>;
type Setup = Box<dyn Fn(&Bench)>;

/// One measured path.
pub(crate) struct Path {
    name: &'static str,
    body: Body,
    /// What the body does besides the path, taken off.
    rest: Body,
    setup: Setup,
    /// The machine on which the rest is measured, if it is another one.
    rest_setup: Option<Setup>,
    policy: Policy,
}

impl Path {
    pub(crate) fn new(name: &'static str, body: impl Fn(&Bench, u64) + 'static) -> Self {
        let (rest, setup) = (Box::new(empty_loop), Box::new(|_: &Bench| ()));
        Self { name, body: Box::new(body), rest, setup, rest_setup: None, policy: in_turn() }
    }

    pub(crate) fn less(mut self, rest: impl Fn(&Bench, u64) + 'static) -> Self {
        self.rest = Box::new(rest);
        self
    }

    pub(crate) fn called(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Under another policy.
    pub(crate) fn under(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    pub(crate) fn prepared(mut self, setup: impl Fn(&Bench) + 'static) -> Self {
        self.setup = Box::new(setup);
        self
    }

    /// The same body on a machine prepared otherwise is taken off: the cost of the difference.
    pub(crate) fn compared_with(mut self, setup: impl Fn(&Bench) + 'static) -> Self {
        self.rest_setup = Some(Box::new(setup));
        self
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    fn run(&self, part: Part, n: u64) {
        let bench = Bench::new(self.policy);
        match (part, &self.rest_setup) {
            (Part::Rest, Some(setup)) => {
                setup(&bench);
                (self.body)(&bench, n);
            }
            (Part::Rest, None) => {
                (self.setup)(&bench);
                (self.rest)(&bench, n);
            }
            (Part::Whole, _) => {
                (self.setup)(&bench);
                (self.body)(&bench, n);
            }
        }
    }
}

fn empty_loop(bench: &Bench, n: u64) {
    let cpu = bench.cpu();
    (0..n).for_each(|_| nothing(&cpu, &bench.spaces[0], &bench.irqs));
}

#[derive(Clone, Copy)]
enum Part {
    Whole,
    Rest,
}

pub(crate) const ENV: &str = "TLBKIT_BENCH_PATH";

pub(crate) fn run(paths: &[Path], linux: &[Option<u32>]) {
    if let Ok(spec) = std::env::var(ENV) {
        return run_one(paths, &spec);
    }
    println!("{:30} {:>9} {:>14} {:>12}", "path", "ns", "instructions", "Linux 7.3 D");
    for (index, (path, linux)) in paths.iter().zip(linux).enumerate() {
        let ns = nanoseconds(path);
        let counted = instructions(index, path).map_or_else(|why| why, |n| format!("{n:.1}"));
        let bar = linux.map_or("-".into(), |n| n.to_string());
        println!("{:30} {ns:>9} {counted:>14} {bar:>12}", path.name);
    }
}

fn run_one(paths: &[Path], spec: &str) {
    let mut parts = spec.split(' ').map(|word| word.parse::<u64>().expect("three numbers"));
    let mut next = || parts.next().expect("three numbers");
    let (index, is_rest, n) = (next(), next(), next());
    paths[index as usize].run(if is_rest == 1 { Part::Rest } else { Part::Whole }, n);
}

/// A difference of two times. Where a quarter of the rounds finds none it is below their upper quartile, and no more is
/// known.
fn nanoseconds(path: &Path) -> String {
    const N: u64 = 200_000;
    let time = |part| {
        let began = Instant::now();
        path.run(part, N);
        began.elapsed().as_nanos() as f64 / N as f64
    };
    let mut rounds: Vec<f64> = (0..15).map(|_| time(Part::Whole) - time(Part::Rest)).collect();
    rounds.sort_by(f64::total_cmp);
    let quartile = |n: usize| rounds[rounds.len() * n / 4];
    if quartile(1) > 0.0 { format!("{:.1}", quartile(2)) } else { format!("< {:.1}", quartile(3).max(0.1)) }
}

/// Instructions of one pass: the slope between two lengths, so that what the set-up calls drops out.
fn instructions(index: usize, path: &Path) -> Result<f64, String> {
    const SHORT: u64 = 1_200;
    const LONG: u64 = 13_200;
    let slope = |is_rest: u32| -> Result<f64, String> {
        let long = callgrind(index, is_rest, LONG)?;
        let short = callgrind(index, is_rest, SHORT)?;
        Ok((long - short) as f64 / (LONG - SHORT) as f64)
    };
    let rest = if path.rest_setup.is_some() { slope(1)? } else { 0.0 };
    Ok(slope(0)? - rest)
}

/// Counts while a function of the module `counted` runs, from its first instruction to its return, with all that it
/// calls but the other CPU's answer: loops, calls and set-up are outside.
fn callgrind(index: usize, is_rest: u32, n: u64) -> Result<i64, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--toggle-collect=*counted*", "--toggle-collect=*finish_elsewhere*"])
        .arg(me)
        .env(ENV, format!("{index} {is_rest} {n}"))
        .output()
        .map_err(|_| "no valgrind".to_owned())?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.contains("Collected :")).ok_or("no count")?;
    line.rsplit(' ').next().and_then(|n| n.parse().ok()).ok_or_else(|| "no count".to_owned())
}
