//! What draws of priors say, for a person: a table for each experiment, and which misses could be a prior's.

use tlbkit_output::table::grid;

use super::drawn::{DrawnExperiment, DrawnFigure, Miss, Summary, Way};
use crate::lab::spread::{Spread, range_words};
use crate::output::number::{NONE, figure_text, fixed, held, kind_word, row_digits};

/// What no range here has in it.
const NOT_DRAWN: &str = "\
Not drawn are what set-ups assume, noise.toml, cold.toml, counted instructions, and what machines are made of. What was
fitted stays as well: the fit is not repeated for each draw, while whoever wrote the file of a drawn machine would fit
it anew. So a range may be wider or narrower than it should be: machines are in it that miss even what was fitted.";

/// Under the misses inside.
const OF_CORRELATIONS: &str = "\
A rank correlation is 1 if the figure always grows with the prior, and -1 if it always falls; by chance the largest of
all priors exceeds the limit beside it in one case of 20.";

/// Under the misses outside.
const OF_REACH: &str = "\
Where no draw reaches it, no value of a machine's priors explains the miss, as far as these draws tell; where few do,
it takes an unlikely machine. What is in band in some draws could be mended by priors, though not explained whole.";

/// One experiment.
pub(super) fn experiment_text(of: &DrawnExperiment) -> String {
    let setup = &of.experiment.setup;
    let draws = of.draws.count();
    let head = ["quantity", "published", "ours", "median", range_words(draws), "published in it", "in band"];
    let head = [&head[..], &["claim", "null"]].concat();
    let rows: Vec<_> = of.predictions().map(row).collect();
    let fitted: String = of.fitted().map(fitted_text).collect();
    format!(
        "{}: {}\non {} and {draws} machines drawn from its file, each with seeds of its own\n{}\n{}{fitted}",
        of.experiment.id,
        of.experiment.title,
        setup.machine,
        of.draws.about(),
        grid(&head, &rows),
    )
}

fn row(figure: &DrawnFigure) -> Vec<String> {
    let own = &figure.own;
    let text = figure_text(own);
    let (median, range) = match figure.spread() {
        Some(spread) => (fixed(spread.median, row_digits(own)), range(figure, spread)),
        None => (NONE.into(), NONE.into()),
    };
    let is_held = figure.holds_published().map_or(NONE, |is_held| if is_held { "yes" } else { "no" });
    let (title, in_band, claim) = (title(figure), in_band(figure), kind_word(own).to_owned());
    vec![title, text.published, text.ours, median, range, is_held.to_owned(), in_band, claim, text.null]
}

fn in_band(figure: &DrawnFigure) -> String {
    figure.in_band().map_or_else(|| NONE.into(), |in_band| format!("{in_band} of {}", figure.draws()))
}

fn title(figure: &DrawnFigure) -> String {
    format!("{} [{}]", figure.own.expected.quantity, figure.own.expected.unit)
}

fn range(figure: &DrawnFigure, spread: Spread) -> String {
    let [low, high] = [spread.low, spread.high].map(|end| fixed(end, row_digits(&figure.own)));
    format!("{low} .. {high}")
}

fn fitted_text(figure: &DrawnFigure) -> String {
    let (text, digits) = (figure_text(&figure.own), row_digits(&figure.own));
    let drawn = figure.spread().map_or_else(|| NONE.to_owned(), |spread| spread.digits(digits));
    let (title, published) = (title(figure), text.published);
    format!("fitted on the file's own machine, and not anew for a draw: {title}, published {published}, here {drawn}\n")
}

/// All experiments that were done.
pub(super) fn summary_text(experiments: &[DrawnExperiment]) -> String {
    let count = |name: &str, of: &Summary| {
        let [inside, outside] = [&of.inside, &of.outside].map(|misses| misses.len().to_string());
        [name.to_owned()].into_iter().chain([held(&of.strong), held(&of.weak), inside, outside]).collect()
    };
    let mut rows: Vec<Vec<String>> =
        experiments.iter().map(|one| count(&one.experiment.id, &Summary::of([one]))).collect();
    let all = Summary::of(experiments);
    if experiments.len() > 1 {
        rows.push(count("all", &all));
    }
    let head = ["published value in the range of the draws", "strong", "weak", "known misses inside", "outside"];
    let misses = [misses_inside(&all.inside), misses_outside(&all.outside)].concat();
    format!("{}{misses}\n{NOT_DRAWN}", grid(&head, &rows))
}

/// Columns of both tables of misses, behind the name.
const OF_MISS: [&str; 5] = ["claim", "published", "ours", "range of the draws", "in band"];

/// The name of a miss, and what these columns have of it.
fn miss((of, figure): Miss<'_>) -> Vec<String> {
    let text = figure_text(&figure.own);
    let range = figure.spread().map_or_else(|| NONE.to_owned(), |spread| range(figure, spread));
    let name = format!("{}: {}", of.experiment.id, title(figure));
    vec![name, kind_word(&figure.own).to_owned(), text.published, text.ours, range, in_band(figure)]
}

/// The misses that a prior could explain, each with the prior that explains most of it.
fn misses_inside(misses: &[Miss<'_>]) -> String {
    if misses.is_empty() {
        return String::new();
    }
    let of_prior = ["follows the prior", "rank correlation", "by chance", "value", "band", "to meet"];
    let head = [&["inside: the miss could be a prior's"], &OF_MISS[..], &of_prior].concat();
    let row = |&(of, figure): &Miss<'_>| {
        let chance = fixed(of.chance, 2);
        let follows = match of.followed(figure) {
            Some((prior, found)) => {
                let [low, high] = prior.band;
                let way = figure.way_to_meet(found).map_or(NONE, Way::word).to_owned();
                let (correlation, band) = (format!("{:+.2}", found.whole), format!("{low} .. {high}"));
                [prior.name.clone(), correlation, chance, prior.value.to_string(), band, way]
            }
            None => ["none stands out", NONE, &chance, NONE, NONE, NONE].map(String::from),
        };
        miss((of, figure)).into_iter().chain(follows).collect()
    };
    format!("\n{}{OF_CORRELATIONS}\n", grid(&head, &misses.iter().map(row).collect::<Vec<_>>()))
}

/// The misses that no prior of the machine's file explains.
fn misses_outside(misses: &[Miss<'_>]) -> String {
    if misses.is_empty() {
        return String::new();
    }
    let head = [&["outside: the miss is the model's"], &OF_MISS[..], &["nearest draw", "draws that reach it"]].concat();
    let row = |&(of, figure): &Miss<'_>| {
        let nearest = figure.nearest().map_or_else(|| NONE.into(), |value| fixed(value, row_digits(&figure.own)));
        let reach = format!("{} of {}", figure.reach(), figure.draws());
        miss((of, figure)).into_iter().chain([nearest, reach]).collect()
    };
    format!("\n{}{OF_REACH}\n", grid(&head, &misses.iter().map(row).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::super::drawn::tests::walks_left;
    use super::*;

    #[test]
    fn a_row_has_the_digits_of_its_figure() {
        let cells = row(&walks_left(1.0, &[1.0, 2.5, 12.0]));
        let name = "walks left by pcid, pages 512 [%]";
        assert_eq!(cells, [name, "5.30", "1.00", "2.50", "1.00 .. 12.00", "yes", "1 of 3", "strong", "0.00"]);
        let nothing = row(&walks_left(1.0, &[f64::NAN]));
        assert_eq!(nothing[3..7], ["-", "-", "-", "0 of 1"]);
    }
}
