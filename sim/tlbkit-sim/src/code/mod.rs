//! The code of a kernel, counted in instructions call by call. It stands in files, in `sim/machines/software/`, as
//! it is the same on every machine. Accesses that other CPUs can see are charged in addition, by the cache-line model.
//! `paths` says what each call executes under a policy.

mod paths;

use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize;
use tlbkit_machine::NumberKind;

pub(crate) use paths::Paths;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each.
        const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../machines/software/", $name, ".toml")))),*];
    };
}

files!["tlbkit", "linux-6.12", "linux-7.3", "uncounted"];

/// One file, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CodeFile {
    /// The policies that this code carries out in the world.
    presets: Vec<String>,
    /// How many CPUs this code names in one write of an interrupt command.
    destinations: Destinations,
    switch: CountedSwitch,
    flush: CountedFlush,
    broadcast: Option<CountedBroadcast>,
    answer: CountedAnswer,
    /// How the code tells other CPUs, if not by our mailboxes.
    queues: Option<QueuesFile>,
    lists: Option<CountedLruLists>,
    lines: LinesFile,
}

/// The table `[queues]` of a file.
#[derive(Debug, Deserialize)]
struct QueuesFile {
    #[serde(rename = "kind")]
    _kind: NumberKind,
    #[serde(rename = "source")]
    _source: String,
    #[serde(flatten)]
    of: CallQueueReads,
}

/// What becomes of a CPU's new pages before it sweeps a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sweep {
    /// They are put into the LRU lists.
    Drains,
    /// They wait until their batch is full.
    Leaves,
}

/// What a kernel reads that tells other CPUs by queues of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub(crate) struct CallQueueReads {
    pub(crate) looks_at: LooksAt,
    pub(crate) reads_generation: ReadsGeneration,
}

/// What an initiator reads of a CPU before it decides whether to tell it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LooksAt {
    /// Whether it is lazy.
    Lazy,
    /// That, and what it has loaded, beside which each flush there notes its generation.
    LazyAndLoaded,
}

/// When an answer reads the generation of the space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReadsGeneration {
    /// For each request.
    Always,
    /// For a request that is newer than what this CPU has flushed.
    WhenBehind,
}

/// Cache lines that a call reads, writes or executes, but those of other CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallLines {
    pub(crate) code: u32,
    pub(crate) data: u32,
}

/// The lines of each call, as a file has them. Those of a switch are of a plain one, whatever the policy.
#[derive(Debug, Deserialize)]
struct LinesFile {
    #[serde(rename = "kind")]
    _kind: NumberKind,
    #[serde(rename = "source")]
    _source: String,
    #[serde(flatten)]
    of: LinesOf,
}

/// The lines of each call.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct LinesOf {
    pub(crate) same_space: CallLines,
    pub(crate) enter_lazy: CallLines,
    pub(crate) leave_lazy: CallLines,
    pub(crate) current_slot: CallLines,
    pub(crate) new_slot: CallLines,
    /// A flush with its half on this CPU.
    pub(crate) flush: CallLines,
    /// What it takes more to look for others and to tell them.
    pub(crate) ask: CallLines,
    /// The handler with a request.
    pub(crate) answer: CallLines,
}

/// Whom one write of an interrupt command names, as far as the machine can.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Destinations {
    /// One CPU, or all others.
    One,
    /// All of a group that are to be interrupted.
    Group,
}

