//! Which processes and threads of a trace a verb is asked about.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use clap::Args;
use tlbkit_trace::{Event, Family};

/// Names of a trace that are shown where none of them is named.
const NAMES_SHOWN: usize = 20;

/// The processes and threads of a trace that are asked about; all of them if none is named.
#[derive(Args, Clone, Default)]
pub(crate) struct ChosenArguments {
    /// One process by its number, or all whose main thread has this name; several with commas between them
    #[arg(long, value_name = "NAME|PID")]
    pub(crate) process: Option<String>,
    /// One thread by its number
    #[arg(long, value_name = "TID")]
    pub(crate) thread: Option<i32>,
}

/// A process that a trace tells of.
pub(crate) struct Known<'n> {
    pub(crate) pid: i32,
    pub(crate) name: &'n str,
    /// Whether there is anything to tell of it; of most of the kernel's own threads there is nothing.
    pub(crate) is_worth_naming: bool,
}

impl ChosenArguments {
    /// Whether the numbers make sense.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(tid) = self.thread {
            ensure!(tid > 0, "--thread {tid}: must be 1 or more");
        }
        if let Some(process) = &self.process {
            ensure!(process.split(',').all(|one| !one.is_empty()), "--process {process}: want names or numbers");
        }
        Ok(())
    }

    /// Whom it is about, in words; none if it is about everybody.
    pub(crate) fn words(&self) -> Option<String> {
        let process = self.process.as_ref().map(|process| format!("process {process}"));
        let thread = self.thread.map(|tid| format!("thread {tid}"));
        let words: Vec<_> = [process, thread].into_iter().flatten().collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Whether anybody is named.
    pub(crate) fn is_named(&self) -> bool {
        self.process.is_some() || self.thread.is_some()
    }

    /// Whether one of `processes` is meant, if one was named.
    pub(crate) fn check_found<'n>(&self, processes: impl Iterator<Item = Known<'n>>) -> Result<()> {
        let Some(wanted) = &self.process else { return Ok(()) };
        let mut names = Vec::new();
        for Known { pid, name, is_worth_naming } in processes {
            if self.is_process(pid, name) {
                return Ok(());
            }
            names.extend(is_worth_naming.then(|| name.to_owned()));
        }
        names.sort_unstable();
        names.dedup();
        bail!("--process {wanted}: no such process in the trace, which has {}", some_of(names))
    }

    /// Whether one of `threads`, each with a name, is meant, if one was named.
    pub(crate) fn check_thread_found(&self, threads: &BTreeMap<i32, String>) -> Result<()> {
        let Some(wanted) = self.thread.filter(|wanted| !threads.contains_key(wanted)) else { return Ok(()) };
        let names = threads.iter().filter(|(tid, _)| **tid > 0).map(|(tid, name)| format!("{tid} ({name})")).collect();
        bail!("--thread {wanted}: no such thread in the trace, which has {}", some_of(names))
    }

    /// Whether a process of this number and name is meant. A number is never a name as well.
    pub(crate) fn is_process(&self, pid: i32, name: &str) -> bool {
        let is_meant = |one: &str| one.parse().map_or(one == name, |number: i32| number == pid);
        self.process.as_ref().is_none_or(|wanted| wanted.split(',').any(is_meant))
    }
}

/// The first of `names`, and how many more there are.
fn some_of(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(NAMES_SHOWN);
    names.truncate(NAMES_SHOWN);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    names.join(", ") + &more
}

/// The processes and threads that are asked about, once it is known which processes a command started.
#[derive(Default)]
pub(crate) struct Chosen {
    arguments: ChosenArguments,
    /// The command that was recorded, with what it started; asked only where no process is named.
    family: Option<Family>,
}

impl Chosen {
    /// Those that the arguments name, or else the processes of `command`.
    pub(crate) fn new(arguments: &ChosenArguments, command: Option<i32>) -> Self {
        Self { arguments: arguments.clone(), family: command.filter(|_| !arguments.is_named()).map(Family::of) }
    }

    /// Learns from an event who was started by whom.
    pub(crate) fn meet(&mut self, event: &Event) {
        if let Some(family) = &mut self.family {
            family.meet(event);
        }
    }

