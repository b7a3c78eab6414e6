//! The copies of the source that bugs are put into, and the programs that are built of them.
//!
//! One copy has all bugs that fit into one source, and is built once for each set of flags. The other is for those that
//! do not: it has one of them at a time, or none.

use super::judge;
use super::patch::{Judge, Patch, Witness};
use super::schemata::{self, Bodies};
use crate::workshop::{OBSERVED, Sets, TESTKIT, Workshop};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the bugs are in, and what looks for them.
const CRATES: [&str; 11] = [
    "lib/tlbkit",
    "lib/tlbkit-arch",
    "lib/tlbkit-pmap",
    "lib/tlbkit-x86",
    "lib/tlbkit-c",
    TESTKIT,
    OBSERVED,
    "sim/tlbkit-workloads",
    "sim/tlbkit-machine",
    "sim/tlbkit-sim",
    "verify/tlbkit-check",
];
/// What one of them reads besides.
const DATA: &str = "sim/machines";

/// The root of `tlbkit`, where the choice is made.
const CHOOSING: &str = "lib/tlbkit/src/lib.rs";

/// Each build is run for minutes at most: a quick build is worth more than quick code.
const QUICK: &[(&str, &str)] = &[
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "2"),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    ("CARGO_PROFILE_DEV_OPT_LEVEL", "1"),
    // What an interrupted search leaves behind must not decide the next one.
    ("CARGO_INCREMENTAL", "0"),
];

/// The copies.
pub(super) struct Copies {
    merged: Workshop,
    single: Workshop,
    /// The number of each bug that is in the merged copy.
    numbers: BTreeMap<String, u32>,
    /// The tests that look for its bugs.
    merged_witnesses: BTreeSet<Witness>,
    /// Those that look for bugs of the other copy.
    single_witnesses: BTreeSet<Witness>,
}

/// The programs that judge, as cargo names them.
pub(super) struct Programs(Vec<Program>);

/// One of them.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) package: String,
    pub(super) target: String,
    pub(super) is_library: bool,
    pub(super) file: PathBuf,
    /// The folder of its crate.
    pub(super) folder: PathBuf,
}

/// With which flags, and what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Build {
    /// The adversarial machine.
    Checker(Sets),
    /// The crates' own tests.
    Tests,
}

impl Build {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Checker(Sets::Wide), Self::Checker(Sets::Narrow), Self::Tests];

    /// Its place among all.
    pub(super) const fn place(self) -> usize {
        match self {
            Self::Checker(Sets::Wide) => 0,
            Self::Checker(Sets::Narrow) => 1,
            Self::Tests => 2,
        }
    }
}

impl Copies {
    /// Copies the workspace at `root`, with all of `patches` that fit into one source in it.
    ///
    /// # Errors
    /// If a patch does not apply.
    pub(super) fn new(root: &Path, target: &Path, patches: &[Patch]) -> Result<Self> {
        let single = Workshop::new(root, &target.join("mutants/single"), &CRATES)?;
        single.add(root, DATA)?;
        let plain = Workshop::new(root, &target.join("mutants/merged/plain"), &CRATES)?;
        plain.add(root, DATA)?;
        let (mut numbers, mut merged_witnesses, mut single_witnesses) = Default::default();
        let mut changed: BTreeMap<&str, Vec<(u32, Bodies)>> = BTreeMap::new();
        for (patch, number) in patches.iter().zip(1..) {
            let context = || patch.file.display().to_string();
            let files = bodies_of(&plain, patch).with_context(context)?;
            let witnesses = if files.is_some() { &mut merged_witnesses } else { &mut single_witnesses };
            if let Judge::Test(witness) = &patch.judge {
                BTreeSet::insert(witnesses, witness.clone());
            }
            if files.is_some() {
                BTreeMap::insert(&mut numbers, patch.name.clone(), number);
            }
            for (file, bodies) in files.into_iter().flatten() {
                changed.entry(file).or_default().push((number, bodies));
            }
        }
        merge(&plain, &changed)?;
        // Only now, so that what is as it was keeps its time and is not built again.
        let merged = Workshop::new(&plain.root, &target.join("mutants/merged"), &CRATES)?;
        merged.add(&plain.root, DATA)?;
        Ok(Self { merged, single, numbers, merged_witnesses, single_witnesses })
    }

    /// How many bugs are in the merged copy.
    pub(super) fn merged_count(&self) -> usize {
        self.numbers.len()
    }

