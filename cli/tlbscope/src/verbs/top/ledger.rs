//! Which program's shootdowns cost how much, of itself and of others: in one interval, or in all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use tlbkit_trace::Event;
use tlbkit_trace::blame::Shootdown;

/// Programs that are told apart; those that come later are one. A fleet must not be flooded by names.
const PROGRAMS_MAX: usize = 1000;
const OTHERS: &str = "(others)";

/// The names of processes, as `ps -o comm` has them. An event has that of a thread, which may be another one.
#[derive(Default)]
pub(super) struct People(FxHashMap<i32, String>);

impl People {
    /// More are forgotten: numbers come again, with other names.
    const MOST: usize = 10_000;

    /// An event of a process that may soon be gone; `thread` is what it says of itself.
    pub(super) fn meet(&mut self, event: &Event, thread: impl FnOnce() -> String) {
        if self.0.len() > Self::MOST {
            self.0.clear();
        }
        self.0.entry(event.pid).or_insert_with(|| match event.pid {
            0 => "idle".to_owned(),
            pid => fs::read_to_string(format!("/proc/{pid}/comm"))
                .map_or_else(|_| thread(), |name| name.trim_end().to_owned()),
        });
    }

    fn name(&self, pid: i32) -> &str {
        self.0.get(&pid).map_or("(unknown)", String::as_str)
    }
}

/// What one program did, and what it met.
#[derive(Clone, Default)]
pub(super) struct Program {
    pub(super) pids: BTreeSet<i32>,
    pub(super) flushes: u64,
    pub(super) pages: u64,
    pub(super) everything: u64,
    /// Flushes that asked other CPUs.
    pub(super) asked: u64,
    /// How long it waited for their answers, in nanoseconds.
    pub(super) own_ns: u64,
    /// How often others were interrupted for it, whom that met, and for how long, in nanoseconds.
    pub(super) interrupts: u64,
    pub(super) whom: BTreeMap<String, u64>,
    pub(super) others_ns: u64,
}

impl Program {
    fn add(&mut self, other: &Self) {
        self.pids.extend(&other.pids);
        self.flushes += other.flushes;
        self.pages += other.pages;
        self.everything += other.everything;
        self.asked += other.asked;
        self.own_ns += other.own_ns;
        self.interrupts += other.interrupts;
        self.others_ns += other.others_ns;
        for (whom, times) in &other.whom {
            *self.whom.entry(whom.clone()).or_default() += times;
        }
    }

    /// Whom it interrupted most.
    pub(super) fn whom_most(&self) -> Option<&str> {
        self.whom.iter().max_by_key(|&(_, times)| *times).map(|(whom, _)| whom.as_str())
    }
}

/// What the programs are ordered by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Cost,
    Others,
    Flushes,
    Interrupts,
    Name,
}

impl Order {
    pub(super) const ALL: [(char, Self, &str); 5] = [
        ('c', Self::Cost, "cost"),
        ('o', Self::Others, "others"),
        ('f', Self::Flushes, "flushes"),
        ('i', Self::Interrupts, "interrupts"),
        ('n', Self::Name, "name"),
    ];

    pub(super) fn label(self) -> &'static str {
        Self::ALL.iter().find(|(_, order, _)| *order == self).map_or("", |(_, _, label)| label)
    }
}

/// All programs of an interval, by name.
#[derive(Clone, Default)]
pub(super) struct Ledger {
    pub(super) programs: BTreeMap<String, Program>,
    pub(super) seconds: f64,
    pub(super) lost: u64,
}

