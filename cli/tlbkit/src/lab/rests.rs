//! What a conclusion rests on: whether draws of a machine's priors agree on which policy is better, and which of the
//! priors each result follows.

use serde::Serialize;
use serde_json::{Value, json};
use tlbkit_machine::Prior;
use tlbkit_output::number;
use tlbkit_output::table::grid;
use tlbkit_sim::RunOutcome;

use super::draws::Draws;
use super::rank::{Candidates, Followed};
use super::seeds::PolicyOutcomes;
use super::spread::{self, Spread};

/// The fewest draws with which policies are ranked. One draw of fewer is more than the twentieth that may disagree.
const FEWEST_DRAWS: usize = spread::FEWEST;

/// One draw of this many may disagree with the others.
const ONE_IN: usize = 20;

/// Priors that are shown for one result.
const MOST_SHOWN: usize = 5;

/// What follows from runs on drawn machines, and from runs with the same seeds on the machine of the file. The latter
/// differ by chance alone.
pub(crate) struct Findings<'a> {
    /// The score of the first policy, and the score of each other policy divided by that.
    results: Vec<Compared<'a>>,
    draws: usize,
    /// Priors that were tried, and the rank correlation that one of them has with a result by chance.
    tried: usize,
    chance: f64,
}

/// One result, on drawn machines and on the machine of the file: a score, or a score divided by that of `against`.
struct Compared<'a> {
    policy: &'a str,
    against: Option<&'a str>,
    drawn: Option<Series>,
    own: Option<Series>,
    followed: Vec<(&'a Prior, Followed)>,
}

/// The values of one result, one for each draw or seed.
#[derive(Clone, Serialize)]
struct Series {
    spread: Spread,
    /// How many are above one. If the result is a ratio, the policy is better in these.
    better: usize,
    worse: usize,
    #[serde(skip)]
    all: usize,
}

/// What draws say of two policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// Nearly all draws have the policy before the first one.
    Better,
    /// Nearly all have it behind.
    Worse,
    /// All have both equal.
    Equal,
    /// The draws disagree, but the seeds on the machine of the file do not: all agree, or nearly all do and the ratio
    /// follows a prior.
    PriorsDecide,
    /// The draws disagree. Either the seeds disagree as well and the ratio follows a prior, or neither holds.
    BothDecide,
    /// The draws disagree, the seeds disagree as well, and the ratio follows no prior.
    ChanceDecides,
    /// There are too few of them.
    FewDraws,
    /// A run has no score a second, or one of nothing.
    NoScore,
}

/// A policy and its score a second in each run; none if a run has no score.
type Scores<'a> = (&'a str, Option<Vec<f64>>);

