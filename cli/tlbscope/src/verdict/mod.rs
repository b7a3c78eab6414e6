//! From a trace to what is to be done: `account` (who flushes, why, and what it costs), `remedies` (what helps),
//! `cause` (what that comes to for one program), `screen` (the answer for a person), `tables` (everything).

mod account;
mod cause;
mod remedies;
mod screen;
mod tables;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tlbkit_host::recorder::EVENT_US;
use tlbkit_trace::{Blame, open};

use crate::chosen::{Chosen, ChosenArguments, Known};
use crate::trace::check_there;
use account::Account;
use cause::Verdict;

/// A trace, explained.
pub(crate) struct Explained {
    account: Account,
    recording: Made,
}

/// How a trace was recorded.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    /// What an event took, from the cheapest kind to the dearest, in microseconds of CPU time.
    pub(crate) event_us: [f64; 2],
    /// CPU time of the command, as the kernel counts it, in seconds, if one was recorded. The events of a trace count
    /// what a host took away meanwhile as well.
    pub(crate) cpu_seconds: Option<f64>,
}

impl Default for Made {
    /// Nobody knows.
    fn default() -> Self {
        Self { event_us: EVENT_US, cpu_seconds: None }
    }
}

impl Explained {
    /// Reads a trace, about whom `arguments` name, or else about the process `command` and what it started.
    pub(crate) fn read(
        trace: &Path,
        arguments: &ChosenArguments,
        command: Option<i32>,
        recording: Made,
    ) -> Result<Self> {
        let account = read(trace, arguments, command)?;
        Ok(Self { account, recording })
    }

    /// One screen.
    pub(crate) fn screen(&self) -> String {
        screen::text(&self.account, &Verdict::new(&self.account, self.recording.event_us, self.recording.cpu_seconds))
    }

    /// Every row, of each table at most so many.
    pub(crate) fn tables(&self, most: usize) -> String {
        tables::text(&self.account, most)
    }

    /// What a flame graph is made of.
    pub(crate) fn folded(&self) -> Vec<String> {
        tables::folded(&self.account)
    }

    /// Everything, for programs.
    pub(crate) fn json(&self) -> Vec<Value> {
        let verdict = screen::json(&Verdict::new(&self.account, self.recording.event_us, self.recording.cpu_seconds));
        verdict.into_iter().chain(tables::json(&self.account)).collect()
    }
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
