//! `tlbscope blame`: who flushes, why, what it takes away, and whom it interrupts.

mod account;
mod remedy;
mod tables;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, ensure};
use clap::Args;
use tempfile::TempDir;
use tlbkit_host::recorder::available;
use tlbkit_output::fitting::fitting;
use tlbkit_output::say;
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_trace::{Blame, EVENTS, open};

use crate::chosen::{Chosen, ChosenArguments, Known};
use crate::recording::{Gaps, MEGABYTES_MAX, Recording};
use crate::trace::check_there;
use crate::watching::WatchArguments;
use account::Account;

/// The recording, in a folder of its own.
const LIVE: &str = "live.tlbtrace";
/// How to get more.
const MORE: &str = "tlbscope record --stacks --megabytes-max makes a longer recording, which blame reads";

/// Whom to blame.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbscope record --stacks -o slow.tlbtrace -- ./service --once\n  \
    tlbscope blame slow.tlbtrace\n  tlbscope blame --live -- ./service --once\n  \
    tlbscope blame --live --duration 5 --process redis-server")]
pub(crate) struct BlameArguments {
    /// A trace: of `tlbscope record`, perf.data, or the text of perf script; packed by zstd or not
    #[arg(required_unless_present = "live", conflicts_with = "live")]
    trace: Option<PathBuf>,
    /// Record now, with call stacks: the command after --, or this machine for --duration
    #[arg(long)]
    live: bool,
    /// End the live recording after so many seconds
    #[arg(long, value_name = "SECONDS", requires = "live")]
    duration: Option<f64>,
    /// Rows to show, the dearest first
    #[arg(long, value_name = "ROWS", default_value_t = 10)]
    top: usize,
    #[command(flatten)]
    chosen: ChosenArguments,
    /// The command to record; what it writes goes to standard error
    #[arg(last = true, requires = "live")]
    command: Vec<OsString>,
}

/// Reads, and tells.
pub(crate) fn execute(arguments: &BlameArguments, format: Format) -> Result<Ending> {
    arguments.chosen.check()?;
    ensure!(arguments.top >= 1, "--top 0: must be 1 or more");
    // That a trace excludes --live makes clap forget that these need it.
    let has_more = !arguments.command.is_empty() || arguments.duration.is_some();
    ensure!(arguments.live || !has_more, "a command and --duration are of --live, and a trace is there already");
    let Live { account, gaps, ending } = match &arguments.trace {
        Some(trace) => {
            let account = read(trace, &arguments.chosen, None)?;
            Live { account, gaps: None, ending: Ending::AsExpected }
        }
        None => live(arguments)?,
    };
    match format {
        Format::Json => {
            tables::json(&account).into_iter().chain(gaps.iter().map(Gaps::json)).for_each(|row| say!("{row}"));
        }
        Format::Text => {
            gaps.iter().flat_map(|gaps| gaps.lines(MORE)).for_each(|line| say!("{line}"));
            say!("{}", fitting(&tables::text(&account, arguments.top)));
        }
    }
    Ok(ending)
}

/// An account, what its recording lacks if we made it, and how the command ended.
struct Live {
    account: Account,
    gaps: Option<Gaps>,
    ending: Ending,
}

/// Records, and reads that. The command ends as it ends without us.
fn live(arguments: &BlameArguments) -> Result<Live> {
    ensure!(
        !arguments.command.is_empty() || arguments.duration.is_some(),
        "nobody to watch: want a command after --, or --duration"
    );
    let subject = WatchArguments::with_stacks(&arguments.command, arguments.duration);
    subject.check()?;
    let available = available(EVENTS)?;
    let folder = tempfile::Builder::new().prefix("tlbkit-blame-").tempdir()?;
    let output = folder.path().join(LIVE);
    let recording = Recording {
        subject: &subject,
        output: &output,
        megabytes_max: MEGABYTES_MAX,
        available: &available,
        // What the command writes is no part of the answer.
        format: Format::Json,
        after_second: &|_| {},
    };
    let recorded = recording.make()?;
    let account = match read(&output, &arguments.chosen, recorded.run.pid) {
        Err(error) if arguments.chosen.is_named() => return Err(kept(&error, folder)),
        account => account?,
    };
    Ok(Live { account, gaps: Some(Gaps::of(&recorded)), ending: recorded.run.ending() })
}

/// An error that names what was recorded: who asks about somebody that is not in it need not record again.
fn kept(error: &Error, folder: TempDir) -> Error {
    let trace = folder.keep().join(LIVE);
    anyhow!("{error:#}; the recording is kept for another question: tlbscope blame {}", trace.display())
}

fn read(trace: &Path, arguments: &ChosenArguments, command: Option<i32>) -> Result<Account> {
    let mut chosen = Chosen::new(arguments, command);
    let in_input = || trace.display().to_string();
    check_there(trace)?;
    let mut source = open(trace).with_context(in_input)?;
    let mut blame = chosen.thread().map_or_else(Blame::default, Blame::of_thread);
    let mut cut = None;
    let mut threads = BTreeMap::new();
    loop {
        match source.next_event() {
            Ok(Some(event)) => {
                chosen.meet(&event);
                if chosen.thread().is_some() {
                    threads.entry(event.tid).or_insert_with(|| source.names().text(event.comm).to_owned());
                }
                blame.add(&event, source.names());
            }
            Ok(None) => break,
            Err(error) if source.health().events == 0 => return Err(error).with_context(in_input),
            Err(error) => {
                cut = Some(error.to_string());
                break;
            }
        }
    }
    let refused = cut.as_ref().map_or_else(String::new, |error| format!(" ({error})"));
    ensure!(
        source.health().events > 0,
        "{}: no event that can be read{refused}; tlbscope record -o FILE -- COMMAND records those that are needed",
        in_input()
    );
    arguments.check_thread_found(&threads).with_context(in_input)?;
    let names = source.names();
    let owners: HashSet<_> = blame.rows().iter().map(|row| row.owner).collect();
    let processes = blame.cpu_ns().into_keys().map(|owner| Known {
        pid: owner.pid,
        name: names.text(owner.program),
        is_worth_naming: owners.contains(&owner),
    });
    arguments.check_found(processes).with_context(in_input)?;
    Ok(Account::new(&blame, source.as_ref(), cut, &chosen))
}
