//! `record --light`: what a command does, counted by the kernel, before anybody records it.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;
use tlbkit_host::recorder::EventRate;
use tlbkit_host::trial::{Count, Quantity};

use crate::lab::terminal::{Ending, Format, say};
use crate::lab::watching::{Stopping, exit_status};
use crate::output::number;
use crate::output::table::grid;

/// Runs the command and tells; its exit status is ours.
pub(super) fn count(words: &[OsString], format: Format) -> Result<Ending> {
    let (program, arguments) = words.split_first().context("--light needs a command to run, after --")?;
    let stopping = Stopping::listen()?;
    let mut command = Command::new(program);
    command.args(arguments);
    if format == Format::Json {
        // Standard output is ours alone.
        command.stdout(std::io::stderr());
    }
    let count = Count::of(command, &|| stopping.is_wanted())?;
    tell(&count, format);
    Ok(Ending::AsCommand(exit_status(count.status)))
}

/// Events that a recording would have at least: calls and switches come on top.
pub(super) fn rate(count: &Count) -> EventRate {
    let quantities = [Quantity::Faults, Quantity::Flushes, Quantity::Requests];
    EventRate {
        events: quantities.into_iter().filter_map(|quantity| count.get(quantity)).sum(),
        seconds: count.get(Quantity::Wall).unwrap_or_default(),
        cpu_seconds: count.get(Quantity::Cpu).unwrap_or_default().max(1e-3),
    }
}

fn tell(count: &Count, format: Format) {
    let rate = rate(count);
    let EventRate { events, cpu_seconds: cpu, .. } = rate;
    let (low, high) = rate.added_pct().map_or((0.0, 0.0), RangeInclusive::into_inner);
    let megabytes = rate.bytes() / 1e6;
    if format == Format::Json {
        for quantity in Quantity::ALL {
            say!("{}", json!({"kind": "counted", "quantity": quantity.label(), "value": count.get(quantity)}));
        }
        let recording = json!({"events": events, "megabytes": megabytes, "low_pct": low, "high_pct": high});
        return say!("{}", json!({"kind": "recording", "would": recording}));
    }
    let row = |quantity: Quantity| {
        let value = count.get(quantity);
        let each = value.filter(|_| !matches!(quantity, Quantity::Cpu | Quantity::Wall | Quantity::PeakMemory));
        let shown = |value: Option<f64>| value.map_or_else(|| number::NONE.to_owned(), number::plain);
        vec![quantity.label().to_owned(), shown(value), shown(each.map(|value| value / cpu))]
    };
    let head = ["counted", "in all", "a second of CPU time"].map(String::from);
    say!("{}", grid(&head, &Quantity::ALL.map(row)));
    say!("Nothing was recorded. A recording has {events:.0} events or more, about {megabytes:.1} MB while it is made,");
    say!("and would make the program {low:.0} to {high:.0} % longer in CPU time: tlbkit record -- COMMAND");
}
