//! What helps against each cause: `remedies.toml`, which an expert can read and extend.

use std::sync::LazyLock;

use serde::Deserialize;
use tlbkit_trace::blame::Counts;

/// What helps against a cause, and where it does.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Remedy {
    cause: Vec<String>,
    #[serde(default)]
    memory: Vec<String>,
    #[serde(default)]
    caller: Vec<String>,
    #[serde(default)]
    along: Vec<String>,
    pages_least: Option<u64>,
    pages_most: Option<u64>,
    #[serde(rename = "where")]
    pub(super) place: Place,
    pub(super) fix: String,
    /// What `tlbscope try` takes.
    #[serde(rename = "try", default)]
    pub(super) trial: Vec<String>,
    /// The program of ours on which it was tried.
    pub(super) program: Option<String>,
    /// Which part of the cost goes, least and most.
    pub(super) saves: [f64; 2],
    pub(super) cost: Option<String>,
    pub(super) scope: Option<String>,
}

/// What has to be changed.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Place {
    Setting,
    Source,
    Nothing,
}

impl Place {
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Setting => "a setting",
            Self::Source => "in the source",
            Self::Nothing => "nothing to set",
        }
    }
}

#[derive(Deserialize)]
struct File {
    remedy: Vec<Remedy>,
}

static ALL: LazyLock<Vec<Remedy>> = LazyLock::new(|| {
    let file: File = toml::from_str(include_str!("remedies.toml")).expect("a test reads it");
    file.remedy
});

impl Remedy {
    /// What to type after `tlbscope try`; none if nothing can be tried without a change of the source.
    pub(super) fn trial(&self) -> Option<String> {
        let quoted = |change: &String| if change.contains(' ') { format!("'{change}'") } else { change.clone() };
        (!self.trial.is_empty()).then(|| self.trial.iter().map(quoted).collect::<Vec<_>>().join(" "))
    }

    /// Whether the fix takes away a cause of this name as well.
    pub(super) fn takes_along(&self, why: &str) -> bool {
        self.along.iter().any(|cause| cause == why)
    }

    /// The first remedy that fits; `by` are the caller and the library of the allocator, where they are known.
    pub(super) fn of(why: &str, memory: &str, by: [Option<&str>; 2], counts: &Counts) -> &'static Self {
        let fits = |remedy: &&Self| remedy.fits(why, memory, by, counts);
        ALL.iter().find(fits).expect("the last row fits everything")
    }

    fn fits(&self, why: &str, memory: &str, by: [Option<&str>; 2], counts: &Counts) -> bool {
        let is_meant = |kind: &String| kind == memory || kind == "file" && memory.starts_with('/');
        let pages = counts.named.checked_div(counts.calls);
        (self.cause.is_empty() || self.cause.iter().any(|cause| cause == why))
            && (self.memory.is_empty() || self.memory.iter().any(is_meant))
            && (self.caller.is_empty()
                || by.into_iter().flatten().any(|by| self.caller.iter().any(|part| by.contains(part))))
            && self.pages_least.is_none_or(|least| pages.is_some_and(|pages| pages >= least))
            && self.pages_most.is_none_or(|most| pages.is_some_and(|pages| pages <= most))
    }
}

#[cfg(test)]
mod tests {
    use tlbkit_host::trial::Change;

    use super::*;

    #[test]
    fn each_row_can_be_read_tried_and_believed() {
        for remedy in &*ALL {
            let mut trial = remedy.trial.iter();
            assert!(trial.all(|change| change.parse::<Change>().is_ok()), "{:?}", remedy.trial);
            let [least, most] = remedy.saves;
            assert!(0.0 <= least && least <= most && most <= 1.0, "{}", remedy.fix);
            assert!(
                remedy.place != Place::Setting
                    || !remedy.trial.is_empty()
                    || remedy.fix.contains("memory")
                    || remedy.fix.contains("pages"),
                "{}",
                remedy.fix
            );
        }
        assert!(ALL.last().is_some_and(|last| last.cause.is_empty()));
    }

    #[test]
    fn conditions_choose_among_rows_of_one_cause() {
        let counts = |calls, named| Counts { calls, named, ..Counts::default() };
        let fix = |why, memory, caller, counts| Remedy::of(why, memory, [caller, None], &counts).fix.as_str();
        assert!(fix("mprotect", "anonymous", None, counts(9, 9)).contains("membarrier"));
        assert!(fix("mprotect", "anonymous", None, counts(9, 9 * 8192)).starts_with("protect only the pages"));
        assert!(fix("mprotect", "anonymous", None, counts(9, 36)).contains("pkey_set"));
        assert!(fix("munmap", "anonymous", None, counts(9, 36)).contains("free list"), "it is not malloc's");
        assert!(fix("munmap", "anonymous", Some("munmap < free < main"), counts(9, 36)).contains("glibc"));
        assert!(fix("munmap", "/etc/passwd", None, counts(9, 36)).contains("pread"));
        assert!(fix("munmap", "stack of a thread", None, counts(9, 36)).contains("pool"));
        assert!(fix("madvise DONTNEED", "arena of malloc", None, counts(9, 36)).contains("glibc"));
        let of_library = Remedy::of("madvise DONTNEED", "heap", [None, Some("libtcmalloc")], &counts(9, 36));
        assert!(of_library.fix.contains("tcmalloc"), "{}", of_library.fix);
        assert!(fix("pwrite64", "unknown", None, counts(0, 0)).contains("larger calls"));
    }
}
