//! A trace and the machine that it is priced on: what `replay` and `tune` have in common.

mod why;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use tlbkit_machine::Machine;
use tlbkit_output::file::{check_apart, check_place};
use tlbkit_output::kind::Kind;
use tlbkit_output::table::grid;
use tlbkit_replay::{
    Agreement, Bill, Coverage, Deduced, Paging, Prices, Recording, Tally, agreement, read_about, read_both,
};
use tlbkit_trace::FlushReason;

pub(crate) use why::{AGREES, ROW_LEAST};

use crate::chosen::{Chosen, ChosenArguments, Known};
use crate::machine::{machine, own_file};
use crate::sheet::SheetPart;

/// The message when a replay fails: it reads what was put aside for it in the folder of temporary files.
pub(crate) const UNREAD: &str = "what the trace asks of a kernel cannot be read again";

/// The message for a trace without any flush: a replay could be judged by nothing, and there is nothing to blame.
pub(crate) const NO_FLUSH: &str =
    "No flush was recorded: the trace has no event tlb:tlb_flush, which `tlbscope record` asks for";

/// Which numbers of an answer are those of the processes that were asked about, and which those of the whole machine.
const THEIRS: &str = "cycles, gains and the counts of INVLPG, INVPCID and CR3 loads are theirs, \
    flushes, interrupts and entries lost the whole machine's";

/// Which trace, and where it is priced.
#[derive(Args)]
pub(crate) struct TraceArguments {
    /// A trace: of `tlbscope record`, perf.data, or the text of perf script; packed by zstd or not
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) pricing: PricingArguments,
    #[command(flatten)]
    pub(crate) chosen: ChosenArguments,
    /// The command that was recorded, if we did it: asked about where nobody is named.
    #[arg(skip)]
    pub(crate) command: Option<i32>,
}

/// By whom a trace was recorded, and where it is priced.
#[derive(Args, Clone)]
pub(crate) struct PricingArguments {
    /// A machine of `tlbkit list machines`, or a file, such as `tlbscope calibrate` writes
    #[arg(long, default_value = "recent-vm")]
    pub(crate) machine: String,
    /// The policy of the kernel that recorded the trace
    #[arg(long, value_name = "POLICY", default_value = "linux-6.18")]
    pub(crate) recorded_by: String,
}

/// A trace that was read.
pub(crate) struct Trace {
    pub(crate) recording: Recording,
    pub(crate) machine: Machine,
    pub(crate) prices: Prices,
    /// Whom it is about; none if it is about everybody.
    pub(crate) about: Option<String>,
    /// The file, for headings.
    pub(crate) name: String,
}

/// What is said above every answer about a trace whose reading `error` has ended early.
pub(crate) fn read_in_part(error: &impl Display) -> String {
    format!("READ IN PART ({error}): what follows is about the events before")
}

/// Refuses a trace that is not there, and says how one is made.
pub(crate) fn check_there(trace: &Path) -> Result<()> {
    let is_missing = fs::metadata(trace).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let name = trace.display();
    ensure!(!is_missing, "{name}: no such file; tlbscope record -o {name} -- COMMAND makes one");
    Ok(())
}

/// Refuses outputs that cannot be written, and outputs that would overwrite the trace, the machine file or each other.
/// Each output comes with the option that names it, its kind, and a file if that option was given.
pub(crate) fn check_outputs(
    outputs: &[(&str, Kind, Option<&Path>)],
    trace: Option<&Path>,
    machine: &str,
) -> Result<()> {
    let given: Vec<_> = outputs.iter().filter_map(|&(option, kind, file)| Some((option, file?, Some(kind)))).collect();
    let read = [trace.map(|trace| ("the trace", trace)), own_file(machine).map(|file| ("the machine file", file))];
    check_apart(&given, &read.into_iter().flatten().collect::<Vec<_>>())?;
    given.iter().try_for_each(|(_, file, _)| check_place(file))
}

impl TraceArguments {
    /// As [`check_outputs`] does.
    pub(crate) fn check_outputs(&self, outputs: &[(&str, Kind, Option<&Path>)]) -> Result<()> {
        check_outputs(outputs, Some(&self.trace), &self.pricing.machine)
    }

    pub(crate) fn read(&self) -> Result<Trace> {
        self.read_by(|is_asked| read_about(|| tlbkit_trace::open(&self.trace), Paging::AsRecorded, is_asked))
    }

