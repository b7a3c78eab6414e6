//! What a prediction claims: it is worth something only where a sceptic's one line would have failed.
//!
//! The sceptic's line is the null model. It stands in the experiment's file as a number with the sentence that makes
//! it, and so does the reason why a figure claims nothing.

use serde::{Deserialize, Serialize};

/// What a sceptic would have written down in one line, without any simulation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NullModel {
    /// The value that it gives, in the unit of the figure.
    pub(crate) value: f64,
    /// How it comes to that value.
    pub(crate) says: String,
}

/// How much a prediction that has a band claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Claim {
    /// The null model's value lies outside the band, and nobody had seen the result when the band was written.
    Strong,
    /// The null model's value lies in the band as well, or the result was known when the band was written.
    Weak,
    /// The figure could not have come out otherwise.
    Tautological,
}

impl Claim {
    /// All of them, the strongest first.
    pub(crate) const ALL: [Claim; 3] = [Claim::Strong, Claim::Weak, Claim::Tautological];

    /// The word in tables, report and JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Claim::Strong => "strong",
            Claim::Weak => "weak",
            Claim::Tautological => "tautological",
        }
    }
}

/// What a sceptic has to say about one figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sceptic {
    /// The null model beside it.
    pub(crate) null: Option<NullModel>,
    /// Why it could not have come out otherwise.
    pub(crate) tautology: Option<String>,
    /// What was known of the result when the band, or the choice that decides the value, was made.
    pub(crate) in_view: Option<String>,
}

impl Sceptic {
    /// What a prediction with this band claims.
    pub(crate) fn claim(&self, [low, high]: [f64; 2]) -> Claim {
        let is_excluded = self.null.as_ref().is_some_and(|null| !(low..=high).contains(&null.value));
        match self {
            Sceptic { tautology: Some(_), .. } => Claim::Tautological,
            Sceptic { in_view: None, .. } if is_excluded => Claim::Strong,
            _ => Claim::Weak,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sceptic(value: f64) -> Sceptic {
        Sceptic { null: Some(NullModel { value, says: "nothing changes".into() }), ..Sceptic::default() }
    }

    #[test]
    fn a_claim_is_strong_where_the_null_model_lies_outside_the_band() {
        for (value, claim) in [(0.9, Claim::Strong), (1.0, Claim::Weak), (3.0, Claim::Weak), (3.1, Claim::Strong)] {
            assert_eq!(sceptic(value).claim([1.0, 3.0]), claim, "{value}");
        }
        assert_eq!(Sceptic::default().claim([1.0, 3.0]), Claim::Weak, "no null model excludes nothing");
    }

    #[test]
    fn what_was_known_or_cannot_be_otherwise_is_not_strong() {
        let in_view = Sceptic { in_view: Some("seen".into()), ..sceptic(9.0) };
        assert_eq!(in_view.claim([1.0, 3.0]), Claim::Weak);
        let tautology = Sceptic { tautology: Some("a sum of its inputs".into()), ..sceptic(9.0) };
        assert_eq!(tautology.claim([1.0, 3.0]), Claim::Tautological);
    }
}
