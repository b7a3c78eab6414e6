//! The table of misuse in docs/kernel/reference.md: each row is a test in each language, or the compiler's word.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What the compiler refuses; compiled by the doctests of the crate.
const REFUSED: &str = "refused.rs";
/// There is nothing that could be misused like that.
const HAS_NO_VALUE: &str = "has no such value";

/// A row by its first cell; the tests of it in Rust, then those in C.
const ROWS: &[(&str, &[&str], &[&str])] = &[
    (
        "a call names another CPU",
        &["every_call_in_another_cpus_name_is_refused_with_both_numbers"],
        &["every_call_in_another_cpus_name_is_refused"],
    ),
    (
        "a task migrates during a flush, a wait, an issue or a look",
        &[
            "a_task_that_migrates_in_a_wait_answers_for_nobody",
            "a_task_that_migrated_is_told_when_the_wait_ends",
            "a_task_that_migrated_is_told_when_the_wait_for_an_issued_flush_ends",
            "a_task_that_migrated_is_told_when_its_poll_ends",
            "a_task_that_migrated_is_told_when_it_asks_whether_its_flush_is_over",
            "a_task_that_migrates_while_it_asks_whether_its_flush_is_over_is_told",
            "a_task_that_migrates_while_it_issues_a_flush_is_told",
            "a_task_that_migrates_before_it_flushes_is_told_though_it_waits_for_nobody",
        ],
        &[
            "a_task_that_migrates_in_a_wait_is_told_and_nothing_is_freed",
            "a_task_that_migrates_in_a_look_is_told_and_nothing_is_freed",
            "a_task_that_migrates_while_it_issues_is_told_and_nothing_is_freed",
            "a_task_that_migrates_before_it_flushes_is_told_though_it_waits_for_nobody",
        ],
    ),
    (
        "the shootdown vector calls nothing, or not `answer`",
        &["cpus_that_never_answer_are_named"],
        &["a_cpu_that_never_answers_is_named_to_the_hook", "a_kernel_may_be_told_who_never_answers"],
    ),
    (
        "an interrupt is lost",
        &["c_63_a_lost_interrupt_is_sent_again_and_the_request_carried_out_once"],
        &["a_lost_interrupt_is_survived_by_default", "a_lost_interrupt_is_sent_again"],
    ),
    (
        "`late` returns `Wait`, and an interrupt is lost",
        &["a_lost_interrupt_that_is_only_waited_for_is_named"],
        &["who_only_waits_for_a_lost_interrupt_is_told_in_the_hook"],
    ),
    (
        "a flush with interrupts off, and others must be asked",
        &[
            "inv_7_waiting_with_interrupts_off_is_an_error",
            "inv_7_flushing_with_interrupts_off_is_fine_where_nobody_must_be_told",
        ],
        &["interrupts_in_the_wrong_state_are_refused", "interrupts_may_be_off_if_nobody_must_be_told"],
    ),
    (
        "a flush in an interrupt handler that came in a wait",
        &["a_flush_inside_the_wait_of_another_is_refused"],
        &["a_flush_inside_a_wait_reaches_the_hook"],
    ),
    ("a switch, an answer, a bring-up with interrupts on", &[REFUSED], &["interrupts_in_the_wrong_state_are_refused"]),
    (
        "a frame is freed before the flush",
        &[REFUSED, "inv_9_a_gather_that_is_dropped_leaks_and_inv_1_a_flushed_one_gives_back"],
        &["a_gather_flushes_before_it_frees", "an_issued_gather_frees_when_it_was_waited_for"],
    ),
    (
        "a frame is held and nothing named",
        &["inv_1_a_frame_that_is_held_while_nothing_is_named_comes_out_flushed"],
        &["nothing_comes_out_unflushed"],
    ),
    (
        "a gather is dropped",
        &[
            REFUSED,
            "inv_9_a_gather_that_is_dropped_leaks_and_inv_1_a_flushed_one_gives_back",
            "inv_9_a_pending_flush_that_is_dropped_leaks_and_its_mailbox_is_found_free",
        ],
        &["a_gather_that_is_forgotten_keeps_its_frames"],
    ),
    (
        "a gather has no room for a frame",
        &[HAS_NO_VALUE],
        &["a_gather_flushes_before_it_frees", "a_batch_serves_many_spaces", "bad_numbers_are_refused"],
    ),
    ("a space is destroyed on the CPU that runs it", &["a_running_space_is_not_destroyed"], &["a_space_ends"]),
    (
        "a space is destroyed that another CPU runs",
        &["a_space_that_runs_elsewhere_is_not_destroyed"],
        &["a_space_that_another_cpu_runs_reaches_the_hook"],
    ),
    (
        "a struct was never made, or has ended",
        &[HAS_NO_VALUE],
        &["a_bad_space_is_refused", "a_bad_gather_is_refused", "a_space_ends"],
    ),
    ("a number that no CPU has", &["a_cpu_that_is_none_is_refused"], &["a_bad_cpu_is_refused"]),
    (
        "a CPU was not brought up",
        &["a_cpu_that_was_never_brought_up_is_told_nothing", "a_cpu_that_was_not_brought_up_runs_no_space"],
        &["a_cpu_can_leave_and_come_back"],
    ),
    (
        "a top-level table that begins no page, or is virtual",
        &["a_table_that_begins_no_page_is_refused"],
        &["a_bad_setup_is_refused", "a_bad_space_is_refused"],
    ),
    ("a matrix that is too small", &["storage_that_is_too_small_is_refused"], &["a_bad_setup_is_refused"]),
    ("a set that is too small", &["storage_that_is_too_small_is_refused"], &["a_bad_space_is_refused"]),
    (
        "a pointer that is null, or not aligned",
        &[HAS_NO_VALUE],
        &["a_bad_setup_is_refused", "a_bad_space_is_refused", "a_bad_cpu_is_refused"],
    ),
    (
        "a range that wraps, a stride or reason that is none",
        &["a_range_that_wraps_is_flushed_up_to_the_last_address"],
        &["bad_numbers_are_refused"],
    ),
    ("`irqs_save` without `irqs_restore`, or another function missing", &[REFUSED], &["a_bad_setup_is_refused"]),
    ("header and archive of different builds", &[HAS_NO_VALUE], &["a_header_of_another_build_does_not_fit"]),
    ("the archive's tables are not loaded", &[HAS_NO_VALUE], &["constants_that_were_not_loaded_do_not_fit"]),
];

