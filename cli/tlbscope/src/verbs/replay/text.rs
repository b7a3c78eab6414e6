//! The answer as text: a sentence with its interval, eight rows, how far to trust them; with --full every row.

use tlbkit_output::number::{NONE, amount};
use tlbkit_output::table::grid;
use tlbkit_replay::{Agreement, Estimate, agreement};

use super::quantity::{PolicyTally, Quantity, callers, rows};
use super::subject::Trace;
use super::why::{AGREES, ROW_LEAST, reasons};

/// The rows under their heading.
type Cells = (Vec<String>, Vec<Vec<String>>);

/// What a person reads first: names of rows, in words, and the counts that they are.
const FIRST: [(&str, &str); 7] = [
    ("own flushes", "local mm shootdown"),
    ("of them of everything", "local mm shootdown, all"),
    ("flushes that asked others", "remote IPI send"),
    ("interrupts sent", "interrupts sent"),
    ("interrupts needed", "interrupts needed"),
    ("others had gone already", "remote wrong CPU"),
    ("switches that flushed", "task switch, flushed"),
];
/// Shares below this are nothing, in percent.
const NOTHING_PCT: f64 = 0.005;

pub(super) fn text(trace: &Trace, answers: &[PolicyTally]) -> String {
    let agreement = agreement_of(trace, answers);
    let answer = trace.disorder().unwrap_or_else(|| sentence(trace, answers));
    let (head, cells) = first_rows(trace, answers, &agreement);
    format!("{answer}\n\n{}\n{}\n{}", grid(&head, &cells), trust(&agreement, &answers[0].name), trace.health())
}

/// Everything else.
pub(super) fn full(trace: &Trace, answers: &[PolicyTally]) -> String {
    let agreement = agreement_of(trace, answers);
    let (agreement_head, agreement_rows) = agreement_cells(&agreement);
    let reasons = reasons(&agreement, trace.recording.deduced.coverage);
    let reasons: String = reasons.into_iter().map(|line| format!("- {line}\n")).collect();
    let ((head, rows), (callers_head, callers)) = (policies(trace, answers), most(trace, answers));
    format!(
        "{}{reasons}\n{}\n{}",
        grid(&agreement_head, &agreement_rows),
        grid(&head, &rows),
        grid(&callers_head, &callers)
    )
}

fn agreement_of(trace: &Trace, answers: &[PolicyTally]) -> Vec<Agreement> {
    agreement(&trace.recording.summary, &answers[0].tally, &trace.recording.deduced)
}

/// What the other policies would have cost or saved, beside the recording kernel's.
fn sentence(trace: &Trace, answers: &[PolicyTally]) -> String {
    let recorder = &answers[0];
    let cycles = trace.cpu_cycles(&recorder.tally);
    let own = trace.bill(&recorder.tally);
    let others = answers[1..].iter().map(|other| {
        let saving = own.saving(&trace.bill(&other.tally), &trace.prices);
        (&other.name, difference([saving.low, saving.high].map(|end| 100.0 * end / cycles)))
    });
    let others: Vec<_> = others.collect();
    let whom = trace.about.as_deref().unwrap_or("the recorded programs");
    let Some(((first, what), others)) = others.split_first() else {
        let all = own.total(&trace.prices);
        let [low, high] = [all.low, all.high].map(|end| share(100.0 * end / cycles));
        return format!("{}, which recorded it, cost {whom} {low} to {high} % of their CPU time.", recorder.name);
    };
    let others: String = others.iter().map(|(name, what)| format!("; under {name} {what}")).collect();
    let than = &recorder.name;
    format!("Under {first} {whom} would have used {what} CPU time than under {than}, which recorded it{others}.")
}

/// A saving, from the least to the most, in words.
fn difference([low, high]: [f64; 2]) -> String {
    let (less, more) = (share(high), share(-low));
    match (low, high) {
        _ if low.abs().max(high.abs()) < NOTHING_PCT => "no less and no more".to_owned(),
        (0.0.., _) => format!("{} to {less} % less", share(low)),
        (_, ..=0.0) => format!("{} to {more} % more", share(-high)),
        _ => format!("from {less} % less to {more} % more"),
    }
}

fn share(percent: f64) -> String {
    format!("{percent:.2}")
}

/// A column a policy, and beside the recording kernel's own how far it agrees with what was recorded.
fn first_rows(trace: &Trace, answers: &[PolicyTally], agreement: &[Agreement]) -> Cells {
    let all: Vec<_> = answers.iter().map(|answer| rows(trace, &answer.tally)).collect();
    let find = |policy: &[Quantity], quantity: &str| {
        policy.iter().find(|row| row.quantity == quantity).map_or_else(|| NONE.to_owned(), |row| range(row.range))
    };
    let line = |(words, quantity): &(&str, &str)| {
        let compared = agreement.iter().find(|row| row.quantity.label() == *quantity);
        let recorded = compared.map_or_else(|| NONE.to_owned(), |row| row.recorded.to_string());
        let agrees = compared.and_then(Agreement::percent).map_or_else(|| NONE.to_owned(), |pct| format!("{pct:.0} %"));
        let mut cells = all.iter().map(|policy| find(policy, quantity));
        let own = cells.next().unwrap_or_default();
        [(*words).to_owned(), recorded, own, agrees].into_iter().chain(cells).collect()
    };
    let cycles = trace.cpu_cycles(&answers[0].tally);
    let mut cost = answers.iter().map(|answer| {
        let all = trace.bill(&answer.tally).total(&trace.prices);
        format!("{} to {}", share(100.0 * all.low / cycles), share(100.0 * all.high / cycles))
    });
    let own = cost.next().unwrap_or_default();
    let cost = ["cost, % of CPU time".to_owned(), NONE.to_owned(), own, NONE.to_owned()].into_iter().chain(cost);
    let names = answers[1..].iter().map(|answer| answer.name.clone());
    let head = ["", "recorded", answers[0].name.as_str(), "agrees"].map(String::from).into_iter().chain(names);
    (head.collect(), FIRST.iter().map(line).chain([cost.collect()]).collect())
}

