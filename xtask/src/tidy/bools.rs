//! No parameter is a `bool`: `flush(true)` tells its reader nothing, an enum or a second function does.

use super::repo::{Repo, Report};
use std::collections::BTreeMap;

/// Folders of crates that may still have such parameters, and how many: tests, and the adversarial machine.
const STILL_BOOLS: &[(&str, usize)] = &[("tlbkit", 3), ("tlbkit-pmap", 1), ("tlbkit-check", 3)];

pub(super) fn bool_parameter(repo: &Repo, report: &mut Report<'_>) {
    report_bools(repo, STILL_BOOLS, report);
}

/// Reports each `bool` among the parameters, of crates in `excused` only if they have become more.
fn report_bools(repo: &Repo, excused: &[(&str, usize)], report: &mut Report<'_>) {
    let mut found: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for source in repo.rust() {
        for function in &source.functions {
            for parameter in &function.bool_parameters {
                found.entry(source.crate_dir()).or_default().push((source, function, parameter));
            }
        }
    }
    for (name, parameters) in &found {
        if excused.iter().any(|&(excused, most)| excused == *name && parameters.len() <= most) {
            continue;
        }
        for (source, function, parameter) in parameters {
            let what = format!("`{parameter}` of fn {} is a bool, none is allowed", function.name);
            report(source, function.lines.0, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::repo::testing::{self, places};
    use super::*;

    #[test]
    fn a_bool_parameter_is_found_in_functions_methods_and_traits() {
        let text = "fn a(is_a: bool) {}\nstruct S;\nimpl S {\n    fn b(&self, n: u8, is_b: &mut bool) {}\n}\n\
                    trait T {\n    fn c(is_c: bool);\n}\n";
        assert_eq!(places(bool_parameter, &[("k/a.rs", text)]), ["k/a.rs:1", "k/a.rs:4", "k/a.rs:7"]);
    }

    #[test]
    fn what_a_trait_or_c_forces_and_what_only_returns_one_stand() {
        let text = "impl T for S {\n    fn c(is_c: bool) {}\n}\nextern \"C\" fn d(is_d: bool) {}\n\
                    fn e(choose: fn(bool) -> u8, all: &[bool]) -> bool { true }\n";
        assert!(places(bool_parameter, &[("k/a.rs", text)]).is_empty());
    }

    #[test]
    fn an_excused_crate_may_not_get_more() {
        let repo = testing::repo(&[("k/a.rs", "fn a(is_a: bool) {}\nfn b(is_b: bool) {}\n")]);
        let count = |most| {
            let mut count = 0;
            report_bools(&repo, &[("k", most)], &mut |_, _, _| count += 1);
            count
        };
        assert_eq!((count(2), count(1)), (0, 2));
    }
}
