//! `run --priors`: one file's machines as its priors allow them.

mod command;

use command::{run, text};
use serde_json::Value;

const SHORT: [&str; 8] = ["run", "madvise1", "--machine", "recent-bare", "--cpus", "2", "--milliseconds", "1"];
const POLICIES: [&str; 2] = ["--policy", "linux-6.18,tlbkit"];

fn rows(more: &[&str]) -> Vec<Value> {
    let lines = text(&[&SHORT[..], &POLICIES, more, &["--json"]].concat());
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The part of `table` that begins with `title`, line by line.
fn part<'t>(table: &'t str, title: &str) -> Vec<&'t str> {
    let lines = table.lines().skip_while(|line| !line.starts_with(title));
    lines.take_while(|line| !line.is_empty()).collect()
}

#[test]
fn the_same_draws_give_the_same_bytes_and_others_do_not() {
    let of = |seed: &str| text(&[&SHORT[..], &POLICIES, &["--priors", "5", "--seed", seed]].concat());
    let first = of("1");
    assert_eq!(first, of("1"));
    assert_ne!(first, of("2"));
}

#[test]
fn a_table_says_what_was_drawn_how_far_results_lie_apart_and_who_is_better() {
    let table = text(&[&SHORT[..], &POLICIES, &["--priors", "20"]].concat());
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[1].ends_with("seeds 1 to 20, a machine each; medians, in parentheses the middle 90 %"), "{table}");
    assert!(lines[2].contains(" priors of the file are drawn anew for each machine. "), "{table}");
    let score = lines.iter().find(|line| line.starts_with("| score a second  ")).unwrap();
    assert_eq!(score.matches(" .. ").count(), 2, "{score}");
    let compared = part(&table, "| score a second       |            drawn");
    assert!(compared[3].starts_with("| tlbkit by linux-6.18 | ") && compared[3].contains("20 of 20"), "{table}");
    let said = "tlbkit is better than linux-6.18 in 20 of 20 draws: as far as these tell, the priors do not decide it.";
    assert_eq!(compared[4], said);
    let followed = part(&table, "| score a second       |           follows");
    let instructions = followed.iter().find(|line| line.contains("software.instruction_cycles")).unwrap();
    assert!(instructions.starts_with("| tlbkit by linux-6.18 ") && instructions.contains(" +0."), "{table}");
}

/// A draw has one machine and one seed, whatever the policy. Beside them each policy runs on the file's own machine, as
/// `--seeds` has it.
#[test]
fn rows_have_their_draw_and_draws_their_numbers() {
    let (all, own) = (rows(&["--priors", "3", "--seed", "7"]), rows(&["--seeds", "3", "--seed", "7"]));
    let runs: Vec<_> = all.iter().filter(|row| row["outcome"].is_object()).collect();
    let of_draws: Vec<_> = runs[..6].iter().map(|row| (row["draw"].as_u64(), row["seed"].as_u64())).collect();
    let once = [(Some(1), Some(7)), (Some(2), Some(8)), (Some(3), Some(9))];
    assert_eq!(of_draws, [once, once].concat());
    assert_eq!(runs[6..].iter().map(|row| (*row).clone()).collect::<Vec<_>>(), own[..6], "as --seeds has them");
    let score = |row: &Value| row["outcome"]["steady"]["score_per_second"].as_f64().unwrap();
    assert!((0..3).all(|draw| score(runs[draw]) != score(runs[6 + draw])), "not the file's own machine");
    let draws: Vec<_> = all.iter().filter(|row| row["priors"].is_object()).collect();
    assert_eq!(draws.len(), 3);
    let pause = |row: &Value| row["priors"]["software.pause_cycles"].as_f64().unwrap();
    assert!(draws.iter().all(|row| (4.0..=200.0).contains(&pause(row))) && pause(draws[0]) != pause(draws[1]));
    assert_eq!((&draws[2]["draw"], &draws[2]["seed"]), (&3.into(), &9.into()));
    let of_seed_8 = rows(&["--priors", "1", "--seed", "8"]);
    assert!(of_seed_8.iter().any(|row| row["priors"] == draws[1]["priors"]), "a seed has one machine");
}

