//! `cargo xtask mutants`: each historical bug of `verify/mutants/` is put into a copy of the crates, and the judge that
//! its patch names must notice it: the adversarial machine, or, of `verify/mutants/by-tests/`, a test. Nothing may be
//! found without a bug.

mod copy;
mod generate;
mod judge;
mod patch;
mod schemata;

use crate::setup;
use crate::workshop::Sets;
use anyhow::{Context, Result, anyhow, bail};
use copy::{Build, Copies, Programs};
use judge::Search;
use patch::Patch;
use std::collections::VecDeque;
use std::iter;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

/// Seeds through which each bug is looked for.
const BUDGET: u64 = 20_000;
/// The protocol as it is is searched this many times as long.
const CLEAN_TIMES: u64 = 250;
/// With fewer, a patch has been lost.
const LEAST: usize = 25;
const LEAST_BY_TESTS: usize = 5;
/// What a search without a bug is called.
const NO_BUG: &str = "(none)";

/// What is searched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// Each bug, then the protocol as it is.
    Everything,
    /// The protocol as it is.
    Clean,
}

/// What is asked for on the command line.
struct Wish<'a> {
    /// Only the mutants whose name contains one of these; all if there are none.
    only: Vec<&'a str>,
    what: What,
    /// How often the budget is spent on the protocol as it is.
    clean_times: u64,
}

/// The verb; false if a bug was not caught, or something was found without one.
///
/// # Errors
/// If the arguments are wrong, or a patch does not apply or build.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<bool> {
    if let Some(("--generate", parts)) = args.split_first().map(|(first, rest)| (&**first, rest)) {
        return generate::run(root, parts);
    }
    search(root, &parse(args)?)
}

fn search(root: &Path, wish: &Wish<'_>) -> Result<bool> {
    let patches = all_patches(root)?;
    let bench = Bench {
        wish,
        copies: Copies::new(root, &setup::target_dir(root), &patches)?,
        merged: Default::default(),
        single: Mutex::new(false),
    };
    let alone: Vec<&str> =
        patches.iter().filter(|patch| bench.copies.number(patch).is_none()).map(|patch| &*patch.name).collect();
    println!(
        "{} bugs are in one source; {} have a separate build: {}",
        bench.copies.merged_count(),
        alone.len(),
        alone.join(", ")
    );
    let jobs = bench.jobs(&patches);
    if jobs.is_empty() {
        bail!("no bug of `verify/mutants/` has `{}` in its name", wish.only.join("` or `"));
    }
    let jobs = Mutex::new(VecDeque::from(jobs));
    let take = |end: fn(&mut VecDeque<_>) -> _| end(&mut jobs.lock().unwrap_or_else(PoisonError::into_inner));
    // One from each end, so that they build different things.
    let work = |end| iter::from_fn(|| take(end)).map(|job| bench.done(job)).collect::<Result<Vec<_>>>();
    let (front, back) = thread::scope(|scope| {
        let front = scope.spawn(|| work(VecDeque::pop_front));
        let back = work(VecDeque::pop_back);
        (front.join().unwrap_or_else(|panic| resume_unwind(panic)), back)
    });
    let searches: Vec<Search> = [front?, back?].into_iter().flatten().flatten().collect();
    let (clean, of_bugs): (Vec<&Search>, Vec<_>) = searches.iter().partition(|search| search.mutant == NO_BUG);
    let caught = of_bugs.iter().filter(|search| search.by.is_some()).count();
    if wish.what == What::Everything {
        println!("{caught} of {} searches found the bug; {BUDGET} seeds each, or a test", of_bugs.len());
    }
    Ok(caught == of_bugs.len() && clean.iter().all(|search| search.by.is_none()))
}

/// Something to be done. Who does it first builds what it needs.
enum Job<'p> {
    /// Have the judge of a bug look for it.
    Bug(&'p Patch),
    /// Search the protocol as it is.
    Clean(Sets),
}

/// The copies, and what was built of them.
struct Bench<'w> {
    wish: &'w Wish<'w>,
    copies: Copies,
    /// Of the copy with most bugs, for each [`Build`].
    merged: [OnceLock<Result<Programs, String>>; 3],
    /// Held by who changes or builds the copy for one bug at a time; whether its judges have been heard without one.
    single: Mutex<bool>,
}

