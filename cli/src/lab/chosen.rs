//! Which processes and threads of a trace a verb is asked about.

use anyhow::{Result, ensure};
use clap::Args;
use tlbkit_trace::{Event, Family};

/// Whom of a trace it is about; everybody if nobody is named.
#[derive(Args, Clone, Default)]
pub(crate) struct ChosenArguments {
    /// One process by its number, or all whose main thread has this name
    #[arg(long, value_name = "NAME|PID")]
    pub(crate) process: Option<String>,
    /// One thread by its number
    #[arg(long, value_name = "TID")]
    pub(crate) thread: Option<i32>,
}

impl ChosenArguments {
    /// Whether the numbers make sense.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(tid) = self.thread {
            ensure!(tid > 0, "--thread {tid}: must be 1 or more");
        }
        if let Some(process) = &self.process {
            ensure!(!process.is_empty(), "--process: want a name or a number");
        }
        Ok(())
    }

    /// Whether a process of this number and name is meant. A number is never a name as well.
    pub(crate) fn is_process(&self, pid: i32, name: &str) -> bool {
        self.process.as_ref().is_none_or(|wanted| wanted.parse().map_or(wanted == name, |number: i32| number == pid))
    }
}

/// The same, once it is known which processes a command started.
#[derive(Default)]
pub(crate) struct Chosen {
    arguments: ChosenArguments,
    /// The command that was recorded, with what it started; asked only where no process is named.
    family: Option<Family>,
}

impl Chosen {
    /// As the arguments say, or else the processes of `command`.
    pub(crate) fn new(arguments: &ChosenArguments, command: Option<i32>) -> Self {
        let is_named = arguments.process.is_some() || arguments.thread.is_some();
        Self { arguments: arguments.clone(), family: command.filter(|_| !is_named).map(Family::of) }
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

    /// Whether a thread of such a process is meant.
    pub(crate) fn is_thread(&self, pid: i32, name: &str, tid: i32) -> bool {
        self.is_process(pid, name) && self.thread().is_none_or(|wanted| wanted == tid)
    }

    /// Whether it must be told who started whom.
    pub(crate) fn wants_events(&self) -> bool {
        self.family.is_some()
    }

    /// The one thread that is meant, if it is one.
    pub(crate) fn thread(&self) -> Option<i32> {
        self.arguments.thread
    }

    /// Whom it is about, in words; none if it is about everybody.
    pub(crate) fn words(&self) -> Option<String> {
        let ChosenArguments { process, thread } = &self.arguments;
        let process = process.as_ref().map(|process| format!("process {process}"));
        let thread = thread.map(|tid| format!("thread {tid}"));
        let family = self.family.as_ref().map(|_| "the command and what it started".to_owned());
        let words: Vec<_> = [process, thread, family].into_iter().flatten().collect();
        (!words.is_empty()).then(|| words.join(", "))
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
        assert!(ChosenArguments::default().is_process(1, "any"));
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
