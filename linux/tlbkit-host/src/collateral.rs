//! What else a flush takes along: the time to use warm pages again after other pages were flushed.
//!
//! Where a host backs its guest with small pages, one INVLPG may empty the whole TLB ("fracturing"). Then the warm
//! pages are as slow after the flush of one other page as after a flush of everything.

use serde::Serialize;

use crate::error::Result;
use crate::sample::{Effort, Sample, nanoseconds};
use crate::sys::{Backing, Mapping, PAGE_WORDS};

/// Pages that are kept warm: they fit every second-level TLB.
const WARM_PAGES: usize = 512;
/// Pages of a flush that no kernel does page by page.
const MANY_PAGES: usize = 512;

/// Nanoseconds to use each of the warm pages once.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Collateral {
    /// After a system call that found nothing to flush.
    pub after_none: Sample,
    /// After the flush of one other page.
    pub after_one: Sample,
    /// After a flush of everything.
    pub after_all: Sample,
}

/// Whether the flush of one page takes the others along.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fracturing {
    /// INVLPG empties the whole TLB.
    On,
    /// INVLPG drops no other entries.
    Off,
    /// The measurements do not tell.
    Unclear,
}

impl Collateral {
    /// Measures it.
    ///
    /// # Errors
    /// If the kernel refuses a call.
    pub fn measure(effort: Effort) -> Result<Self> {
        let mut warm = Mapping::new(WARM_PAGES, Backing::Small)?;
        let mut other = Mapping::new(MANY_PAGES, Backing::Small)?;
        warm.touch(0..WARM_PAGES);
        let mut after = |present: usize| -> Result<Sample> {
            let mut once = || {
                other.touch(0..present);
                use_all(&mut warm);
                use_all(&mut warm);
                other.discard(0..MANY_PAGES)?;
                Ok(nanoseconds(|| use_all(&mut warm)))
            };
            once()?;
            Ok(Sample::of((0..effort.many_repetitions()).map(|_| once()).collect::<Result<_>>()?))
        };
        Ok(Self { after_none: after(0)?, after_one: after(1)?, after_all: after(MANY_PAGES)? })
    }

    /// What follows from it.
    #[must_use]
    pub fn fracturing(&self) -> Fracturing {
        let whole = self.after_all.median - self.after_none.median;
        // Where a full flush does not show, nothing can be said about a smaller one.
        if whole <= 0.1 * self.after_none.median {
            return Fracturing::Unclear;
        }
        match (self.after_one.median - self.after_none.median) / whole {
            share if share > 0.6 => Fracturing::On,
            share if share < 0.4 => Fracturing::Off,
            _ => Fracturing::Unclear,
        }
    }
}

/// One load of each page, each in another line, none waiting for another.
fn use_all(mapping: &mut Mapping) {
    let pages = mapping.pages();
    let words = mapping.words();
    let sum =
        (0..pages).fold(0_usize, |sum, page| sum.wrapping_add(words[page * PAGE_WORDS + (page * 8) % PAGE_WORDS]));
    std::hint::black_box(sum);
}

#[cfg(test)]
mod tests {
    use super::{Collateral, Fracturing};
    use crate::sample::Sample;

    fn verdict(none: f64, one: f64, all: f64) -> Fracturing {
        let of = |value| Sample { low: value, median: value, high: value, repetitions: 1 };
        Collateral { after_none: of(none), after_one: of(one), after_all: of(all) }.fracturing()
    }

    #[test]
    fn the_flush_of_one_page_is_like_none_or_like_all() {
        assert_eq!(verdict(4046.0, 18_566.0, 18_576.0), Fracturing::On);
        assert_eq!(verdict(4046.0, 4300.0, 18_576.0), Fracturing::Off);
        assert_eq!(verdict(4046.0, 11_000.0, 18_576.0), Fracturing::Unclear);
        assert_eq!(verdict(4046.0, 4046.0, 4100.0), Fracturing::Unclear);
    }
}
