//! The message for an unknown name, with the name that was probably meant.

/// How many letters may differ between a name and the one that was meant.
const LETTERS_MOST: usize = 2;

/// There is no `kind` called `name` among `names`; `tlbkit list LISTED` shows those that there are.
pub fn unknown<'n>(kind: &str, name: &str, names: impl Iterator<Item = &'n str>, listed: &str) -> String {
    if name.is_empty() {
        return format!("the {kind} name is empty (a comma too many?); see tlbkit list {listed}");
    }
    let meant = nearest(name, names).map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
    let between = if meant.is_empty() { ";" } else { "" };
    format!("no {kind} {name}{meant}{between} see tlbkit list {listed}")
}

/// The shortest of `names` that holds the whole of `name`, or else the one with fewest letters in other places.
pub fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let names: Vec<_> = names.collect();
    let holding = names.iter().filter(|known| !name.is_empty() && known.contains(name)).min_by_key(|known| known.len());
    let off = |known: &&&str| strsim::damerau_levenshtein(name, known);
    holding.or_else(|| names.iter().min_by_key(off).filter(|known| off(known) <= LETTERS_MOST)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["ebizzy-m-long", "ebizzy-m", "linux-6.18", "linux-3.4"];

    #[test]
    fn a_near_name_is_offered_and_a_far_one_is_not() {
        assert_eq!(nearest("ebizzy", NAMES.into_iter()), Some("ebizzy-m"));
        assert_eq!(nearest("linux-6.19", NAMES.into_iter()), Some("linux-6.18"));
        assert_eq!(nearest("vms", NAMES.into_iter()), None);
        assert_eq!(nearest("", NAMES.into_iter()), None);
        let said = |name| unknown("policy", name, NAMES.into_iter(), "policies");
        assert_eq!(said("linux-34"), "no policy linux-34; did you mean linux-3.4? see tlbkit list policies");
        assert_eq!(said("vms"), "no policy vms; see tlbkit list policies");
        assert_eq!(said(""), "the policy name is empty (a comma too many?); see tlbkit list policies");
    }
}
