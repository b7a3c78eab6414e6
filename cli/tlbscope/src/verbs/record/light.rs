//! `record --light`: what a command does, counted by the kernel, before anybody records it.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;
use tlbkit_host::recorder::EventRate;
use tlbkit_host::trial::{Count, Counting, Quantity};
use tlbkit_output::number;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::table::grid;
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_output::{note, say};

use super::compared::{self, Comparison, Pairs};
use super::predicted::rate;
use crate::watching::exit_status;

/// Runs the command and tells; its exit status is ours, or that of the signal that stopped us. With `pairs`, what
/// counting itself costs as well.
pub(super) fn count(words: &[OsString], pairs: Option<usize>, format: Format) -> Result<Ending> {
    let (program, arguments) = words.split_first().context("--light needs a command to run, after --")?;
    let stopping = Stopping::listen()?;
    let once = |counting| {
        let mut command = Command::new(program);
        command.args(arguments);
        if format == Format::Json {
            // Standard output is ours alone.
            command.stdout(std::io::stderr());
        }
        Ok::<_, anyhow::Error>(Count::of(command, counting, &|| stopping.is_wanted())?)
    };
    let (count, extent, compared) = match pairs {
        None => {
            let count = once(Counting::Flushes)?;
            let extent = if stopping.is_wanted() { Extent::CutShort } else { Extent::Whole };
            (count, extent, Comparison::NotAsked)
        }
        Some(pairs) => match compared::counted(pairs, &stopping, once)? {
            Pairs::Done(last, compared) => (last, Extent::Whole, Comparison::Done(compared)),
            Pairs::Stopped(Some(last), _) => (last, Extent::Whole, Comparison::Stopped),
            Pairs::Stopped(None, ending) => {
                note!("tlbscope: stopped before a run was counted to its end");
                return Ok(ending);
            }
        },
    };
    tell(&count, extent, &compared, format);
    let is_stopped = extent == Extent::CutShort || matches!(compared, Comparison::Stopped);
    Ok(if is_stopped { stopping.ending() } else { Ending::AsCommand(exit_status(count.status)) })
}

/// How much of the command was counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    /// What it did until a signal stopped us, and we stopped it.
    CutShort,
}

fn tell(count: &Count, extent: Extent, compared: &Comparison, format: Format) {
    let rate = rate(count);
    let EventRate { events, cpu_seconds: cpu, .. } = rate;
    let (low, high) = rate.added_pct().map_or((0.0, 0.0), RangeInclusive::into_inner);
    let megabytes = rate.bytes() / 1e6;
    if format == Format::Json {
        for quantity in Quantity::ALL {
            say!("{}", json!({"kind": "counted", "quantity": quantity.label(), "value": count.get(quantity)}));
        }
        let recording = json!({"events": events, "megabytes": megabytes, "low_pct": low, "high_pct": high});
        return say!(
            "{}",
            json!({
                "kind": "recording", "would": recording, "counting": compared.json(),
                "is_cut_short": extent == Extent::CutShort,
                "is_comparison_stopped": matches!(compared, Comparison::Stopped),
            })
        );
    }
    let row = |quantity: Quantity| {
        let value = count.get(quantity);
        let each = value.filter(|_| !matches!(quantity, Quantity::Cpu | Quantity::Wall | Quantity::PeakMemory));
        let shown = |value: Option<f64>| value.map_or_else(|| number::NONE.to_owned(), number::plain);
        vec![quantity.label().to_owned(), shown(value), shown(each.map(|value| value / cpu))]
    };
    let head = ["counted", "in all", "a second of CPU time"].map(String::from);
    say!("{}", grid(&head, &Quantity::ALL.map(row)));
    if extent == Extent::CutShort {
        let seconds = count.get(Quantity::Wall).unwrap_or(0.0);
        say!("CUT SHORT by a signal, which ended the command as well: all figures are of its first {seconds:.3} s");
    }
    say!("Nothing was recorded. A recording has {events:.0} events or more, about {megabytes:.1} MB while it is made,");
    say!("and would make the program {low:.0} to {high:.0} % longer in CPU time: tlbscope record -- COMMAND");
    match compared {
        Comparison::NotAsked => {}
        Comparison::Stopped => say!("counting: {}", compared::STOPPED),
        Comparison::Done(compared) => say!("counting: {}", compared.text()),
    }
}
