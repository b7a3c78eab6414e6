//! What a file is, by how it begins: an output never takes the place of a file of another kind, which would be lost.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::page;

/// What an output is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A recording: this program's, or perf's own.
    Recording,
    /// A page of this program.
    Page,
    /// A trace for Perfetto or Chrome.
    Drawing,
    /// A machine file that was measured.
    Machine,
    /// A manual page of this program.
    Manual,
    /// What a shell reads to complete this program's options.
    Completion,
}

/// How a machine file begins that was measured; one that a person wrote does not.
pub(crate) const MACHINE_START: &str = "# Written by tlbkit ";
const MANUAL_START: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n.TH TLBKIT";
/// Those of bash, zsh and fish, as clap writes them.
const COMPLETION_STARTS: [&str; 3] = [
    "_tlbkit() {",
    "#compdef tlbkit",
    "# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.\nfunction \
     __fish_tlbkit_",
];

impl Kind {
    /// The kind of the output that `option` names; none for options whose verbs check the file by themselves.
    pub(super) fn of(option: &str) -> Option<Self> {
        match option {
            "--html" => Some(Self::Page),
            "--perfetto" => Some(Self::Drawing),
            _ => None,
        }
    }

    /// How such a file begins.
    const fn starts(self) -> &'static [&'static str] {
        match self {
            Self::Recording => &["tlbtrace", "PERFILE2"],
            Self::Page => &[page::START],
            Self::Drawing => &["{\"traceEvents\":[", "{\"displayTimeUnit\":\"ns\",\"traceEvents\":["],
            Self::Machine => &[MACHINE_START],
            Self::Manual => &[MANUAL_START],
            Self::Completion => &COMPLETION_STARTS,
        }
    }

    /// What it is called.
    const fn words(self) -> &'static str {
        match self {
            Self::Recording => "recording",
            Self::Page => "page of tlbkit",
            Self::Drawing => "trace for Perfetto",
            Self::Machine => "machine file of tlbkit",
            Self::Manual => "manual page of tlbkit",
            Self::Completion => "completion of tlbkit",
        }
    }

    /// Refuses a file that is there and is something else. An empty one, a pipe or a device loses nothing.
    pub(super) fn check(self, file: &Path) -> Result<()> {
        if !fs::metadata(file).is_ok_and(|data| data.is_file()) {
            return Ok(());
        }
        let (name, words) = (file.display(), self.words());
        let mut head = Vec::new();
        let longest = self.starts().iter().map(|start| start.len()).max().unwrap_or_default();
        let read = File::open(file).and_then(|file| file.take(longest as u64).read_to_end(&mut head));
        read.with_context(|| format!("{name}: is there, and cannot be read; choose another name, or remove it"))?;
        let is_own = head.is_empty() || self.starts().iter().any(|start| head.starts_with(start.as_bytes()));
        ensure!(is_own, "{name}: is there already, and is no {words}; choose another name, or remove it");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_takes_the_place_of_its_own_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("v3.py");
        let page = page::around("a title", &maud::html! { p { "words" } });
        let texts = [
            "tlbtrace 7",
            "PERFILE2 7",
            &page,
            "{\"traceEvents\":[\n]}\n",
            "# Written by tlbkit boot on 2026-11-02: a CPU.\n",
            "name = \"by-hand\"\n",
            "import sys\n",
        ];
        let kinds = [(Kind::Recording, &[0, 1][..]), (Kind::Page, &[2]), (Kind::Drawing, &[3]), (Kind::Machine, &[4])];
        for (kind, own) in kinds {
            kind.check(&file).unwrap();
            for (at, text) in texts.iter().enumerate() {
                fs::write(&file, text).unwrap();
                assert_eq!(kind.check(&file).is_ok(), own.contains(&at), "{kind:?}: {text}");
            }
            fs::write(&file, "").unwrap();
            kind.check(&file).unwrap();
            fs::remove_file(&file).unwrap();
            kind.check(Path::new("/dev/null")).unwrap();
        }
        fs::write(&file, "{}").unwrap();
        let said = Kind::Drawing.check(&file).unwrap_err().to_string();
        let end = "v3.py: is there already, and is no trace for Perfetto; choose another name, or remove it";
        assert!(said.ends_with(end), "{said}");
    }
}