    /// The trace, and what it asks of a kernel with huge pages.
    pub(crate) fn read_both(&self) -> Result<(Trace, Deduced)> {
        let mut with_huge = None;
        let trace = self.read_by(|is_asked| {
            let (recording, huge) = read_both(|| tlbkit_trace::open(&self.trace), is_asked)?;
            with_huge = Some(huge);
            Ok(recording)
        })?;
        Ok((trace, with_huge.unwrap_or_default()))
    }

    /// Reads the trace by `read`, and checks that it has what was asked about. `read` is given a function that says
    /// whether a thread is asked about, by its process, the name of that, and its own number.
    fn read_by(
        &self,
        read: impl FnOnce(&dyn Fn(i32, &str, i32) -> bool) -> Result<Recording, tlbkit_trace::Error>,
    ) -> Result<Trace> {
        self.chosen.check()?;
        check_there(&self.trace)?;
        let machine = machine(&self.pricing.machine)?;
        let in_file = || self.trace.display().to_string();
        let is_stream = fs::metadata(&self.trace).is_ok_and(|data| !data.is_file() && !data.is_dir());
        ensure!(!is_stream, "{}: no file that can be read twice, as it must be: copy it into one", in_file());
        let chosen = self.chosen().with_context(in_file)?;
        let threads = RefCell::new(BTreeMap::new());
        let is_asked = |pid: i32, process: &str, tid: i32| {
            if chosen.thread().is_some() {
                threads.borrow_mut().insert(tid, process.to_owned());
            }
            chosen.is_thread(pid, process, tid)
        };
        let recording = read(&is_asked).with_context(in_file)?;
        ensure!(
            recording.deduced.spaces > 0,
            "{}: no event that a replay can use; tlbscope record -o FILE -- COMMAND records those that it needs",
            in_file()
        );
        self.check_found(&recording).with_context(in_file)?;
        self.chosen.check_thread_found(&threads.borrow()).with_context(in_file)?;
        let name = self.trace.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let about = Chosen::new(&self.chosen, self.command).words();
        Ok(Trace { about, recording, prices: Prices::new(&machine), machine, name })
    }

    /// Whether the trace has the process that is asked about, if one is.
    fn check_found(&self, recording: &Recording) -> Result<()> {
        let names = recording.names();
        let known = recording.deduced.processes.iter().map(|process| Known {
            pid: process.pid,
            name: names.text(process.comm),
            is_worth_naming: process.is_program,
        });
        self.chosen.check_found(known)
    }

    /// Whom it is about, once the trace has told who started whom.
    fn chosen(&self) -> Result<Chosen, tlbkit_trace::Error> {
        let mut chosen = Chosen::new(&self.chosen, self.command);
        if chosen.wants_events() {
            let mut source = tlbkit_trace::open(&self.trace)?;
            // What ends this reading ends the next one at the same place.
            while let Ok(Some(event)) = source.next_event() {
                chosen.meet(&event);
            }
        }
        Ok(chosen)
    }
}

