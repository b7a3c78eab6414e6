//! The pictures of a result whose figures come in rows: each measure that several figures have, published and ours.

use super::reproduction::Reproduction;
use crate::output::svg::{Axis, BarGroup, Bars, Chart, Curve, Draw, Ink, Plot, Point, Scale};
use crate::published::figure::Figure;
use crate::published::key::{Key, Measure, Side};

/// With fewer amounts than this, bars are clearer than curves.
const CURVE_POINTS: usize = 4;

/// A figure beside its key.
type Row<'f> = (Key, &'f Figure);

/// A picture for each family of figures: those of one unit whose measures have one name before the comma. Bars of
/// several policies have a picture for each amount.
pub(crate) fn of(reproduction: &Reproduction, figures: &[Figure]) -> Vec<Plot> {
    let rows = || reproduction.keys.iter().copied().zip(figures).filter(|(key, _)| is_drawn(key.measure));
    let mut amounts: Vec<_> = rows().filter_map(|(key, _)| key.at).collect();
    amounts.sort_unstable();
    amounts.dedup();
    let has_curves = amounts.len() >= CURVE_POINTS;
    let belongs = |(key, figure): &Row<'_>| {
        let amount = key.at.filter(|_| !has_curves && key.side != Side::Unnamed);
        (family(key.measure).0, figure.expected.unit.clone(), amount)
    };
    let mut families: Vec<(_, Vec<Row<'_>>)> = Vec::new();
    for row in rows() {
        match families.iter_mut().find(|(own, _)| *own == belongs(&row)) {
            Some((_, rows)) => rows.push(row),
            None => families.push((belongs(&row), vec![row])),
        }
    }
    families.retain(|(_, rows)| rows.len() > 1 || matches!(rows[0].0.measure, Measure::Rate));
    families.iter().map(|((name, _, amount), rows)| plot(reproduction, name, *amount, rows)).collect()
}

/// What is a difference of two of the others, or a spread, has a row in the table and no bar.
fn is_drawn(measure: Measure) -> bool {
    !matches!(
        measure,
        Measure::Deviation | Measure::MeanOfAll | Measure::OneMoreThread | Measure::TwoMoreThreads | Measure::WalksLeft
    )
}

/// The name of all measures of a family, and what tells this one from the others.
fn family(measure: Measure) -> (&'static str, &'static str) {
    measure.words().split_once(", ").unwrap_or((measure.words(), ""))
}

fn plot(reproduction: &Reproduction, name: &str, amount: Option<u64>, rows: &[Row<'_>]) -> Plot {
    let mut amounts: Vec<_> = rows.iter().filter_map(|(key, _)| key.at).collect();
    amounts.sort_unstable();
    amounts.dedup();
    let varies = reproduction.axis.map_or("", |axis| axis.word());
    let unit = &rows[0].1.expected.unit;
    let of = amount.map_or_else(String::new, |amount| format!(", {amount} {varies}"));
    let title = format!("{}{}{of}, {unit}", name[..1].to_uppercase(), &name[1..]);
    let y = Axis::new(name, unit, Scale::FromZero);
    if amounts.len() >= CURVE_POINTS {
        let scale = if amounts[amounts.len() - 1] > 100 * amounts[0] { Scale::Log } else { Scale::Around };
        let curves = curves(reproduction, rows);
        return Plot::Chart(Chart {
            title,
            about: "Published and ours.".into(),
            x: Axis::new(varies, "", scale),
            y,
            curves,
        });
    }
    let label = |key: &Key| {
        let amount = key.at.filter(|_| amounts.len() > 1).map(|amount| amount.to_string());
        let parts = [amount.as_deref(), side(reproduction, key.side), Some(family(key.measure).1)];
        parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let group =
        |(key, figure): &Row<'_>| BarGroup { label: label(key), values: vec![figure.expected.published, figure.ours] };
    Plot::Bars(Bars {
        title,
        about: "Published and ours.".into(),
        x: if amounts.len() > 1 { varies.to_owned() } else { String::new() },
        y,
        series: vec![(Ink::Published, "published".into()), (Ink::Ours, "ours".into())],
        groups: rows.iter().map(group).collect(),
    })
}

/// The name of a policy, where there are several.
fn side(reproduction: &Reproduction, side: Side) -> Option<&str> {
    let (Side::Of(policy) | Side::Change { of: policy, .. }) = side else { return None };
    reproduction.policy_names().nth(policy)
}

/// A curve of the document and one of ours for each policy.
fn curves(reproduction: &Reproduction, rows: &[Row<'_>]) -> Vec<Curve> {
    let mut sides: Vec<Side> = Vec::new();
    for (key, _) in rows {
        if !sides.contains(&key.side) {
            sides.push(key.side);
        }
    }
    let of_side = |(tone, of): (usize, &Side)| {
        let policy = side(reproduction, *of);
        [Ink::Published, Ink::Ours].map(|ink| {
            let words = if ink == Ink::Published { "published" } else { "ours" };
            let value = |figure: &Figure| if ink == Ink::Published { figure.expected.published } else { figure.ours };
            let own = rows.iter().filter(|(key, _)| key.side == *of);
            Curve {
                label: policy.map_or_else(|| words.to_owned(), |policy| format!("{policy}, {words}")),
                ink,
                tone,
                draw: Draw::Both,
                points: own.filter_map(|(key, figure)| Some(Point::new(key.at? as f64, value(figure)?))).collect(),
            }
        })
    };
    sides.iter().enumerate().flat_map(of_side).collect()
}
