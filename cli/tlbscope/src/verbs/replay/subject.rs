//! The trace that is replayed, the machine that prices it, and how complete it is.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use tlbkit_machine::Machine;
use tlbkit_replay::{Bill, Coverage, Prices, Recording, Tally};
use tlbkit_trace::FlushReason;

use crate::chosen::{ChosenArguments, Known};
use crate::machine::machine;
use crate::trace::{NO_FLUSH, check_there, read_in_part};

/// Which numbers of an answer are those of the processes that were asked about, and which those of the whole machine.
const THEIRS: &str = "shares, cycles and the counts of INVLPG, INVPCID and CR3 loads are theirs, flushes, interrupts \
    and entries lost the whole machine's";
const ALONE: &str = "RECORDED OF SOME PROCESSES ALONE: who ran on their CPUs before and after them is not known, and \
    so neither who is to be asked nor what a switch keeps; tlbscope record --all-cpus --duration 10, and here \
    --process NAME, tell";
const TOLD: &str = "own flushes are taken as the trace has them, not deduced: of processes older than it, or beside an \
    ending one";
/// Above this share of events out of order nobody knows what came before what, and no figure means anything.
const LATE: f64 = 0.01;

/// Which trace, and where it is priced.
#[derive(Args)]
pub(super) struct SubjectArguments {
    /// A trace: of `tlbscope record`, perf.data, or the text of perf script; packed by zstd or not
    trace: PathBuf,
    /// A machine of `tlbkit list machines`, or a file, such as `tlbscope calibrate` writes
    #[arg(long, default_value = "recent-vm")]
    machine: String,
    /// The policy of the kernel that recorded the trace
    #[arg(long, value_name = "POLICY", default_value = "linux-6.18")]
    pub(super) recorded_by: String,
    #[command(flatten)]
    chosen: ChosenArguments,
}

/// A trace that was read.
pub(super) struct Trace {
    pub(super) recording: Recording<'static>,
    pub(super) machine: Machine,
    pub(super) prices: Prices,
    /// Whom it is about; none if it is about everybody.
    pub(super) about: Option<String>,
}

impl SubjectArguments {
    pub(super) fn read(&self) -> Result<Trace> {
        let Self { trace, chosen, .. } = self;
        chosen.check()?;
        check_there(trace)?;
        let machine = machine(&self.machine)?;
        let in_file = || trace.display().to_string();
        let is_stream = fs::metadata(trace).is_ok_and(|data| !data.is_file() && !data.is_dir());
        ensure!(!is_stream, "{}: no file that can be read twice, as it must be: copy it into one", in_file());
        let threads = RefCell::new(BTreeMap::new());
        let is_asked = |pid: i32, process: &str, tid: i32| {
            threads.borrow_mut().insert(tid, process.to_owned());
            chosen.is_process(pid, process) && chosen.thread.is_none_or(|wanted| wanted == tid)
        };
        let file = trace.clone();
        let recording = Recording::read(move || tlbkit_trace::open(&file), &is_asked).map_err(anyhow::Error::from);
        let recording = recording.with_context(in_file)?;
        ensure!(
            recording.deduced.spaces > 0,
            "{}: no event that a replay can use; tlbscope record -o FILE -- COMMAND records those that it needs",
            in_file()
        );
        let known = recording.deduced.processes.iter().map(|process| Known {
            pid: process.pid,
            name: recording.names().text(process.comm),
            is_worth_naming: process.is_program,
        });
        chosen.check_found(known).with_context(in_file)?;
        chosen.check_thread_found(&threads.borrow()).with_context(in_file)?;
        Ok(Trace { about: chosen.words(), recording, prices: Prices::new(&machine), machine })
    }
}

impl Trace {
    /// How complete it is, in a few lines.
    pub(super) fn health(&self) -> String {
        let Recording { deduced, summary, cut, .. } = &self.recording;
        let seconds = summary.length_ns() as f64 / 1e9;
        let health = format!("{seconds:.3} s, {}; priced on {}", self.recording.health(), self.machine.name);
        let told = (deduced.told > 0).then(|| format!("{} {TOLD}", deduced.told));
        let alone = (deduced.coverage == Coverage::SomeProcesses).then(|| ALONE.to_owned());
        let caution = self.machine.caution.as_ref().map(|caution| {
            let caution = caution.replace('\n', "\\n");
            format!("prices are taken as twice as uncertain: {} says of itself: {caution}", self.machine.name)
        });
        let about = self.about.as_ref().map(|about| format!("about {about}: {THEIRS}"));
        let lines = [cut.as_ref().map(read_in_part), alone, Some(health), caution, told, about];
        lines.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }

    /// The same for programs: what is counted, and how often it occurred.
    pub(super) fn health_counts(&self) -> [(&'static str, u64); 7] {
        let health = self.recording.health();
        [
            ("events", health.events),
            ("lost events", health.lost),
            ("events out of order", health.late),
            ("unusable parts", health.damaged),
            ("cut short", u64::from(self.recording.cut.is_some())),
            ("own flushes not deduced", self.recording.deduced.told),
            ("of some processes alone", u64::from(self.recording.deduced.coverage == Coverage::SomeProcesses)),
        ]
    }

    /// Why no figure of it means anything, if so.
    pub(super) fn disorder(&self) -> Option<String> {
        let is_none = FlushReason::ALL.iter().all(|&reason| self.recording.summary.flushes(reason) == 0);
        let health = self.recording.health();
        is_none.then(|| NO_FLUSH.to_owned()).or_else(|| disorder(health.events, health.late))
    }

    /// Cycles that those whom it is about had.
    pub(super) fn cpu_cycles(&self, recorder: &Tally) -> f64 {
        let busy_ns = if self.about.is_some() { recorder.asked_busy_ns } else { recorder.busy_ns };
        (busy_ns as f64 * self.machine.system.frequency_mhz.value / 1e3).max(1.0)
    }

    /// The bill of those whom it is about.
    pub(super) fn bill(&self, tally: &Tally) -> Bill {
        if self.about.is_some() { tally.asked_bill() } else { tally.bill }
    }
}

fn disorder(events: u64, late: u64) -> Option<String> {
    (late as f64 > LATE * events as f64).then(|| {
        format!("No answer: {late} of {events} events are out of order, as where recordings are joined: replay one")
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_trace_out_of_order_supports_no_answer() {
        assert_eq!(
            [(1000, 0), (1000, 10), (0, 0)].map(|(events, late)| super::disorder(events, late)),
            [None, None, None]
        );
        assert!(super::disorder(1000, 11).unwrap().starts_with("No answer: 11 of 1000 events are out of order"));
    }
}
