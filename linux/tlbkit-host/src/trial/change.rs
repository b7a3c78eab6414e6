//! A change that can be tried: to the environment of a command, to how it is started, or to the running kernel.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::mem;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use super::journal::Entry;
use super::knob::{self, KNOBS, Knob};
use crate::error::{Error, Result};
use crate::sys::forbid_huge_pages;

/// One change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// An environment variable of the command.
    Environment {
        /// Its name.
        name: String,
        /// What it is set to.
        value: String,
    },
    /// `prctl(PR_SET_THP_DISABLE)`: no huge page for the command and all that it starts.
    NoHugePages,
    /// The command is started by another one.
    Wrapper(Vec<String>),
    /// A setting of the running kernel, for every program on the machine.
    Knob {
        /// Which.
        knob: Knob,
        /// What it is set to.
        value: String,
    },
}

const NO_HUGE_PAGES: &str = "no-huge-pages";
const WRAPPER: &str = "wrapper";
/// Before the name of an environment variable that would be taken for something else.
pub const ENVIRONMENT: &str = "env:";

/// Variables that are lists: what they say already is kept, with what comes later ruling.
const LISTS: [(&str, &str); 4] =
    [("GLIBC_TUNABLES", ":"), ("GODEBUG", ","), ("MALLOC_CONF", ","), ("JDK_JAVA_OPTIONS", " ")];

impl FromStr for Change {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |wanted: String| Error::NoChange { text: text.to_owned(), wanted };
        if text == NO_HUGE_PAGES {
            return Ok(Self::NoHugePages);
        }
        let (name, value) = text.split_once('=').ok_or_else(|| refused(format!("must be {}", forms())))?;
        if let Some(knob) = KNOBS.into_iter().find(|knob| knob.name == name) {
            return knob.canonical(value).map(|value| Self::Knob { knob, value }).map_err(refused);
        }
        if name == WRAPPER {
            let words: Vec<String> = value.split_whitespace().map(str::to_owned).collect();
            return if words.is_empty() {
                Err(refused("must name a command".to_owned()))
            } else {
                Ok(Self::Wrapper(words))
            };
        }
        let explicit = name.strip_prefix(ENVIRONMENT);
        let name = explicit.unwrap_or(name);
        let is_plain = |c: char| c == '_' || c.is_ascii_digit() || c.is_ascii_uppercase();
        let is_name = !name.is_empty() && !name.contains('\0') && (explicit.is_some() || name.chars().all(is_plain));
        if is_name && !value.contains('\0') {
            Ok(Self::Environment { name: name.to_owned(), value: value.to_owned() })
        } else if !name.is_empty() && !text.contains('\0') {
            Err(refused(format!("must be {ENVIRONMENT}{text} (an environment variable); or {}", forms())))
        } else {
            Err(refused(format!("must be {}", forms())))
        }
    }
}

/// What a change may look like.
fn forms() -> String {
    let knobs = KNOBS.map(|knob| format!("{}=VALUE", knob.name)).join(", ");
    format!("NAME=VALUE (an environment variable), {NO_HUGE_PAGES}, {WRAPPER}=COMMAND, or one of {knobs}")
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment { name, value } => {
                let is_plain = name.chars().all(|c| c == '_' || c.is_ascii_digit() || c.is_ascii_uppercase());
                write!(f, "{}{name}={value}", if is_plain { "" } else { ENVIRONMENT })
            }
            Self::NoHugePages => f.write_str(NO_HUGE_PAGES),
            Self::Wrapper(words) => write!(f, "{WRAPPER}={}", words.join(" ")),
            Self::Knob { knob, value } => write!(f, "{}={value}", knob.name),
        }
    }
}

impl Change {
    /// What must be written to the machine for it; none if it concerns the command alone.
    pub(super) fn entry(&self, root: &Path) -> Result<Option<Entry>> {
        let Self::Knob { knob, value } = self else { return Ok(None) };
        let path = knob.file(root);
        Ok(Some(Entry { before: knob::value(&path)?, during: value.clone(), path }))
    }

    /// The names that stand for something other than an environment variable.
    pub fn names() -> impl Iterator<Item = &'static str> {
        [NO_HUGE_PAGES, WRAPPER].into_iter().chain(KNOBS.iter().map(|knob| knob.name))
    }

    /// Whether it changes the machine, and not the command alone.
    #[must_use]
    pub fn is_of_machine(&self) -> bool {
        matches!(self, Self::Knob { .. })
    }

    /// What is changed: a variable, a setting of the kernel, or how the command is started.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Environment { name, .. } => name,
            Self::NoHugePages => NO_HUGE_PAGES,
            Self::Wrapper(_) => WRAPPER,
            Self::Knob { knob, .. } => knob.name,
        }
    }

    /// Whether both set one thing, so that one of them would be lost. Wrappers may stand one before another.
    #[must_use]
    pub fn is_of_same(&self, other: &Self) -> bool {
        let is_wrapper = matches!(self, Self::Wrapper(_));
        if is_wrapper {
            self == other
        } else {
            mem::discriminant(self) == mem::discriminant(other) && self.name() == other.name()
        }
    }

    /// How to keep it, in a line of a shell or in words.
    #[must_use]
    pub fn to_keep(&self) -> String {
        match self {
            Self::Environment { name, value } => format!("export {name}={}", quoted(&merged(name, value))),
            Self::NoHugePages => "prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) in the program, before its first malloc".into(),
            Self::Wrapper(words) => format!("{} COMMAND", words.join(" ")),
            Self::Knob { knob, value } => format!("echo {value} | sudo tee /{}   # until the next boot", knob.path),
        }
    }
}