/// How far the replay under the recording kernel's own policy is what that kernel did.
fn trust(rows: &[Agreement], recorder: &str) -> String {
    let is_counted = |row: &&Agreement| row.deduced().into_iter().max() >= Some(ROW_LEAST);
    let counted: Vec<_> = rows.iter().filter(is_counted).filter_map(|row| Some((row, row.percent()?))).collect();
    let bad = counted.iter().filter(|(_, percent)| *percent < AGREES).count();
    let worst = counted.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let Some((worst, percent)) = worst else {
        return format!("Trust: nothing in it is frequent enough to compare {recorder} with the recording.");
    };
    let label = worst.quantity.label();
    match bad {
        0 => {
            format!("Trust: {recorder} replayed agrees with what it recorded to {percent:.0} % or better in each row.")
        }
        _ => format!(
            "Trust: in {bad} of {} rows {recorder} replayed does not agree with what it recorded, worst in \
             \"{label}\", {percent:.0} %; --full says why.",
            counted.len()
        ),
    }
}

fn agreement_cells(rows: &[Agreement]) -> Cells {
    let row = |row: &Agreement| {
        let percent = row.percent().map_or_else(|| NONE.to_owned(), |percent| format!("{percent:.1}"));
        vec![row.quantity.label(), row.recorded.to_string(), row.told.to_string(), row.replayed.to_string(), percent]
    };
    let head = ["agreement", "recorded", "of it told", "replayed", "% of the rest"].map(String::from);
    (head.to_vec(), rows.iter().map(row).collect())
}

/// Every row, a column a policy.
fn policies(trace: &Trace, answers: &[PolicyTally]) -> Cells {
    let all: Vec<Vec<Quantity>> = answers.iter().map(|answer| rows(trace, &answer.tally)).collect();
    let cell = |policy: &[Quantity], quantity: &str| {
        policy.iter().find(|row| row.quantity == quantity).map_or_else(|| NONE.to_owned(), |row| range(row.range))
    };
    let line = |row: &Quantity| {
        let recorded = row.recorded.map_or_else(|| NONE.to_owned(), |count| count.to_string());
        let cells = all.iter().map(|policy| cell(policy, &row.quantity));
        [row.quantity.clone(), recorded].into_iter().chain(cells).collect()
    };
    // What no policy does is not worth a line.
    let is_there = |row: &&Quantity| {
        let any = |policy: &Vec<Quantity>| {
            policy.iter().any(|other| other.quantity == row.quantity && other.range.high > 0.0)
        };
        row.recorded > Some(0) || all.iter().any(any)
    };
    // A policy that sends no interrupt has no share of them.
    let longest = all.iter().max_by_key(|rows| rows.len()).map_or(&[][..], Vec::as_slice);
    (head(&["quantity", "recorded"], answers), longest.iter().filter(is_there).map(line).collect())
}

fn most(trace: &Trace, answers: &[PolicyTally]) -> Cells {
    let line = |(key, costs): (String, Vec<Estimate>)| [key].into_iter().chain(costs.into_iter().map(range)).collect();
    (head(&["cycles of"], answers), callers(trace, answers).into_iter().map(line).collect())
}

fn head(first: &[&str], answers: &[PolicyTally]) -> Vec<String> {
    first.iter().map(ToString::to_string).chain(answers.iter().map(|answer| answer.name.clone())).collect()
}

/// `low .. high`, or the one number.
fn range(range: Estimate) -> String {
    let (low, high) = (amount(range.low), amount(range.high));
    if low == high { low } else { format!("{low} .. {high}") }
}

#[cfg(test)]
mod tests {
    use tlbkit_replay::ComparedCount;

    use super::*;

    #[test]
    fn a_difference_says_which_way_it_goes() {
        assert_eq!(difference([0.1, 0.5]), "0.10 to 0.50 % less");
        assert_eq!(difference([-0.5, -0.1]), "0.10 to 0.50 % more");
        assert_eq!(difference([-0.5, 0.1]), "from 0.10 % less to 0.50 % more");
        assert_eq!(difference([-0.001, 0.001]), "no less and no more");
        assert_eq!(range(Estimate { low: 5.0, value: 6.0, high: 120_000.0 }), "5 .. 120.0 k");
        assert_eq!(range(Estimate { low: 5.0, value: 5.0, high: 5.0 }), "5");
    }

    #[test]
    fn the_worst_row_that_counts_decides_about_trust() {
        let row = |quantity, recorded| Agreement { quantity, recorded, replayed: 200, told: 0 };
        let rows = [row(ComparedCount::Own, 190), row(ComparedCount::WrongCpu, 20)];
        assert!(trust(&rows[..1], "linux").contains("95 % or better"));
        let doubt = trust(&rows, "linux");
        assert!(doubt.contains("in 1 of 2 rows") && doubt.contains("\"remote wrong CPU\", 10 %"), "{doubt}");
    }
}