/// All text of the files of `folder` and below that end in `ending`.
fn text_of(folder: &Path, ending: &str) -> Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            text += &text_of(&path, ending)?;
        } else if path.extension().is_some_and(|it| it == ending) {
            text += &fs::read_to_string(&path)?;
        }
    }
    Ok(text)
}

/// True if `sources` have a test of that name.
fn has_rust_test(sources: &str, name: &str) -> bool {
    let heads = sources.split("#[test]\n").skip(1).filter_map(|rest| rest.split_once('{'));
    heads.into_iter().any(|(head, _)| head.contains(&format!("fn {name}()")))
}

/// True if `sources` have a function of that name in C, and call it.
fn has_c_test(sources: &str, name: &str) -> bool {
    let is_defined = sources.lines().any(|line| line.starts_with(&format!("static void {name}(")));
    let is_called =
        sources.lines().any(|line| line.starts_with("    ") && line.trim().starts_with(&format!("{name}(")));
    is_defined && is_called
}

/// First cells of the guide's table.
fn rows_of(guide: &str) -> Vec<String> {
    let table = guide.split_once("| misuse | seen in Rust |").map_or("", |(_, rest)| rest);
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|line| line.split('|').nth(1)).map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn each_misuse_of_the_guide_has_its_tests() -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let of_protocol = text_of(&here.join("../tlbkit/tests/protocol"), "rs")?;
    let of_c_interface = text_of(&here.join("tests"), "rs")?;
    let (in_c, refused) =
        (text_of(&here.join("tests/host"), "c")?, fs::read_to_string(here.join("src").join(REFUSED))?);
    assert!(refused.contains("compile_fail"));
    for (row, in_rust, of_c) in ROWS {
        assert!(!in_rust.is_empty() && !of_c.is_empty(), "{row}");
        for name in in_rust.iter().filter(|&&name| ![REFUSED, HAS_NO_VALUE].contains(&name)) {
            assert!(has_rust_test(&of_protocol, name), "{row}: no test {name} of the protocol");
        }
        for name in *of_c {
            let is_tested = has_c_test(&in_c, name) || has_rust_test(&of_c_interface, name);
            assert!(is_tested, "{row}: no test {name} of the C interface");
        }
    }
    let guide = fs::read_to_string(here.join("../../docs/kernel/reference.md"))?;
    let listed: Vec<&str> = ROWS.iter().map(|row| row.0).collect();
    assert_eq!(rows_of(&guide), listed, "the table of docs/kernel/reference.md, and the tests of its rows");
    Ok(())
}

#[test]
fn a_test_that_nobody_calls_is_none() {
    let c = "static void called(void) {\n}\nstatic void forgotten(void) {\n}\n    called();\n";
    assert!(has_c_test(c, "called") && !has_c_test(c, "forgotten") && !has_c_test(c, "called_not"));
    let rust = "#[test]\n#[should_panic(expected = \"x\")]\nfn tested() {\n}\nfn helper() {\n}\n";
    assert!(has_rust_test(rust, "tested") && !has_rust_test(rust, "helper"));
}