impl<'a> Findings<'a> {
    /// What follows from the outcomes of each policy on the machines that were `drawn`, and on the machine of the file,
    /// `own`: one for each of `draws`. The other policies are compared with the first one.
    pub(crate) fn of(draws: &'a Draws, drawn: &[PolicyOutcomes<'a>], own: &[PolicyOutcomes<'a>]) -> Self {
        let scores = |columns: &[PolicyOutcomes<'a>]| -> Vec<Scores<'a>> {
            let rates = |column: &PolicyOutcomes<'_>| column.outcomes.iter().map(RunOutcome::rate).collect();
            columns.iter().map(|column| (column.policy, rates(column))).collect()
        };
        Self::of_scores(draws.priors(), &draws.values(), &scores(drawn), &scores(own))
    }

    /// What follows from the scores alone. `values` has what was drawn of each of `priors`.
    fn of_scores(priors: &'a [Prior], values: &[Vec<f64>], drawn: &[Scores<'a>], own: &[Scores<'a>]) -> Self {
        let candidates = Candidates::new(values);
        let followed = |results: &Vec<f64>| -> Vec<_> {
            let found = candidates.followed(results, MOST_SHOWN);
            found.into_iter().map(|found| (&priors[found.number], found)).collect()
        };
        let results = (0..drawn.len()).map(|index| {
            let [on_drawn, on_own] = [drawn, own].map(|scores| match index {
                0 => scores[0].1.clone(),
                _ => ratios(scores[index].1.as_deref(), scores[0].1.as_deref()),
            });
            Compared {
                policy: drawn[index].0,
                against: (index > 0).then_some(drawn[0].0),
                followed: on_drawn.as_ref().map(followed).unwrap_or_default(),
                drawn: on_drawn.as_deref().and_then(Series::of),
                own: on_own.as_deref().and_then(Series::of),
            }
        });
        let draws = values.first().map_or(0, Vec::len);
        Self { results: results.collect(), draws, tried: priors.len(), chance: candidates.chance }
    }

    /// For a person: who is better, and what each result follows.
    pub(crate) fn text(&self) -> String {
        let head = ["score a second", "drawn machines", "better in", "the file's own, same seeds", "better in"];
        let mut text = grid(&head, &self.results.iter().map(Compared::row).collect::<Vec<_>>());
        for sentence in self.results.iter().filter_map(Compared::sentence) {
            text += &format!("{sentence}\n");
        }
        text + "\n" + &self.followed_text()
    }

    fn followed_text(&self) -> String {
        let Self { draws, tried, chance, .. } = self;
        if *draws < 2 || *chance > 0.999 {
            return format!("To tell which of {tried} priors a score follows takes more draws than {draws}.\n");
        }
        let head = ["score a second", "follows the prior", "rank correlation", "value", "band"];
        let shown = format!("At most {MOST_SHOWN} are shown, beyond {chance:.2} by themselves");
        let legend = [
            "A rank correlation is 1 if the score always grows with the prior, and -1 if it always falls.".to_owned(),
            shown + " and in what those above leave unexplained.",
            format!("By chance the largest of {tried} exceeds that in one case of 20. More draws show more.\n"),
        ];
        let rows: Vec<_> = self.results.iter().flat_map(Compared::followed_rows).collect();
        grid(&head, &rows) + &legend.join("\n")
    }

    /// For a program: a line for each result, with its verdict and what it follows.
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let line = |result: &Compared<'_>| {
            let followed = result.followed.iter().map(|(prior, found)| {
                let (name, value, band) = (&prior.name, prior.value, prior.band);
                let (whole, left) = (found.whole, found.left);
                json!({
                    "prior": name, "rank_correlation": whole, "of_what_is_left": left, "value": value, "band": band,
                })
            });
            json!({
                "score_of": result.policy, "by_that_of": result.against, "draws": self.draws,
                "drawn": result.series_json(&result.drawn), "own": result.series_json(&result.own),
                "verdict": result.against.map(|_| result.verdict()),
                "follows": followed.collect::<Vec<_>>(), "priors_tried": self.tried, "chance": self.chance,
            })
        };
        self.results.iter().map(line).collect()
    }
}

impl Series {
    fn of(values: &[f64]) -> Option<Self> {
        let count = |is: fn(&f64) -> bool| values.iter().filter(|value| is(value)).count();
        let (better, worse) = (count(|&value| value > 1.0), count(|&value| value < 1.0));
        Some(Self { spread: Spread::of(values)?, better, worse, all: values.len() })
    }

    fn are_nearly_all(&self, alike: usize) -> bool {
        (self.all - alike) * ONE_IN <= self.all
    }

    /// How many are better, worse, equal.
    fn sides(&self) -> [usize; 3] {
        [self.better, self.worse, self.all - self.better - self.worse]
    }

    fn agree_nearly(&self) -> bool {
        self.sides().into_iter().any(|alike| self.are_nearly_all(alike))
    }

    fn agree_wholly(&self) -> bool {
        self.sides().contains(&self.all)
    }

    fn better_in(&self) -> String {
        format!("{} of {}", self.better, self.all)
    }
}

