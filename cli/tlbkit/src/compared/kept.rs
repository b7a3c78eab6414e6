//! Rows that are kept in a folder, a file for each run, so that a run is done once, on whichever machine.
//!
//! The name of a file is made of all that decides what comes out: the run, what its machine file says, and this very
//! build. So a row of an older build, or of a machine file that has changed since, is never taken for one of now.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tlbkit_output::file::write_whole;
use tlbkit_sim::RunOutcome;

use crate::spec::RunSpec;

/// The field of a row that has what came out; the others say what ran.
const OUTCOME: &str = "outcome";

/// A folder of rows.
pub(crate) struct Kept {
    folder: PathBuf,
    /// What this build adds to each name.
    build: DefaultHasher,
}

impl Kept {
    /// The rows in `folder`, which is made if it is not there.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let program = env::current_exe().context("finding this program")?;
        let mut build = DefaultHasher::new();
        build.write(&fs::read(&program).with_context(|| program.display().to_string())?);
        Ok(Self { folder: folder.to_owned(), build })
    }

    fn path(&self, run: &RunSpec) -> PathBuf {
        let mut all = self.build.clone();
        format!("{:?} {:?}", run.point, run.machine).hash(&mut all);
        self.folder.join(format!("{:016x}.json", all.finish()))
    }

    /// What came out of `run`, if its row is there.
    pub(crate) fn outcome(&self, run: &RunSpec) -> Result<Option<RunOutcome>> {
        let path = self.path(run);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| path.display().to_string())?,
        };
        let wrong = || format!("{}: is not the row that its name promises; remove it", path.display());
        let mut row: Value = serde_json::from_str(&text).with_context(wrong)?;
        let outcome = row.as_object_mut().and_then(|row| row.remove(OUTCOME)).with_context(wrong)?;
        ensure!(row == json!(run.point), wrong());
        serde_json::from_value(outcome).map(Some).with_context(wrong)
    }

    /// Keeps the row of `run`; a reader finds it whole or not at all.
    pub(crate) fn keep(&self, run: &RunSpec, outcome: &RunOutcome) -> Result<()> {
        write_whole(&self.path(run), &format!("{}\n", run.row(outcome)?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::spec::{Machines, Point};

    fn run() -> RunSpec {
        let names = ["madvise1", "recent-bare", "linux-6.18:stats=on"].map(String::from);
        let [workload, machine, policy] = names;
        let point = Point { workload, machine, policy, cpus: Some(2), seed: 1, milliseconds: 1, ..Point::default() };
        RunSpec::new(point, &mut Machines::default()).unwrap()
    }

    #[test]
    fn a_row_that_is_read_again_is_the_one_that_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::open(folder.path()).unwrap();
        let run = run();
        assert_eq!(kept.outcome(&run).unwrap(), None);
        let outcome = run.execute(None).unwrap();
        kept.keep(&run, &outcome).unwrap();
        let again = kept.outcome(&run).unwrap().unwrap();
        assert_eq!(run.row(&again).unwrap().to_string(), run.row(&outcome).unwrap().to_string());
        assert_eq!(again.rate(), outcome.rate());
        fs::write(kept.path(&run), "{\"seed\":1}").unwrap();
        assert!(kept.outcome(&run).unwrap_err().to_string().ends_with("promises; remove it"));
    }

    #[test]
    fn all_that_decides_a_run_is_in_the_name_of_its_row() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::open(folder.path()).unwrap();
        let (mut seed, mut machine) = (run(), run());
        seed.point.seed = 2;
        Arc::make_mut(&mut machine.machine).cycles.context_switch_base.value += 1.0;
        let other_build = Kept { folder: folder.path().to_owned(), build: DefaultHasher::new() };
        let mut names = vec![kept.path(&run()), kept.path(&seed), kept.path(&machine), other_build.path(&run())];
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 4, "{names:?}");
        assert_eq!(kept.path(&run()), kept.path(&run()));
    }
}