/// A table of counts. Where they come from is read by nobody but a person.
macro_rules! counted {
    ($(#[$about:meta])* $vis:vis $name:ident { $($(#[$doc:meta])* $field:ident,)* } $(else { $($rest:tt)* })?) => {
        $(#[$about])*
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        $vis struct $name {
            #[serde(rename = "kind")]
            _kind: NumberKind,
            #[serde(rename = "source")]
            _source: String,
            $($(#[$doc])* $vis $field: u32,)*
            $($($rest)*)?
        }
    };
}

counted! {
    /// Switches. Plain ones keep the CPU set, count no references and take slots in turn, unless the code knows no
    /// other way.
    CountedSwitch {
        same_space,
        enter_lazy,
        enter_kernel_tables,
        leave_lazy,
        current_slot,
        new_slot,
        no_tags,
    } else {
         counted: Option<CountedReferences>,
         exact: Option<Slots>,
         by_use: Option<Slots>,
    }
}

/// Where lazy references are counted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CountedReferences {
    enter_lazy: u32,
    leave_lazy: u32,
    current_slot: u32,
    new_slot: u32,
}

/// A switch that keeps the slot's entries, and one that flushes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Slots {
    current_slot: u32,
    new_slot: u32,
}

counted! {
    /// The initiator's part of a flush.
    CountedFlush {
        /// The call, up to the decision whether others must be asked, and the return.
        begin,
        /// The half on this CPU, without what each page takes.
        local,
        /// Looking for CPUs to ask, where there are others.
        choose,
        /// Each CPU that is left alone.
        skipped,
        /// Each CPU that is told.
        told,
        /// Telling and waiting, besides, where any is told.
        ask,
    }
}

counted! {
    /// The initiator's part where INVLPGB reaches everybody; absent for code that does not use it.
    CountedBroadcast {
        /// In place of the half on this CPU, without what INVLPGB and TLBSYNC take.
        flush,
    }
}

counted! {
    /// The responder's.
    CountedAnswer {
        /// An interrupt, whatever it finds.
        handler,
        /// Each request, without what each page takes.
        request,
    }
}

counted! {
    /// How a kernel keeps its LRU lists of pages.
    pub(crate) CountedLruLists {
        /// New pages that a CPU gathers before it puts them in.
        batch,
        /// Instructions of taking the lock and letting go of it.
        hold,
        /// Instructions of putting a page in, or of taking it out.
        page,
        /// Locked operations of putting a page in.
        locked_in,
        /// Locked operations of taking one out that is not the first of its hold. What the first takes comes before the
        /// lock.
        locked_out,
    } else {
        pub(crate) sweep: Sweep,
    }
}

/// What a CPU does under the lock of the lists. A locked operation is no instruction like others: nothing of what comes
/// after it begins before it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LruWork {
    pub(crate) instructions: u64,
    pub(crate) locked: u64,
}

impl CountedLruLists {
    /// A hold that puts `pages` pages in.
    pub(crate) fn putting_in(&self, pages: u32) -> LruWork {
        self.hold_of(pages, pages * self.locked_in)
    }

    /// A hold that takes `pages` pages out, at least one.
    pub(crate) fn taking_out(&self, pages: u32) -> LruWork {
        self.hold_of(pages, (pages - 1) * self.locked_out)
    }

    /// One page more in a hold that takes out.
    pub(crate) fn taking_out_one_more(&self) -> LruWork {
        LruWork { instructions: self.page.into(), locked: self.locked_out.into() }
    }

    fn hold_of(&self, pages: u32, locked: u32) -> LruWork {
        LruWork { instructions: (self.hold + pages * self.page).into(), locked: locked.into() }
    }
}

static CODES: LazyLock<Vec<CodeFile>> = LazyLock::new(|| {
    let read = |(name, text): &(&str, &str)| {
        toml::from_str(text).unwrap_or_else(|error| panic!("sim/machines/software/{name}.toml: {error}"))
    };
    FILES.iter().map(read).collect()
});

/// The code whose instructions a run is charged with, and whose cache lines move when it tells other CPUs. The protocol
/// that runs is always ours. The preset of another kernel is charged with that kernel's code, if it has been counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code(usize);

impl Code {
    /// The code of this project.
    pub const TLBKIT: Self = Self(0);

    /// The code that carries out the policy `preset` in its kernel; ours if no file names the preset.
    #[must_use]
    pub fn of_preset(preset: &str) -> Self {
        let is_known = |file: &CodeFile| file.presets.iter().any(|known| known == preset);
        CODES.iter().position(is_known).map_or(Self::TLBKIT, Self)
    }

    /// Whom it names in one write of an interrupt command.
    pub(crate) fn destinations(self) -> Destinations {
        self.counts().destinations
    }

    /// How it tells other CPUs, if not by our mailboxes.
    pub(crate) fn call_queues(self) -> Option<CallQueueReads> {
        self.counts().queues.as_ref().map(|file| file.of)
    }

    /// How it keeps its LRU lists, if that is known.
    pub(crate) fn lru_lists(self) -> Option<&'static CountedLruLists> {
        CODES[self.0].lists.as_ref()
    }

    fn counts(self) -> &'static CodeFile {
        &CODES[self.0]
    }

    /// The cache lines of its calls.
    pub(crate) fn lines(self) -> &'static LinesOf {
        &CODES[self.0].lines.of
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FILES[self.0].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_preset_has_one_code() {
        for preset in tlbkit::PRESETS {
            let codes = CODES.iter().filter(|file| file.presets.iter().any(|known| known == preset.name)).count();
            assert_eq!(codes, 1, "{}", preset.name);
        }
        let of = |preset| format!("{:?}", Code::of_preset(preset));
        assert_eq!(
            [of("tlbkit"), of("linux-4.20"), of("linux-6.18"), of("xnu")],
            ["tlbkit", "linux-6.12", "linux-7.3", "uncounted"]
        );
    }
}