impl Compared<'_> {
    /// One of its series, for a program. A score that is compared with no other is neither better nor worse.
    fn series_json(&self, series: &Option<Series>) -> Value {
        match (self.against, series) {
            (None, Some(series)) => json!({ "spread": series.spread }),
            _ => json!(series),
        }
    }

    /// What it is, for a row.
    fn title(&self) -> String {
        match self.against {
            None => format!("under {}", self.policy),
            Some(against) => format!("{} by {against}", self.policy),
        }
    }

    fn row(&self) -> Vec<String> {
        let digits = if self.against.is_some() { 3 } else { 0 };
        let cells = [&self.drawn, &self.own].into_iter().flat_map(|series| {
            let none = || number::NONE.to_owned();
            let better = series.as_ref().filter(|_| self.against.is_some()).map_or_else(none, Series::better_in);
            [series.as_ref().map_or_else(none, |series| series.spread.digits(digits)), better]
        });
        [self.title()].into_iter().chain(cells).collect()
    }

    fn verdict(&self) -> Verdict {
        let (Some(drawn), Some(own)) = (&self.drawn, &self.own) else { return Verdict::NoScore };
        let follows_prior = !self.followed.is_empty();
        if drawn.better + drawn.worse == 0 {
            Verdict::Equal
        } else if drawn.all < FEWEST_DRAWS {
            Verdict::FewDraws
        } else if drawn.are_nearly_all(drawn.better) {
            Verdict::Better
        } else if drawn.are_nearly_all(drawn.worse) {
            Verdict::Worse
        } else if own.agree_wholly() || own.agree_nearly() && follows_prior {
            Verdict::PriorsDecide
        } else if own.agree_nearly() || follows_prior {
            Verdict::BothDecide
        } else {
            Verdict::ChanceDecides
        }
    }

    /// Which policy is better, if that can be said; none of the first one.
    fn sentence(&self) -> Option<String> {
        let (policy, against) = (self.policy, self.against?);
        let ranked = |word: &str, count: fn(&Series) -> usize| {
            let many = self.drawn.as_ref().map_or_else(String::new, |all| format!("{} of {}", count(all), all.all));
            format!(
                "{policy} is {word} than {against} in {many} draws: \
                 as far as these tell, the priors do not decide it."
            )
        };
        let unranked = format!("{policy} and {against} are not ranked:");
        Some(match self.verdict() {
            Verdict::Better => ranked("better", |drawn| drawn.better),
            Verdict::Worse => ranked("worse", |drawn| drawn.worse),
            Verdict::Equal => format!("{policy} and {against} are equal in every draw."),
            Verdict::PriorsDecide => format!("{unranked} draws disagree, and the priors decide which is better."),
            Verdict::ChanceDecides => {
                format!("{unranked} draws disagree, and so do seeds on one machine. Longer runs may tell.")
            }
            Verdict::BothDecide => format!("{unranked} draws disagree, and priors and chance decide which is better."),
            Verdict::FewDraws => format!("{unranked} that takes {FEWEST_DRAWS} draws, of which 95 % agree."),
            Verdict::NoScore => format!("{unranked} not every run has a score."),
        })
    }

    fn followed_rows(&self) -> Vec<Vec<String>> {
        let row = |(prior, found): &(&Prior, Followed)| {
            let [low, high] = prior.band;
            let (value, band) = (prior.value.to_string(), format!("{low} .. {high}"));
            vec![self.title(), prior.name.clone(), format!("{:+.2}", found.whole), value, band]
        };
        if self.followed.is_empty() {
            let none = || number::NONE.to_owned();
            return vec![vec![self.title(), "none stands out".to_owned(), none(), none(), none()]];
        }
        self.followed.iter().map(row).collect()
    }
}

/// The ratios, draw by draw; none if a score is missing or zero.
fn ratios(ours: Option<&[f64]>, theirs: Option<&[f64]>) -> Option<Vec<f64>> {
    let (ours, theirs) = ours.zip(theirs).filter(|(_, theirs)| !theirs.contains(&0.0))?;
    Some(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect())
}

#[cfg(test)]
mod tests {
    use tlbkit_machine::Priors;

    use super::*;

    /// Numbers from 0 to 1 in an order of their own for each `stream`.
    fn random(stream: u64, count: usize) -> Vec<f64> {
        let mut random = tlbkit_arch::SplitMix64::new(stream);
        (0..count).map(|_| random.below(1_000_000) as f64 / 1e6).collect()
    }

    /// What is found if the other policy's score by the first one's is `drawn` in each draw, and `own` for each seed.
    fn found(priors: &Priors, values: &[Vec<f64>], drawn: &[f64], own: &[f64]) -> (Verdict, Vec<String>, String) {
        let scores = |ratios: &[f64]| [("one", Some(vec![100.0; ratios.len()])), ("two", Some(hundredfold(ratios)))];
        let findings = Findings::of_scores(priors.drawn(), values, &scores(drawn), &scores(own));
        let [first, second] = &findings.results[..] else { panic!("a result for each policy") };
        assert!(first.followed.is_empty(), "a score that does not change follows nothing");
        let names = second.followed.iter().map(|followed| followed.0.name.clone()).collect();
        (second.verdict(), names, findings.text())
    }

    fn hundredfold(ratios: &[f64]) -> Vec<f64> {
        ratios.iter().map(|ratio| 100.0 * ratio).collect()
    }