    /// The number by which the merged copy chooses the bug, if it has it.
    pub(super) fn number(&self, patch: &Patch) -> Option<u32> {
        self.numbers.get(&patch.name).copied()
    }

    /// Builds all judges of one kind for the bugs of the merged copy. What always fails is no judge of anything, so
    /// each test must pass without a bug.
    pub(super) fn build_merged(&self, build: Build) -> Result<Programs> {
        let programs = self.merged.programs(build, &self.merged_witnesses)?;
        if build == Build::Tests {
            judge::hear_without_a_bug(&programs, &self.merged_witnesses)?;
        }
        Ok(programs)
    }

    /// The same for the tests of the other copy.
    pub(super) fn hear_single(&self) -> Result<()> {
        judge::hear_without_a_bug(&self.single.programs(Build::Tests, &self.single_witnesses)?, &self.single_witnesses)
    }

    /// Puts `patch` alone into the other copy, builds its judge, and calls `judge` with it.
    pub(super) fn with_alone<T>(&self, patch: &Patch, judge: impl FnOnce(&Programs) -> Result<T>) -> Result<T> {
        let witness = if let Judge::Test(witness) = &patch.judge { Some(witness) } else { None };
        self.single.with(&patch.file, || judge(&self.single.programs(patch.build(), witness)?))
    }

    /// Builds the adversarial machine of the source as it is, for millions of seeds.
    pub(super) fn build_clean(&self, sets: Sets) -> Result<Programs> {
        self.single.programs_with(Build::Checker(sets), &[], [])
    }
}

/// What `cargo check` is given, one after the other, so that all is compiled where bugs are generated.
const CHECKED: [&str; 4] = [
    "--package tlbkit --package tlbkit-arch --package tlbkit-pmap --package tlbkit-x86 --package tlbkit-c --features \
     tlbkit/history,tlbkit-arch/store,tlbkit-c/history,tlbkit-c/x86,tlbkit-c/events,tlbkit-c/guest,tlbkit-c/isolated,\
     tlbkit-c/broadcast,tlbkit-c/early,tlbkit-c/reuse,tlbkit-c/directories",
    "--package tlbkit-c --target x86_64-unknown-none --no-default-features --features linked",
    "--package tlbkit-c --target x86_64-unknown-none --no-default-features --features flags",
    "--package tlbkit-c --target x86_64-unknown-none --no-default-features --features linked,x86",
];
/// The compiler's name for a call of what is not constant where that is asked for.
const NOT_CONSTANT: &str = "E0015";

/// What the compiler finds wrong in a copy.
#[derive(Default)]
pub(super) struct Errors {
    /// The numbers of bugs that do not compile.
    pub(super) bugs: BTreeSet<u32>,
    /// Functions that have to stay constant.
    pub(super) constants: BTreeSet<String>,
}

/// The one copy for bugs that are generated: nothing but what was written last is in it.
pub(super) struct Generated {
    root: PathBuf,
    place: PathBuf,
    merged: Workshop,
}

impl Generated {
    /// A copy at `place` of the workspace at `root`.
    pub(super) fn new(root: &Path, place: &Path) -> Result<Self> {
        let merged = Workshop::new(root, place, &CRATES)?;
        Ok(Self { root: root.to_path_buf(), place: place.to_path_buf(), merged })
    }

    /// Puts `bugs` into the source, those of each file with their numbers.
    pub(super) fn write(&self, bugs: &BTreeMap<&str, Vec<(u32, Bodies)>>) -> Result<()> {
        let plain = Workshop::new(&self.root, &self.place.join("plain"), &CRATES)?;
        plain.add(&self.root, DATA)?;
        merge(&plain, bugs)?;
        // Hundreds of bodies, each inlined wherever its function is called, would take an hour to compile.
        for file in bugs.keys() {
            let place = plain.root.join(file);
            let text = fs::read_to_string(&place)?;
            fs::write(&place, text.replace("#[inline(always)]", "").replace("#[inline]", ""))?;
        }
        // As above.
        Workshop::new(&plain.root, &self.place, &CRATES)?.add(&plain.root, DATA)
    }

    /// Builds all judges of one kind.
    pub(super) fn build(&self, build: Build, witnesses: &[Witness]) -> Result<Programs> {
        self.merged.programs(build, witnesses)
    }