#[test]
fn a_program_is_told_the_same() {
    let all = rows(&["--priors", "20"]);
    let medians: Vec<_> = all.iter().filter(|row| row["medians_of"].is_string()).collect();
    assert_eq!((medians.len(), &medians[1]["medians_of"]), (2, &"tlbkit".into()));
    let score = &medians[0]["quantities"][0];
    let [low, median, high] = ["low", "median", "high"].map(|part| score["spread"][part].as_f64().unwrap());
    assert!(score["quantity"] == "score a second" && low < median && median < high, "{score}");
    let results: Vec<_> = all.iter().filter(|row| row["score_of"].is_string()).collect();
    assert_eq!((&results[0]["by_that_of"], &results[0]["verdict"]), (&Value::Null, &Value::Null));
    assert!(results[0]["own"]["spread"].is_object() && results[0]["drawn"]["better"].is_null(), "{}", results[0]);
    let ratio = results[1];
    assert_eq!((&ratio["by_that_of"], &ratio["verdict"]), (&"linux-6.18".into(), &"better".into()));
    assert_eq!((&ratio["drawn"]["better"], &ratio["own"]["better"]), (&20.into(), &20.into()), "{ratio}");
    let followed = &ratio["follows"][0];
    assert_eq!(followed["prior"], "software.instruction_cycles");
    assert!(followed["rank_correlation"].as_f64() > ratio["chance"].as_f64(), "{ratio}");
    assert_eq!(followed["band"], serde_json::json!([0.2, 3.1]));
}

#[test]
fn a_few_draws_have_a_range_of_all_of_them() {
    let table = text(&[&SHORT[..], &["--priors", "3"]].concat());
    let heading = table.lines().nth(1).unwrap();
    assert!(
        heading.ends_with("seeds 1 to 3, a machine each; medians, in parentheses the range of all draws"),
        "{table}"
    );
}

/// After 2 ms the pages that 104 threads do in a tenth of a millisecond still become fewer, with seeds 2 to 8; those of
/// seed 1 vary too much to tell.
#[test]
fn a_run_without_a_score_is_named_on_the_file_s_own_machine_too() {
    let early = ["run", "tlb-flush2", "--machine", "skylake-104thread", "--set", "threads=104", "--milliseconds", "2"];
    let table = text(
        &[&early[..], &["--set", "pages=2048", "--policy", "linux-4.20", "--priors", "1", "--seed", "2"]].concat(),
    );
    let begin =
        "on the file's own machine, linux-4.20: no score a second, as the start was not over at the end of 1 of 1";
    assert!(table.lines().any(|line| line.starts_with(begin)), "{table}");
}

#[test]
fn what_cannot_be_drawn_is_one_line_and_status_2() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let known = text(&["list", "machines", "--toml", "recent-bare"]).replace("\"prior\"", "\"input\"");
    std::fs::write(file.path(), known).unwrap();
    let path = file.path().to_str().unwrap();
    for (arguments, said) in [
        (
            ["--priors", "3", "--seeds", "5"],
            "--priors 3 with --seeds 5: each draw has a seed of its own, so only one of them",
        ),
        (
            ["--priors", "3", "--seed", "18446744073709551614"],
            "--seed 18446744073709551614: at most 18446744073709551613, as 3 are used",
        ),
        (["--priors", "3", "--machine", path], &format!("{path}: no prior that could be drawn; leave --priors out")),
        (
            ["--priors", "3", "--machine", "pdp-11"],
            "no machine pdp-11; see tlbkit list machines, and no such file is there",
        ),
    ] {
        let output = run(&[&["run", "madvise1"][..], &arguments].concat());
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("tlbkit: {said}\n"));
        assert_eq!(output.status.code(), Some(2));
    }
}