    fn priors_with_values(draws: usize) -> (Priors, Vec<Vec<f64>>) {
        let priors = Priors::builtin("recent-bare").unwrap();
        let values = (0..priors.drawn().len()).map(|prior| random(prior as u64 + 1, draws)).collect();
        (priors, values)
    }

    #[test]
    fn a_policy_is_ranked_if_one_draw_in_twenty_disagrees_and_not_if_two_do() {
        let (priors, values) = priors_with_values(20);
        let drawn = |worse: usize| -> Vec<f64> { (0..20).map(|draw| if draw < worse { 0.99 } else { 1.01 }).collect() };
        let of = |worse| found(&priors, &values, &drawn(worse), &[1.01; 20]).0;
        assert_eq!([of(0), of(1), of(2), of(18)], [Verdict::Better, Verdict::Better, Verdict::PriorsDecide, of(2)]);
        assert_eq!([of(19), of(20)], [Verdict::Worse; 2]);
        assert_eq!(found(&priors, &values, &[1.0; 20], &[1.0; 20]).0, Verdict::Equal);
        let text = found(&priors, &values, &drawn(1), &[1.01; 20]).2;
        assert!(
            text.contains(
                "\ntwo is better than one in 19 of 20 draws: as far as these tell, the priors do not decide it.\n"
            ),
            "{text}"
        );
        let text = found(&priors, &values, &drawn(20), &[1.01; 20]).2;
        assert!(
            text.contains(
                "\ntwo is worse than one in 20 of 20 draws: as far as these tell, the priors do not decide it.\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn nineteen_draws_rank_nothing() {
        let (priors, values) = priors_with_values(19);
        assert_eq!(found(&priors, &values, &[1.01; 19], &[1.01; 19]).0, Verdict::FewDraws);
        let (priors, values) = priors_with_values(3);
        let text = found(&priors, &values, &[1.01; 3], &[1.01; 3]).2;
        assert!(text.ends_with("To tell which of 35 priors a score follows takes more draws than 3.\n"), "{text}");
    }

    /// Draws disagree. By chance they do if the seeds disagree on one machine as well, by priors if the ratio follows
    /// one.
    #[test]
    fn who_decides_is_told_by_the_file_s_own_machine_and_by_what_the_ratio_follows() {
        let (priors, values) = priors_with_values(100);
        let around_one = |values: &[f64]| values.iter().map(|value| 0.95 + value / 10.0).collect::<Vec<_>>();
        let (following, chance) = (around_one(&values[5]), around_one(&random(1001, 100)));
        let nearly: Vec<_> = (0..100).map(|seed| if seed < 3 { 0.99 } else { 1.01 }).collect();
        let of = |drawn: &[f64], own: &[f64]| found(&priors, &values, drawn, own).0;
        assert_eq!(of(&following, &[1.01; 100]), Verdict::PriorsDecide);
        assert_eq!(of(&chance, &[1.01; 100]), Verdict::PriorsDecide, "more than one of them, or not by their order");
        assert_eq!(of(&following, &nearly), Verdict::PriorsDecide);
        assert_eq!(of(&chance, &nearly), Verdict::BothDecide);
        assert_eq!(of(&chance, &[1.0; 100]), Verdict::PriorsDecide, "seeds that are all equal agree");
        assert_eq!(of(&following, &chance), Verdict::BothDecide);
        assert_eq!(of(&chance, &around_one(&random(1002, 100))), Verdict::ChanceDecides);
        let (_, followed, text) = found(&priors, &values, &following, &nearly);
        assert_eq!(followed, [priors.drawn()[5].name.clone()]);
        let row =
            |line: &str| line.starts_with("| two by one") && line.contains(&followed[0]) && line.contains("+1.00");
        assert!(text.lines().any(row), "{text}");
    }

    #[test]
    fn what_has_no_score_is_not_ranked() {
        let (priors, values) = priors_with_values(20);
        let full = || Some(vec![100.0; 20]);
        let of = |one: Option<Vec<f64>>, two: Option<Vec<f64>>| {
            let findings = Findings::of_scores(
                priors.drawn(),
                &values,
                &[("one", one), ("two", two)],
                &[("one", full()), ("two", full())],
            );
            findings.results[1].verdict()
        };
        let nothing = Some(vec![0.0; 20]);
        assert_eq!([of(None, full()), of(full(), None), of(nothing, full())], [Verdict::NoScore; 3]);
        assert_eq!(of(full(), full()), Verdict::Equal);
    }
}