    /// What the compiler finds wrong in the crates that have bugs.
    pub(super) fn errors(&self, bugs: &BTreeSet<&str>) -> Result<Errors> {
        let mut all = Errors::default();
        let is_of_c = bugs.iter().any(|file| file.starts_with("lib/tlbkit-c/"));
        for args in CHECKED.iter().take(if is_of_c { CHECKED.len() } else { 1 }) {
            let Errors { bugs, constants } = self.errors_of(args)?;
            all.bugs.extend(bugs);
            all.constants.extend(constants);
        }
        Ok(all)
    }

    fn errors_of(&self, args: &str) -> Result<Errors> {
        let mut cargo = Command::new("cargo");
        cargo.args(["check", "--keep-going", "--quiet", "--message-format=json"]).args(args.split_whitespace());
        // Not `allow`: as for tests.
        cargo.env("CARGO_TARGET_DIR", self.merged.target.join("checked")).env("RUSTFLAGS", "--cap-lints=warn");
        cargo.current_dir(&self.merged.root);
        let output = cargo.output().context("running cargo")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let errors: Vec<_> = messages.filter(|message| message["message"]["level"] == "error").collect();
        let (calls, others): (Vec<_>, Vec<_>) =
            errors.iter().map(|message| &message["message"]).partition(|error| error["code"]["code"] == NOT_CONSTANT);
        let constants: BTreeSet<String> = calls.into_iter().filter_map(called).collect();
        let bugs: BTreeSet<u32> = others.into_iter().filter_map(|error| self.bug_at(error)).collect();
        if bugs.is_empty() && constants.is_empty() && !output.status.success() {
            let rendered: String = errors.iter().filter_map(complaint).collect();
            bail!("it does not build, and no bug is to blame:\n{rendered}");
        }
        Ok(Errors { bugs, constants })
    }

    fn bug_at(&self, message: &serde_json::Value) -> Option<u32> {
        let spans = message["spans"].as_array()?;
        spans.iter().find_map(|span| {
            let text = fs::read_to_string(self.merged.root.join(span["file_name"].as_str()?)).ok()?;
            let before = text.get(..span["byte_start"].as_u64()? as usize)?;
            let (_, mark) = before.rsplit_once(schemata::MARK)?;
            mark.split_once('*')?.0.parse().ok().filter(|&number| number != 0)
        })
    }
}

/// The function of which an error says that it is not constant: the last name in the first quotes, but for its types.
fn called(error: &serde_json::Value) -> Option<String> {
    let path = error["message"].as_str()?.split('`').nth(1)?;
    let mut depth = 0;
    let mut is_outside = |letter: &char| {
        depth += match letter {
            '<' => 1,
            '>' => -1,
            _ => return depth == 0,
        };
        false
    };
    let path: String = path.chars().filter(|letter| is_outside(letter)).collect();
    path.rsplit("::").find(|name| !name.is_empty()).map(str::to_owned)
}

/// Puts `bugs` into a copy, each behind its number.
fn merge(copy: &Workshop, bugs: &BTreeMap<&str, Vec<(u32, Bodies)>>) -> Result<()> {
    for (file, bugs) in bugs {
        let place = copy.root.join(file);
        let crate_path = if file.starts_with("lib/tlbkit/") { "crate" } else { "tlbkit" };
        fs::write(&place, schemata::merged(&fs::read_to_string(&place)?, bugs, crate_path)?)?;
    }
    let choosing = copy.root.join(CHOOSING);
    let text = fs::read_to_string(&choosing)?.replace("#![forbid(unsafe_code)]\n", "");
    Ok(fs::write(&choosing, text + schemata::CHOOSER)?)
}

/// The bodies that the patch changes in each of its files; `None` if it changes something else too.
fn bodies_of<'p>(plain: &Workshop, patch: &'p Patch) -> Result<Option<Vec<(&'p str, Bodies)>>> {
    let read = |file: &&str| Ok(fs::read_to_string(plain.root.join(file))?);
    let all = || patch.files.iter().map(|file| read(&file.as_str())).collect::<Result<Vec<_>>>();
    let (before, after) = (all()?, plain.with(&patch.file, all)?);
    if patch.is_alone() {
        return Ok(None);
    }
    let files = patch.files.iter().zip(before.iter().zip(&after));
    files
        .map(|(file, (before, after))| Ok(schemata::changed_bodies(before, after)?.map(|bodies| (&**file, bodies))))
        .collect()
}

