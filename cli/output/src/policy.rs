//! A policy from its text, and what is wrong with a text in one line.

use std::convert::Infallible;

use anyhow::{Result, anyhow, bail, ensure};
use tlbkit::{KEYS, PRESETS, Policy, TextError};

use crate::nearest::unknown;

/// A policy's text as an argument has it: the space behind a comma is no part of it.
pub fn trimmed(argument: &str) -> Result<String, Infallible> {
    Ok(argument.trim().to_owned())
}

/// The policy that `text` names: `PRESET[:KEY=VALUE[+KEY=VALUE...]]`.
pub fn parse(text: &str) -> Result<Policy> {
    let policy = Policy::parse(text).map_err(|error| match error {
        TextError::NoPreset(name) => {
            anyhow!(unknown("policy", name, PRESETS.iter().map(|preset| preset.name), "policies"))
        }
        TextError::NoKey(name) if !name.is_empty() => {
            let unknown = unknown("setting", name, KEYS.iter().map(|key| key.name), "settings");
            anyhow!("policy {text}: {unknown}")
        }
        TextError::NoKey(_) => anyhow!("policy {text}: {WANTED}"),
        _ => anyhow!("policy {text}: {error}"),
    })?;
    check_settings(text)?;
    Ok(policy)
}

/// What must stand behind the colon and behind each plus sign of a policy's text.
const WANTED: &str = "want KEY=VALUE, such as lazy=off, behind the colon and behind each +";

/// Refuses texts that the library takes although nobody means them: an empty setting, a setting that is given twice,
/// and two settings of one thing, of which the library takes the last.
fn check_settings(text: &str) -> Result<()> {
    let Some((_, settings)) = text.split_once(':') else { return Ok(()) };
    let keys: Vec<_> = settings.split('+').map(|setting| setting.split('=').next().unwrap_or_default()).collect();
    for (at, key) in keys.iter().enumerate() {
        ensure!(!key.is_empty(), "policy {text}: {WANTED}");
        ensure!(!keys[..at].contains(key), "policy {text}: {key} is set twice; want each setting once");
        if let Some(before) = keys[..at].iter().find(|before| contradict(before, key)) {
            bail!("policy {text}: {before} and {key} contradict each other; want one of them");
        }
    }
    Ok(())
}

fn contradict(one: &str, other: &str) -> bool {
    let find = |name| KEYS.iter().find(|key| key.name == name);
    find(one).zip(find(other)).is_some_and(|(one, other)| one.contradicts(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (text, part) in [
            ("linux-9", "no policy linux-9; see tlbkit list policies"),
            ("xnu:colour=red", "policy xnu:colour=red: no setting colour; see tlbkit list settings"),
            ("xnu:ceilin=1", "policy xnu:ceilin=1: no setting ceilin; did you mean ceiling? see tlbkit list settings"),
            ("xnu:ceiling=1+lazy=off+ceiling=1", ": ceiling is set twice; want each setting once"),
            (
                "linux-6.18:pcid=4+lazy=off+lru=4",
                "policy linux-6.18:pcid=4+lazy=off+lru=4: pcid and lru contradict each other; want one of them",
            ),
            ("xnu:shift=1+ceiling=4", ": shift and ceiling contradict each other; want one of them"),
            ("xnu:", "policy xnu:: want KEY=VALUE, such as lazy=off, behind the colon and behind each +"),
            ("xnu:lazy=off+", "policy xnu:lazy=off+: want KEY=VALUE"),
            ("xnu:=1", "policy xnu:=1: want KEY=VALUE"),
            ("", "the policy name is empty (a comma too many?); see tlbkit list policies"),
            ("xnu:pcid=16", "policy xnu:pcid=16: pcid=16: must be off, or 1 to 15 ASIDs"),
            ("xnu:pcid", "pcid is no KEY=VALUE"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