impl Ledger {
    /// What was counted in an interval of so many seconds.
    pub(super) fn of(counts: FxHashMap<i32, Shootdown>, people: &People, seconds: f64) -> Self {
        let mut ledger = Self { seconds, ..Self::default() };
        for (pid, Shootdown { flushes, pages, everything, asked, waited_ns, interrupted }) in counts {
            let (mut interrupts, mut others_ns, mut whom) = (0, 0, BTreeMap::new());
            for (other, count) in interrupted {
                interrupts += count.times;
                others_ns += count.took_ns;
                *whom.entry(people.name(other).to_owned()).or_default() += count.times;
            }
            let pids = BTreeSet::from([pid]);
            let own_ns = waited_ns;
            let program = Program { pids, flushes, pages, everything, asked, own_ns, interrupts, whom, others_ns };
            ledger.enter(people.name(pid), &program);
        }
        ledger
    }

    fn enter(&mut self, name: &str, program: &Program) {
        let is_full = self.programs.len() >= PROGRAMS_MAX && !self.programs.contains_key(name);
        self.programs.entry(if is_full { OTHERS } else { name }.to_owned()).or_default().add(program);
    }

    pub(super) fn add(&mut self, other: &Self) {
        other.programs.iter().for_each(|(name, program)| self.enter(name, program));
        self.seconds += other.seconds;
        self.lost = self.lost.max(other.lost);
    }

    /// Programs whose names hold `part`, the first by `order` first.
    pub(super) fn sorted(&self, order: Order, part: &str) -> Vec<(&str, &Program)> {
        let named = self.programs.iter().map(|(name, program)| (name.as_str(), program));
        let mut all: Vec<_> = named.filter(|(name, _)| name.contains(part)).collect();
        all.sort_by_key(|(_, program)| match order {
            Order::Cost => Reverse((program.own_ns + program.others_ns, program.flushes)),
            Order::Others => Reverse((program.others_ns, program.interrupts)),
            Order::Flushes => Reverse((program.flushes, 0)),
            Order::Interrupts => Reverse((program.interrupts, 0)),
            Order::Name => Reverse((0, 0)),
        });
        all
    }

    pub(super) fn sum(&self) -> Program {
        let mut sum = Program::default();
        self.programs.values().for_each(|program| sum.add(program));
        sum
    }

    /// For programs: a row each.
    pub(super) fn json(&self, kind: &str) -> Vec<Value> {
        let row = |(name, program): (&str, &Program)| {
            json!({
                "kind": kind, "seconds": self.seconds, "program": name, "processes": program.pids.len(),
                "flushes": program.flushes, "pages": program.pages, "everything": program.everything,
                "asked": program.asked, "own_ns": program.own_ns, "interrupts": program.interrupts,
                "others_ns": program.others_ns, "whom": program.whom, "lost": self.lost,
            })
        };
        self.sorted(Order::Cost, "").into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(flushes: u64, own_ns: u64, others_ns: u64) -> Program {
        Program { flushes, own_ns, others_ns, ..Program::default() }
    }

    #[test]
    fn programs_are_ordered_and_chosen_by_a_part_of_their_names() {
        let mut ledger = Ledger::default();
        ledger.enter("redis", &program(1, 500, 1));
        ledger.enter("java", &program(9, 100, 300));
        let names = |order, part: &str| -> Vec<&str> { ledger.sorted(order, part).iter().map(|row| row.0).collect() };
        assert_eq!(names(Order::Cost, ""), ["redis", "java"]);
        assert_eq!(names(Order::Others, ""), ["java", "redis"]);
        assert_eq!(names(Order::Flushes, ""), ["java", "redis"]);
        assert_eq!((names(Order::Name, ""), names(Order::Cost, "av")), (vec!["java", "redis"], vec!["java"]));
    }

    #[test]
    fn names_without_end_are_one_program_from_some_number_on() {
        let mut ledger = Ledger::default();
        (0..PROGRAMS_MAX as u64 + 50).for_each(|n| ledger.enter(&format!("p{n}"), &program(1, 0, 0)));
        assert_eq!(ledger.programs.len(), PROGRAMS_MAX + 1);
        assert_eq!(ledger.programs[OTHERS].flushes, 50);
        assert_eq!(ledger.sum().flushes, PROGRAMS_MAX as u64 + 50);
    }
}