impl Workshop {
    fn programs<'a>(&self, build: Build, witnesses: impl IntoIterator<Item = &'a Witness>) -> Result<Programs> {
        self.programs_with(build, QUICK, witnesses)
    }

    fn programs_with<'a>(
        &self,
        build: Build,
        profile: &[(&str, &str)],
        witnesses: impl IntoIterator<Item = &'a Witness>,
    ) -> Result<Programs> {
        let mut cargo = Command::new("cargo");
        let flags = match build {
            Build::Checker(sets) => {
                cargo.args(["build", "--release", "--package", "tlbkit-check"]);
                cargo.env("CARGO_TARGET_DIR", self.target.join(sets.folder()));
                format!("--cap-lints=allow {}", sets.flags())
            }
            Build::Tests => {
                cargo
                    .args(["test", "--no-run"])
                    .args(arguments(witnesses.into_iter().map(|witness| witness.tests.as_str())));
                cargo.env("CARGO_TARGET_DIR", self.target.join("tests"));
                // Not `allow`: tests of the C interface build an archive for a machine without a system, and cargo
                // learns by a warning of the compiler what that target cannot make.
                "--cap-lints=warn".to_owned()
            }
        };
        // What a bug leaves unused is not its point.
        cargo.args(["--quiet", "--message-format=json"]).current_dir(&self.root).env("RUSTFLAGS", flags);
        let output = cargo.envs(profile.iter().copied()).output().context("running cargo")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let messages = || text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        if !output.status.success() {
            let errors: String = messages().filter_map(|message| complaint(&message)).collect();
            bail!("it does not build:\n{errors}{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(Programs(messages().filter_map(|message| program(&message)).collect()))
    }
}

fn complaint(message: &serde_json::Value) -> Option<String> {
    let message = &message["message"];
    (message["level"] == "error").then(|| message["rendered"].as_str().map(str::to_owned))?
}

fn program(message: &serde_json::Value) -> Option<Program> {
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?;
    Some(Program {
        package: folder.file_name()?.to_str()?.to_owned(),
        target: message["target"]["name"].as_str()?.to_owned(),
        is_library: message["target"]["kind"][0] == "lib",
        file: PathBuf::from(message["executable"].as_str()?),
        folder: folder.to_path_buf(),
    })
}

/// What `cargo test` is given to build all of `tests`, each of which is what it is given for one.
fn arguments<'a>(tests: impl Iterator<Item = &'a str>) -> Vec<String> {
    let (mut packages, mut features, mut targets) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for test in tests {
        let words: Vec<&str> = test.split_whitespace().collect();
        let package = words[0];
        packages.insert(package);
        for pair in words.windows(2) {
            match pair {
                ["--features", names] => {
                    let full =
                        |name: &str| if name.contains('/') { name.to_owned() } else { format!("{package}/{name}") };
                    features.extend(names.split(',').map(full));
                }
                ["--test", name] => _ = targets.insert(format!("--test={name}")),
                _ => {}
            }
        }
        if words.contains(&"--lib") {
            targets.insert("--lib".to_owned());
        }
    }
    // What a target requires cargo looks for among the names without a package, if there is but one.
    let alone = if packages.len() == 1 { packages.first().map(|package| format!("{package}/")) } else { None };
    let short = |name: String| match &alone {
        Some(package) => name.strip_prefix(&**package).map_or_else(|| name.clone(), str::to_owned),
        None => name,
    };
    let packages = packages.into_iter().map(|package| format!("--package={package}"));
    packages.chain(features.into_iter().map(|name| format!("--features={}", short(name)))).chain(targets).collect()
}

impl Programs {
    /// The adversarial machine.
    pub(super) fn checker(&self) -> Result<&Program> {
        self.0.iter().find(|program| program.target == "tlbkit-check").context("no checker was built")
    }

    /// The programs of what `cargo test` is given.
    pub(super) fn of_tests(&self, tests: &str) -> Vec<&Program> {
        let words: Vec<&str> = tests.split_whitespace().collect();
        let is_asked = |program: &&Program| {
            let is_named = words.windows(2).any(|pair| pair[0] == "--test" && pair[1] == program.target);
            program.package == words[0] && (is_named || program.is_library && words.contains(&"--lib"))
        };
        let mut asked: Vec<&Program> = self.0.iter().filter(is_asked).collect();
        // In the order of the words; a library's own tests come first.
        asked.sort_by_key(|program| words.iter().position(|word| *word == program.target && !program.is_library));
        asked
    }
}