impl Trace {
    /// What is missing, in a few lines: it belongs above every answer.
    pub(crate) fn health(&self) -> String {
        let seconds = self.recording.summary.length_ns() as f64 / 1e9;
        let health = format!("{}: {seconds:.3} s, {}", self.name, self.recording.health());
        let about = self.about.as_ref().map(|about| format!("about {about}: {THEIRS}"));
        [Some(health), self.cut(), self.without_flushes(), self.of_some_alone(), self.told(), about]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// What is missing, for programs: what is counted, and how often it occurred.
    pub(crate) fn health_counts(&self) -> [(&'static str, u64); 7] {
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

    /// Says that others were not recorded, if they were not, and what would.
    fn of_some_alone(&self) -> Option<String> {
        let words = "RECORDED OF SOME PROCESSES ALONE: who ran on their CPUs before and after them is not known, and \
            so neither who is to be asked nor what a switch keeps; tlbscope record --all-cpus --duration 10, and here \
            --process NAME, tell";
        (self.recording.deduced.coverage == Coverage::SomeProcesses).then(|| words.to_owned())
    }

    /// Says that the trace has no flush, if it has none.
    fn without_flushes(&self) -> Option<String> {
        let is_none = FlushReason::ALL.iter().all(|&reason| self.recording.summary.flushes(reason) == 0);
        is_none.then(|| NO_FLUSH.to_owned())
    }

    /// What the agreement cannot vouch for.
    fn told(&self) -> Option<String> {
        let told = self.recording.deduced.told;
        let words = "own flushes are taken as the trace has them, not deduced: of processes older than it, or beside \
            an ending one";
        (told > 0).then(|| format!("{told} {words}"))
    }

    /// What the prices lack, if anything: of settings that save faults it matters.
    pub(crate) fn lacking(&self) -> Option<String> {
        let lacking = Prices::lacking(&self.machine);
        let name = &self.machine.name;
        (!lacking.is_empty()).then(|| {
            format!("{name} has no price of {}: put together of its other numbers, in wide bands", lacking.join(", "))
        })
    }

    /// Why the trace ends early, if it does.
    fn cut(&self) -> Option<String> {
        self.recording.cut.as_ref().map(read_in_part)
    }

    pub(crate) fn agreement(&self, recorder: &Tally) -> Vec<Agreement> {
        agreement(&self.recording.summary, recorder, &self.recording.deduced)
    }

    /// The table of the agreement, and why a row of it is bad.
    pub(crate) fn agreement_table(&self, recorder: &Tally) -> String {
        let rows = self.agreement(recorder);
        let (head, cells) = agreement_cells(&rows);
        let reasons = self.reasons(&rows).into_iter().map(|line| format!("- {line}\n"));
        grid(&head, &cells) + &reasons.collect::<String>()
    }

    /// The agreement for a page: the table, why a row of it is bad, and what the rows are.
    pub(crate) fn agreement_parts(&self, recorder: &Tally) -> Vec<SheetPart> {
        let rows = self.agreement(recorder);
        let (head, cells) = agreement_cells(&rows);
        let words = self.reasons(&rows).into_iter().chain(TERMS.map(String::from)).map(SheetPart::Words);
        [SheetPart::Table(head, cells)].into_iter().chain(words).collect()
    }

    fn reasons(&self, rows: &[Agreement]) -> Vec<String> {
        why::reasons(rows, self.recording.deduced.coverage)
    }

    /// What a page says of itself, a paragraph each.
    pub(crate) fn about(&self) -> Vec<String> {
        let priced = format!("Priced on {}.", self.machine.name);
        self.health().lines().map(str::to_owned).chain([priced]).collect()
    }

    /// Cycles that programs had in all.
    pub(crate) fn machine_cycles(&self, recorder: &Tally) -> f64 {
        self.cycles(recorder.busy_ns)
    }

    /// Cycles that those whom it is about had.
    pub(crate) fn cpu_cycles(&self, recorder: &Tally) -> f64 {
        self.cycles(if self.about.is_some() { recorder.asked_busy_ns } else { recorder.busy_ns })
    }

    fn cycles(&self, busy_ns: u64) -> f64 {
        (busy_ns as f64 * self.machine.system.frequency_mhz.value / 1e3).max(1.0)
    }

    /// Whose bill it is about.
    pub(crate) fn billing(&self) -> Billing {
        if self.about.is_some() { Billing::Asked } else { Billing::Everybody }
    }

    /// The bill of those whom it is about.
    pub(crate) fn bill(&self, tally: &Tally) -> Bill {
        self.billing().of(tally)
    }
}

/// Whose bill is looked at.
#[derive(Clone, Copy)]
pub(crate) enum Billing {
    Everybody,
    /// Those whom the reader asks about.
    Asked,
}

impl Billing {
    pub(crate) fn of(self, tally: &Tally) -> Bill {
        match self {
            Self::Everybody => tally.bill,
            Self::Asked => tally.asked_bill(),
        }
    }
}

/// What the rows of an agreement are, for readers who do not know Linux's words for them.
const TERMS: [&str; 3] = [
    "local mm shootdown: a CPU's own half of a flush, by the pages that it named; all: the whole space. remote IPI \
     send: a flush for which other CPUs were asked. remote shootdown: the half of a CPU that was asked; remote wrong \
     CPU: it was asked, and ran something else by then. interrupts sent: one for each CPU that was asked.",
    "task switch: what a switch to a space did with the entries that the TLB still had of it: kept or flushed.",
    "of it told: the replay took it from the recording, so it agrees of itself; the last column is of the rest.",
];

fn agreement_cells(rows: &[Agreement]) -> (Vec<String>, Vec<Vec<String>>) {
    let row = |row: &Agreement| {
        let percent = row.percent().map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1}"));
        vec![row.quantity.label(), row.recorded.to_string(), row.told.to_string(), row.replayed.to_string(), percent]
    };
    (
        ["agreement", "recorded", "of it told", "replayed", "% of the rest"].map(String::from).to_vec(),
        rows.iter().map(row).collect(),
    )
}
