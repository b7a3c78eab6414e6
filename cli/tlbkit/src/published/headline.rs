//! What a document says in a sentence, and the figures by which one sees whether that holds.

use serde::Deserialize;

use super::figure::Figure;

/// The claim of a document.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Headline {
    /// The claim, in a sentence of ours.
    pub(crate) says: String,
    /// What it is seen by. The first figure decides.
    pub(crate) figures: Vec<HeadlineFigure>,
}

/// One of its figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeadlineFigure {
    /// A quantity of the file, or one of its rules.
    pub(crate) quantity: String,
    /// What it is, in the words of the claim.
    pub(crate) says: String,
    /// What it changes from: the quantity that it was before, or [`NOTHING`].
    pub(crate) from: Option<String>,
}

/// Said of a figure that is a change itself.
pub(super) const NOTHING: &str = "no change";

/// A figure of a claim as it came out.
#[derive(Clone, Debug)]
pub(crate) struct HeadlineRow {
    /// What it is.
    pub(crate) says: String,
    pub(crate) figure: Figure,
    pub(crate) outcome: Outcome,
}

/// How a figure of a claim came out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// It lies in its band.
    Holds,
    /// It lies outside, and changes in the direction that was published, by so many times as much.
    InDirection(f64),
    /// Neither: it is so many times what was published, if that can be said.
    Misses(Option<f64>),
}

impl Headline {
    /// The claim's rows among `figures`; a figure that is absent has none.
    pub(crate) fn rows(&self, figures: &[Figure]) -> Vec<HeadlineRow> {
        let find = |quantity: &str| figures.iter().find(|figure| figure.expected.quantity == quantity);
        let row = |headline: &HeadlineFigure| {
            let figure = find(&headline.quantity)?;
            let from = headline.from.as_deref().and_then(|from| match from {
                NOTHING if figure.expected.unit == "times" => Some([1.0; 2]),
                NOTHING => Some([0.0; 2]),
                quantity => find(quantity).and_then(|from| Some([from.expected.published?, from.ours?])),
            });
            let outcome = Outcome::of(figure, from);
            Some(HeadlineRow { says: headline.says.clone(), figure: figure.clone(), outcome })
        };
        self.figures.iter().filter_map(row).collect()
    }
}

impl Outcome {
    /// `from` has what it changes from, as published and as ours.
    fn of(figure: &Figure, from: Option<[f64; 2]>) -> Self {
        let ratio = |[published, ours]: [f64; 2]| {
            Some((figure.ours? - ours) / (figure.expected.published? - published)).filter(|ratio| ratio.is_finite())
        };
        match from.and_then(ratio) {
            _ if figure.is_ok() => Self::Holds,
            Some(ratio) if ratio > 0.0 => Self::InDirection(ratio),
            Some(_) => Self::Misses(None),
            None => Self::Misses(ratio([0.0; 2]).filter(|ratio| *ratio > 0.0)),
        }
    }

    /// The verdict in plain words.
    pub(crate) fn words(self) -> String {
        match self {
            Self::Holds => "holds".to_owned(),
            Self::InDirection(times) => format!("holds in direction, the change is {}", by(times)),
            Self::Misses(Some(times)) => format!("misses, {}", by(times)),
            Self::Misses(None) => "misses".to_owned(),
        }
    }
}

/// How far from what it should be something is that is so many times as much.
fn by(times: f64) -> String {
    let (word, factor) = if times < 1.0 { ("small", 1.0 / times) } else { ("large", times) };
    match factor {
        factor if factor > 9.95 => format!("{factor:.0} times too {word}"),
        factor if factor > 2.0 => format!("{factor:.1} times too {word}"),
        _ => format!("{:.0} % too {word}", 100.0 * (times - 1.0).abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::read::builtin;

    /// What is said of the figures of `id`, if ours of `quantity` is `ours` and all others are the published ones.
    fn said(id: &str, quantity: &str, ours: f64) -> Vec<String> {
        let experiment = builtin(id);
        let figures = experiment.expected.iter().map(|expected| {
            let published = expected.published.unwrap_or(0.0);
            Figure::new(expected, if expected.quantity == quantity { ours } else { published })
        });
        let figures = experiment.judge(figures.collect());
        experiment.headline.unwrap().rows(&figures).iter().map(|row| row.outcome.words()).collect()
    }

    #[test]
    fn a_claim_holds_in_its_band_and_otherwise_in_direction_or_not() {
        let interrupts = |ours| said("batch", "shootdown interrupts, change", ours).remove(0);
        assert_eq!(interrupts(-45.0), "holds");
        assert_eq!(interrupts(-25.0), "holds in direction, the change is 50 % too small");
        assert_eq!(interrupts(-5.0), "holds in direction, the change is 10 times too small");
        assert_eq!(interrupts(-70.0), "holds in direction, the change is 40 % too large");
        assert_eq!(interrupts(5.0), "misses");
        assert_eq!(said("pcid", "walks left by pcid, pages 512", 0.053)[1], "misses, 100 times too small");
        // From 0.95 % to 0.87 in the document, and to 0.15 here.
        let swapper = said("lazy", "share of CPU, after, swapper", 0.15).remove(0);
        assert_eq!(swapper, "holds in direction, the change is 10 times too large");
        let walks = said("pti", "dTLB walks, cr3 over invpcid", 4.0);
        assert_eq!(walks[1], "holds in direction, the change is 3.0 times too large");
    }
}