    /// Whether a process of this number and name is meant.
    pub(crate) fn is_process(&self, pid: i32, name: &str) -> bool {
        self.family.as_ref().map_or_else(|| self.arguments.is_process(pid, name), |family| family.has(pid))
    }

    /// The one thread that is meant, if it is one.
    pub(crate) fn thread(&self) -> Option<i32> {
        self.arguments.thread
    }

    /// Whom it is about, in words; none if it is about everybody.
    pub(crate) fn words(&self) -> Option<String> {
        let family = self.family.as_ref().map(|_| "the command and what it started".to_owned());
        self.arguments.words().or(family)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_chosen_by_name_or_number() {
        let chosen = |text: &str| ChosenArguments { process: Some(text.into()), thread: None };
        assert!(chosen("redis-server").is_process(7, "redis-server") && !chosen("redis").is_process(7, "redis-server"));
        assert!(chosen("7").is_process(7, "redis-server") && !chosen("7").is_process(8, "7"));
        let several = chosen("7,cc1");
        assert!(several.is_process(7, "sh") && several.is_process(9, "cc1") && !several.is_process(9, "sh"));
        assert!(several.check().is_ok() && chosen("7,").check().is_err() && chosen("").check().is_err());
        assert!(ChosenArguments::default().is_process(1, "any"));
    }

    #[test]
    fn a_process_that_is_not_there_is_refused_with_those_that_are() {
        let found = |text: &str| {
            let chosen = ChosenArguments { process: Some(text.into()), thread: None };
            let known = |(pid, name)| Known { pid, name, is_worth_naming: name != "kworker/0:1" };
            chosen.check_found([(7, "sh"), (8, "cc1"), (9, "cc1"), (6, "kworker/0:1")].map(known).into_iter())
        };
        assert!(found("cc1").is_ok() && found("7").is_ok());
        assert!(found("kworker/0:1").is_ok(), "one who asks for it gets it");
        let message = found("cc").unwrap_err().to_string();
        assert_eq!(message, "--process cc: no such process in the trace, which has cc1, sh");
        let many: Vec<String> = (0..25).map(|n| format!("p{n:02}")).collect();
        let chosen = ChosenArguments { process: Some("x".into()), thread: None };
        let message = chosen
            .check_found(many.iter().map(|name| Known { pid: 1, name, is_worth_naming: true }))
            .unwrap_err()
            .to_string();
        assert!(message.ends_with("p19 and 5 more"), "{message}");
        assert!(ChosenArguments::default().check_found([].into_iter()).is_ok());
    }

    #[test]
    fn a_thread_that_is_not_there_is_refused_with_those_that_are() {
        let threads = BTreeMap::from([(0, "swapper".to_owned()), (7, "sh".to_owned()), (9, "cc1".to_owned())]);
        let found = |tid| ChosenArguments { process: None, thread: Some(tid) }.check_thread_found(&threads);
        assert!(found(7).is_ok() && ChosenArguments::default().check_thread_found(&threads).is_ok());
        let message = found(8).unwrap_err().to_string();
        assert_eq!(message, "--thread 8: no such thread in the trace, which has 7 (sh), 9 (cc1)");
    }

    #[test]
    fn a_command_is_chosen_where_nobody_is_named() {
        let named = ChosenArguments { process: Some("redis".into()), thread: None };
        let (chosen, family) = (Chosen::new(&named, Some(7)), Chosen::new(&ChosenArguments::default(), Some(7)));
        assert!(chosen.is_process(8, "redis") && !chosen.is_process(7, "sh"));
        assert!(family.is_process(7, "sh") && !family.is_process(8, "redis"));
        assert_eq!(chosen.words().as_deref(), Some("process redis"));
        assert_eq!(Chosen::default().words(), None);
    }

    #[test]
    fn what_nobody_can_have_is_refused() {
        let of_thread = |tid| ChosenArguments { process: None, thread: Some(tid) };
        assert!(of_thread(1).check().is_ok());
        assert_eq!(of_thread(0).check().unwrap_err().to_string(), "--thread 0: must be 1 or more");
    }
}
