//! What a file is, by how it begins: an output never takes the place of a file of another kind, which would be lost.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// What an output is: how such files begin, and what they are called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// What it is called, as in "is no page of tlbkit".
    pub words: &'static str,
    /// How such a file begins.
    pub starts: &'static [&'static str],
}

impl Kind {
    /// Refuses a file that is there and is something else. An empty one, a pipe or a device loses nothing.
    pub fn check(self, file: &Path) -> Result<()> {
        if !fs::metadata(file).is_ok_and(|data| data.is_file()) {
            return Ok(());
        }
        let (name, words) = (file.display(), self.words);
        let mut head = Vec::new();
        let longest = self.starts.iter().map(|start| start.len()).max().unwrap_or_default();
        let read = File::open(file).and_then(|file| file.take(longest as u64).read_to_end(&mut head));
        read.with_context(|| format!("{name}: is there, and cannot be read; choose another name, or remove it"))?;
        let is_own = head.is_empty() || self.starts.iter().any(|start| head.starts_with(start.as_bytes()));
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
        let texts = ["first 7", "second 7", "{\"trace\":[\n]}\n", "import sys\n"];
        let other = Kind { words: "test", starts: &["first", "second"] };
        let trace = Kind { words: "trace", starts: &["{\"trace\":["] };
        for (kind, own) in [(other, &[0, 1][..]), (trace, &[2])] {
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
        let said = trace.check(&file).unwrap_err().to_string();
        let end = "v3.py: is there already, and is no trace; choose another name, or remove it";
        assert!(said.ends_with(end), "{said}");
    }
}