impl Bench<'_> {
    /// What is wished for. What needs one build stands together, and the one that takes longest, at the end.
    fn jobs<'p>(&self, patches: &'p [Patch]) -> Vec<Job<'p>> {
        let is_wanted = |patch: &&Patch| {
            self.wish.what == What::Everything
                && (self.wish.only.is_empty() || self.wish.only.iter().any(|part| patch.name.contains(part)))
        };
        let wanted: Vec<&Patch> = patches.iter().filter(is_wanted).collect();
        let is_clean_wanted = self.wish.what == What::Clean || wanted.iter().any(|patch| patch.build() != Build::Tests);
        let clean = Sets::ALL.into_iter().filter(|_| is_clean_wanted).map(Job::Clean);
        let mut jobs: Vec<Job<'_>> = wanted.into_iter().map(Job::Bug).chain(clean).collect();
        jobs.sort_by_key(|job| match job {
            Job::Bug(patch) if self.copies.number(patch).is_none() => Build::ALL.len(),
            Job::Bug(patch) if patch.build() == Build::Tests => Build::ALL.len() + 1,
            Job::Bug(patch) => patch.build().place(),
            Job::Clean(sets) => Build::Checker(*sets).place(),
        });
        jobs
    }

    fn done(&self, job: Job<'_>) -> Result<Vec<Search>> {
        let searches = match job {
            Job::Bug(patch) => self.look_for(patch).with_context(|| patch.file.display().to_string())?,
            Job::Clean(sets) => vec![self.unmutated(sets)?],
        };
        searches.iter().for_each(|search| println!("{}", line(search)));
        Ok(searches)
    }

    fn look_for(&self, patch: &Patch) -> Result<Vec<Search>> {
        if let Some(number) = self.copies.number(patch) {
            return judge::ask(self.merged(patch.build())?, patch, Some(number), BUDGET);
        }
        let mut is_heard = self.single.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_heard {
            self.copies.hear_single()?;
            *is_heard = true;
        }
        self.copies.with_alone(patch, |programs| judge::ask(programs, patch, None, BUDGET))
    }

    /// The protocol without a bug: nothing may be found. Millions of seeds are worth a separate build.
    fn unmutated(&self, sets: Sets) -> Result<Search> {
        let origin = match sets {
            Sets::Wide => "the protocol as it is",
            Sets::Narrow => "the same with two CPUs a word",
        };
        let seeds = BUDGET * self.wish.clean_times;
        if self.wish.clean_times == 1 {
            return judge::search_unmutated(self.merged(Build::Checker(sets))?, seeds, origin);
        }
        let programs = {
            let _alone = self.single.lock();
            self.copies.build_clean(sets)?
        };
        judge::search_unmutated(&programs, seeds, origin)
    }

    /// The judges of all bugs of the merged copy, none of which complains without one.
    fn merged(&self, build: Build) -> Result<&Programs> {
        let built = self.merged[build.place()]
            .get_or_init(|| self.copies.build_merged(build).map_err(|error| format!("{error:#}")));
        built.as_ref().map_err(|error| anyhow!("{error}"))
    }
}

/// Every patch, by name, those whose judge is the adversarial machine first.
fn all_patches(root: &Path) -> Result<Vec<Patch>> {
    let mut patches = Vec::new();
    for (folder, least) in [("verify/mutants", LEAST), ("verify/mutants/by-tests", LEAST_BY_TESTS)] {
        let found = patch::read_all(&root.join(folder))?;
        if found.len() < least {
            bail!("{folder} holds {} patches; at least {least} are asked for", found.len());
        }
        patches.extend(found);
    }
    Ok(patches)
}

fn parse(args: &[String]) -> Result<Wish<'_>> {
    let mut wish = Wish { only: Vec::new(), what: What::Everything, clean_times: CLEAN_TIMES };
    for arg in args {
        match arg.as_str() {
            "--quick" => wish.clean_times = 1,
            "--clean" => wish.what = What::Clean,
            flag if flag.starts_with('-') => {
                bail!("`mutants` takes `--quick`, `--clean` and names, got `{flag}`")
            }
            // Who asks for one bug does not ask for millions of seeds without it.
            name => {
                wish.only.push(name);
                wish.clean_times = 1;
            }
        }
    }
    Ok(wish)
}

fn line(search: &Search) -> String {
    let by = search.by.as_deref().unwrap_or("NOT CAUGHT");
    let by = if search.mutant == NO_BUG && search.by.is_none() { "nothing found" } else { by };
    let Search { mutant, needed, unit, seconds, origin, .. } = search;
    format!("{mutant:<44} {needed:>9} {unit:<6} {seconds:>7.2} s  {by:<18} {origin}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn searched(by: Option<&str>) -> Search {
        let by = by.map(str::to_owned);
        Search {
            mutant: "a-bug".to_owned(),
            origin: "somebody".to_owned(),
            by,
            needed: 12,
            unit: "seeds",
            seconds: 0.5,
        }
    }

    #[test]
    fn a_bug_that_is_not_caught_stands_out() {
        assert!(line(&searched(None)).contains("NOT CAUGHT"));
        assert!(line(&searched(Some("freed frame"))).contains("freed frame"));
    }

    #[test]
    fn an_unknown_flag_is_refused_by_name() {
        let error = parse(&["--fast".to_owned()]).map(|_| ()).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("`--fast`")));
    }

    #[test]
    fn every_patch_of_the_tree_names_its_judge_by_its_folder() -> Result<()> {
        for patch in all_patches(&setup::root()?)? {
            let is_by_tests = patch.file.parent().is_some_and(|folder| folder.ends_with("by-tests"));
            assert_eq!(patch.build() == Build::Tests, is_by_tests, "{}", patch.name);
            assert!(!patch.files.is_empty(), "{}", patch.name);
        }
        Ok(())
    }
}