/// How `command` is started with these changes, or without any.
pub(super) fn command(words: &[OsString], changes: &[Change]) -> Command {
    let wrappers = changes.iter().filter_map(|change| match change {
        Change::Wrapper(words) => Some(words.iter().map(|word| OsStr::new(word.as_str()))),
        _ => None,
    });
    let mut all = wrappers.flatten().chain(words.iter().map(OsString::as_os_str));
    let mut command = Command::new(all.next().unwrap_or_default());
    command.args(all);
    for change in changes {
        match change {
            Change::Environment { name, value } => drop(command.env(name, merged(name, value))),
            Change::NoHugePages => forbid_huge_pages(&mut command),
            Change::Wrapper(_) | Change::Knob { .. } => {}
        }
    }
    command
}

/// The value beside what the variable says already, if it is a list.
fn merged(name: &str, value: &str) -> String {
    let list = LISTS.iter().find(|(list, _)| *list == name);
    let already = std::env::var(name).ok().filter(|text| !text.is_empty());
    match (list, already) {
        (Some((_, between)), Some(already)) if already != value => format!("{already}{between}{value}"),
        _ => value.to_owned(),
    }
}

/// `text` quoted so that a shell takes it as one word.
fn quoted(text: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "_-+=:,./%@".contains(c);
    if !text.is_empty() && text.chars().all(is_safe) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_and_printed_as_they_are_typed() {
        let texts = [
            "GLIBC_TUNABLES=glibc.malloc.trim_threshold=1:glibc.malloc.mmap_threshold=2",
            "env:lower=a b",
            "no-huge-pages",
            "wrapper=taskset -c 0",
            "thp=always",
            "ceiling=9",
        ];
        for text in texts {
            assert_eq!(text.parse::<Change>().unwrap().to_string(), text);
        }
        assert_eq!("ceiling=07".parse::<Change>().unwrap().to_string(), "ceiling=7", "as the kernel will say it");
        assert!("thp=always".parse::<Change>().unwrap().is_of_machine());
        assert!(!"THP=always".parse::<Change>().unwrap().is_of_machine());
    }

    #[test]
    fn what_is_no_change_is_refused_with_what_would_be() {
        let refused = |text: &str| text.parse::<Change>().unwrap_err().to_string();
        assert_eq!(refused("thp=on"), "thp=on: must be one of always, madvise, never");
        assert_eq!(refused("wrapper= "), "wrapper= : must name a command");
        for text in ["nothing", "=1"] {
            assert!(refused(text).starts_with(&format!("{text}: must be NAME=VALUE (")), "{}", refused(text));
        }
        assert!(
            refused("lower=1").starts_with("lower=1: must be env:lower=1 (an environment variable); or NAME=VALUE")
        );
    }

    #[test]
    fn two_that_set_one_thing_are_seen() {
        let is_of_same = |one: &str, other: &str| one.parse::<Change>().unwrap().is_of_same(&other.parse().unwrap());
        assert!(is_of_same("thp=always", "thp=never") && is_of_same("A=1", "A=2"));
        assert!(!is_of_same("thp=always", "thp-defrag=never") && !is_of_same("thp=always", "env:thp=1"));
        assert!(is_of_same("wrapper=nice", "wrapper=nice") && !is_of_same("wrapper=nice", "wrapper=env"));
    }

    #[test]
    fn a_wrapper_stands_before_the_command_and_the_environment_is_set() {
        let changes = ["wrapper=nice -n 5", "TLBKIT_TRIED=1", "wrapper=env"].map(|text| text.parse().unwrap());
        let command = command(&["ls".into(), "-l".into()], &changes);
        let words: Vec<_> = [command.get_program()].into_iter().chain(command.get_args()).collect();
        assert_eq!(words, ["nice", "-n", "5", "env", "ls", "-l"]);
        assert_eq!(command.get_envs().collect::<Vec<_>>(), [("TLBKIT_TRIED".as_ref(), Some("1".as_ref()))]);
    }

    #[test]
    fn what_is_kept_can_be_typed() {
        assert_eq!(quoted("a=b:c"), "a=b:c");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        let kept = "thp=never".parse::<Change>().unwrap().to_keep();
        assert!(kept.starts_with("echo never | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"), "{kept}");
    }
}
