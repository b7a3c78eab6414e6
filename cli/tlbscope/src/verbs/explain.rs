//! `tlbscope explain`: what the TLB and what feeds it cost a program, why, and what to do.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Error, Result, anyhow, ensure};
use clap::Args;
use tempfile::TempDir;
use tlbkit_host::recorder::available;
use tlbkit_output::fitting::fitting;
use tlbkit_output::say;
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_trace::EVENTS;

use crate::chosen::ChosenArguments;
use crate::recording::{Gaps, MEGABYTES_MAX, Recording};
use crate::verdict::{Explained, Made};
use crate::watching::WatchArguments;

/// The recording, in a temporary folder.
const LIVE: &str = "live.tlbtrace";
/// How to get more.
const MORE: &str = "tlbscope record --megabytes-max makes a longer recording, which explain reads";

/// What to explain.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbscope record -o slow.tlbtrace -- ./service --once\n  \
    tlbscope explain slow.tlbtrace\n  tlbscope explain --live -- ./service --once\n  \
    tlbscope explain --live --duration 5 --process redis-server\n  \
    tlbscope explain slow.tlbtrace --folded | flamegraph.pl > slow.svg")]
pub(crate) struct ExplainArguments {
    /// A trace: of `tlbscope record`, perf.data, or the text of perf script; packed by zstd or not
    #[arg(required_unless_present = "live", conflicts_with = "live")]
    trace: Option<PathBuf>,
    /// Record now, with call stacks: the command after --, or this machine for --duration
    #[arg(long)]
    live: bool,
    /// End the live recording after so many seconds
    #[arg(long, value_name = "SECONDS", requires = "live")]
    duration: Option<f64>,
    /// Every row as well: who flushes, how often, how large, and whom it interrupts
    #[arg(long)]
    full: bool,
    /// In place of the answer a line for each cause and caller, with microseconds: what a flame graph is made of
    #[arg(long, conflicts_with = "full")]
    folded: bool,
    /// Rows to show with --full, the dearest first
    #[arg(long, value_name = "ROWS", default_value_t = 10)]
    top: usize,
    #[command(flatten)]
    chosen: ChosenArguments,
    /// The command to record; what it writes goes to standard error
    #[arg(last = true, requires = "live")]
    command: Vec<OsString>,
}

/// Reads, and tells.
pub(crate) fn execute(arguments: &ExplainArguments, format: Format) -> Result<Ending> {
    arguments.chosen.check()?;
    ensure!(!arguments.folded || format == Format::Text, "--folded has a form of its own: leave --json off");
    ensure!(arguments.top >= 1, "--top 0: must be 1 or more");
    // That a trace excludes --live makes clap forget that these need it.
    let has_more = !arguments.command.is_empty() || arguments.duration.is_some();
    ensure!(arguments.live || !has_more, "a command and --duration are of --live, and a trace is there already");
    let Live { explained, gaps, ending } = match &arguments.trace {
        Some(trace) => {
            let explained = Explained::read(trace, &arguments.chosen, None, Made::default())?;
            Live { explained, gaps: None, ending: Ending::AsExpected }
        }
        None => live(arguments)?,
    };
    match format {
        _ if arguments.folded => explained.folded().iter().for_each(|line| say!("{line}")),
        Format::Json => {
            explained.json().into_iter().chain(gaps.iter().map(Gaps::json)).for_each(|row| say!("{row}"));
        }
        Format::Text => {
            gaps.iter().flat_map(|gaps| gaps.lines(MORE)).for_each(|line| say!("{line}"));
            say!("{}", explained.screen());
            if arguments.full {
                say!("{}", fitting(&explained.tables(arguments.top)));
            }
        }
    }
    Ok(ending)
}

/// An answer, what its recording lacks if we made it, and how the command ended.
struct Live {
    explained: Explained,
    gaps: Option<Gaps>,
    ending: Ending,
}

/// Records, and reads that. The command ends as it ends without us.
fn live(arguments: &ExplainArguments) -> Result<Live> {
    ensure!(
        !arguments.command.is_empty() || arguments.duration.is_some(),
        "nobody to watch: want a command after --, or --duration"
    );
    let subject = WatchArguments::of_command_or_all(&arguments.command, arguments.duration);
    subject.check()?;
    let available = available(EVENTS)?;
    let folder = tempfile::Builder::new().prefix("tlbscope-explain-").tempdir()?;
    let output = folder.path().join(LIVE);
    let recording = Recording {
        subject: &subject,
        output: &output,
        megabytes_max: MEGABYTES_MAX,
        available: &available,
        // What the command writes is no part of the answer.
        format: Format::Json,
    };
    let recorded = recording.make()?;
    let explained = match Explained::read(&output, &arguments.chosen, recorded.run.pid, recorded.made()) {
        Err(error) if arguments.chosen.is_named() => return Err(kept(&error, folder)),
        explained => explained?,
    };
    Ok(Live { explained, gaps: Some(Gaps::of(&recorded)), ending: recorded.run.ending() })
}

/// An error that names what was recorded: who asks about somebody that is not in it need not record again.
fn kept(error: &Error, folder: TempDir) -> Error {
    let trace = folder.keep().join(LIVE);
    anyhow!("{error:#}; the recording is kept for another question: tlbscope explain {}", trace.display())
}
