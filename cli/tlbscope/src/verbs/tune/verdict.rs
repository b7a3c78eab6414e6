//! The answer of `tune` in words: first in one line, then setting by setting.

use super::advice::{Advice, Tuned, WORTH, Worth};
use super::knob::Setting;
use crate::estimate::{Sign, percent};
use crate::sheet::{Headline, Tone};

/// The answer in one line: the best that can be said of any setting.
pub(super) fn headline(tuned: &Tuned) -> Headline {
    if let Some(disorder) = tuned.disorder() {
        return Headline { tone: Tone::Open, words: no_verdict(&disorder), commands: Vec::new() };
    }
    let one = |advice: &Advice| {
        let Setting { knob, value, commands, .. } = &advice.setting;
        let tone = if advice.worth == Worth::Certainly { Tone::Good } else { Tone::Open };
        let words = format!(
            "{}: {knob} {value}, {} of CPU time",
            sentence_case(advice.worth.label()),
            tuned.percent(advice.gain)
        );
        Headline { tone, words, commands: commands.clone() }
    };
    let is_first = |worth: Worth| tuned.best().into_iter().find(|advice| advice.worth == worth).map(one);
    is_first(Worth::Certainly).or_else(|| is_first(Worth::Perhaps)).unwrap_or_else(|| {
        let open =
            tuned.best_of(|worth| !matches!(worth, Worth::No)).into_iter().find(|advice| advice.gain.value > 0.0);
        let Some(advice) = open else {
            return Headline { tone: Tone::Plain, words: "Nothing worth changing".into(), commands: Vec::new() };
        };
        // A command is not given where it is not advised; how to try it stands below.
        let Headline { words, .. } = one(advice);
        Headline { tone: Tone::Open, words: format!("{words}. Only a trial tells"), commands: Vec::new() }
    })
}

fn sentence_case(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// What to do: words, and commands if there are any.
pub(super) fn verdict(tuned: &Tuned) -> Vec<(String, &[String])> {
    if let Some(disorder) = tuned.disorder() {
        return vec![(no_verdict(&disorder), [].as_slice())];
    }
    let best = tuned.best();
    let mut verdict = Vec::new();
    if best.iter().all(|advice| advice.worth != Worth::Certainly) {
        let all = tuned.trace.bill(&tuned.recorder).of_flushes(&tuned.trace.prices);
        let all = percent(all, tuned.cpu_cycles, Sign::Absent);
        let may_gain = tuned.best_of(|worth| worth != Worth::No).iter().any(|advice| advice.gain.value > 0.0);
        let most = match best.first() {
            Some(advice) => advice.worth,
            None if may_gain => Worth::Open,
            None => Worth::No,
        };
        let words = format!("{} Flushes cost {all}.", summary(most));
        verdict.push((words, [].as_slice()));
    }
    let withheld = tuned.withheld();
    verdict.extend(withheld.into_iter().map(|(knob, why)| {
        (format!("Withheld: {knob}: {why}, and what is said of {knob} rests on it. Only a trial tells."), [].as_slice())
    }));
    let caution = tuned.trace.machine.caution.as_deref();
    let is_in_doubt = tuned.advice.iter().any(|advice| advice.worth == Worth::CannotTell);
    verdict.extend(caution.filter(|_| is_in_doubt).map(|caution| {
        let words = format!("Cannot tell: the machine file says of itself: {caution}. Only a trial tells.");
        (words, [].as_slice())
    }));
    verdict.extend(tuned.best_of(|worth| worth == Worth::Open).into_iter().map(|advice| {
        let Setting { knob, value, .. } = &advice.setting;
        let (gain, tries) = (tuned.percent(advice.gain), advice.setting.trial());
        let words = format!(
            "Cannot tell: {knob} {value}: {gain} of CPU time: it may gain, and it may cost. A trial tells{tries}"
        );
        (words, [].as_slice())
    }));
    let mut moot: Vec<_> =
        tuned.advice.iter().filter_map(|advice| Some((advice.setting.knob, advice.setting.moot?))).collect();
    moot.dedup();
    verdict.extend(moot.into_iter().map(|(knob, why)| {
        (format!("Nothing to set on the machine that runs this command: {knob}: {why}."), [].as_slice())
    }));
    verdict.extend(best.into_iter().map(|advice| {
        let Setting { knob, value, commands, remark, .. } = &advice.setting;
        let doubt = if advice.worth == Worth::Perhaps { "Perhaps: " } else { "Worth trying: " };
        let gain = tuned.percent(advice.gain);
        let words = format!("{doubt}{knob} {value}: {gain} of CPU time, if the replay is right. {remark}");
        (words, commands.as_slice())
    }));
    verdict
}

/// Said instead of everything else where the trace is in `disorder`.
fn no_verdict(disorder: &str) -> String {
    format!("No verdict: {disorder}, as where recordings are joined: tune one recording, as it was made.")
}

/// What is true of all settings together if the best of them is worth `most`, and none is sure to gain.
fn summary(most: Worth) -> String {
    let least = 100.0 * WORTH;
    match most {
        Worth::No => format!("Nothing worth changing: no setting is sure to gain {least} % of CPU time."),
        Worth::Perhaps => {
            format!("No setting is sure to gain {least} % of CPU time; what may, and never costs, follows.")
        }
        _ => format!("No setting is sure to gain {least} % of CPU time; of what may, only a trial tells."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_verdict_are_those_of_the_guide() {
        let guide = include_str!("../../../../../docs/linux/guide.md");
        for worth in [Worth::Certainly, Worth::Perhaps, Worth::No, Worth::Open, Worth::CannotTell, Worth::Withheld] {
            let word = format!("*{}*", worth.label());
            assert!(guide.contains(&word), "docs/linux/guide.md explains {word}");
        }
        assert_eq!(sentence_case("cannot tell"), "Cannot tell");
    }

    #[test]
    fn nothing_is_worth_changing_only_where_nothing_follows() {
        let begins = |worth| summary(worth).starts_with("Nothing worth changing");
        assert!(begins(Worth::No));
        assert!(![Worth::Perhaps, Worth::Open, Worth::CannotTell, Worth::Withheld].into_iter().any(begins));
    }
}
