//! On a real terminal: lists, tables and help that fit.

#[path = "command/seat.rs"]
mod seat;

const TLBKIT: &str = env!("CARGO_BIN_EXE_tlbkit");

#[test]
fn lists_fit_a_terminal_of_80_columns_and_keep_names_whole() {
    for kind in ["machines", "policies", "workloads", "parameters", "experiments", "settings", "programs", "sizes"] {
        let rows = seat::seen(TLBKIT, 80, &["list", kind]);
        assert!(rows.iter().all(|row| row.len() <= 80 && (row.ends_with('|') || row.is_empty())), "{rows:?}");
    }
    let rows = seat::seen(TLBKIT, 80, &["list", "policies"]);
    assert!(rows.iter().any(|row| row.starts_with("| linux-3.13-altershift | ")), "{rows:?}");
}

#[test]
fn a_table_of_many_policies_falls_into_parts_that_fit() {
    let run = "run madvise1 --cpus 2 --milliseconds 1 --seeds 2 --policy linux-3.4,linux-4.14,linux-6.18,tlbkit";
    let arguments: Vec<_> = run.split(' ').collect();
    let rows = seat::seen(TLBKIT, 80, &arguments);
    let heads: Vec<_> = rows.iter().filter(|row| row.starts_with("| quantity ")).collect();
    assert_eq!(heads.len(), 2, "{rows:?}");
    assert!(rows.iter().filter(|row| row.starts_with('|')).all(|row| row.len() <= 80), "{rows:?}");
    let policies = |head: &str| head.split('|').map(str::trim).filter(|cell| cell.contains(['x', 'k'])).count();
    assert_eq!(heads.iter().map(|head| policies(head)).sum::<usize>(), 4, "{heads:?}");
    let wide = seat::seen(TLBKIT, 200, &arguments);
    assert_eq!(wide.iter().filter(|row| row.starts_with("| quantity ")).count(), 1, "{wide:?}");
}

#[test]
fn help_fits_a_terminal_and_keeps_its_examples_whole() {
    let verbs = "reproduce,run,designs,check,list";
    verbs.split(',').for_each(|verb| seat::assert_help_fits(TLBKIT, "tlbkit", verb));
}
