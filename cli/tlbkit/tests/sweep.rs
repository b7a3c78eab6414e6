//! `sweep`: however a plan is cut into shards, and wherever one of them was killed, the same bytes come out.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{fs, str};

use serde_json::Value;

/// An empty folder of its own for a test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sweep").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn sweep(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tlbkit")).arg("sweep").args(arguments).current_dir(folder).output().unwrap()
}

fn text(folder: &Path, arguments: &[&str]) -> String {
    let output = sweep(folder, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const LISTS: &[&str] = &[
    "plan",
    "ebizzy-m",
    "--machine",
    "recent-bare",
    "--policy",
    "linux-6.18,tlbkit",
    "--cpus",
    "2",
    "--set",
    "threads=1,2",
    "--seed",
    "1,2",
    "--milliseconds",
    "1",
];

/// A plan of eight points.
fn plan(folder: &Path) {
    fs::write(folder.join("plan"), text(folder, LISTS)).unwrap();
}

fn merged(folder: &Path, shards: usize) -> String {
    let files: Vec<_> = (1..=shards).map(|number| format!("plan.{number}-of-{shards}")).collect();
    for number in 1..=shards {
        text(folder, &["run", "plan", "--shard", &format!("{number}/{shards}")]);
    }
    let files: Vec<_> = files.iter().rev().map(String::as_str).collect();
    text(folder, &[&["merge", "plan"], &files[..]].concat())
}

#[test]
fn a_table_has_means_over_seeds_and_finds_no_difference_inside_the_interval() {
    let folder = folder("table");
    plan(&folder);
    fs::write(folder.join("results"), merged(&folder, 1)).unwrap();
    let table = text(&folder, &["table", "results"]);
    let heading = "ebizzy-m on recent-bare, 2 CPUs, threads=1";
    assert!(table.starts_with("+- is half of the interval"), "{table}");
    assert!(table.contains(heading) && table.contains("threads=2"), "{table}");
    let ours = table.lines().find(|line| line.starts_with("| tlbkit ")).unwrap();
    assert!(ours.contains("+-") && table.contains("against linux-6.18"), "{table}");
    let lines = text(&folder, &["--json", "table", "results"]);
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((rows.len(), rows[1]["seeds"].as_u64(), rows[1]["means_of"].as_str()), (4, Some(2), Some("tlbkit")));
    fs::write(folder.join("wrong"), "{}\n").unwrap();
    let output = sweep(&folder, &["table", "wrong"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.starts_with("tlbkit: wrong:1: no outcome"), "{message}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn one_shard_and_three_give_the_same_bytes() {
    let folder = folder("shards");
    plan(&folder);
    let whole = merged(&folder, 1);
    assert_eq!(whole, merged(&folder, 3));
    let rows: Vec<Value> = whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let points: Vec<_> = rows.iter().map(|row| row["point"].as_u64().unwrap()).collect();
    assert_eq!(points, (0..8).collect::<Vec<_>>());
    assert!(rows[0]["set"][0] == "threads=1" && rows[0]["seed"] == 1 && rows[7]["policy"] == "tlbkit", "{}", rows[7]);
    assert_ne!(rows[0]["outcome"], rows[2]["outcome"], "another number of threads is another run");
}

#[test]
fn a_killed_shard_goes_on_where_it_stopped() {
    let folder = folder("killed");
    plan(&folder);
    let whole = merged(&folder, 1);
    let file = folder.join("plan.1-of-1");
    let rows = fs::read_to_string(&file).unwrap();
    // Killed in the midst of its fourth row.
    let cut = rows.match_indices('\n').nth(2).unwrap().0 + 40;
    fs::write(&file, &rows[..cut]).unwrap();
    let missing = sweep(&folder, &["merge", "plan", "plan.1-of-1"]);
    assert_eq!(missing.status.code(), Some(2));
    assert_eq!(text(&folder, &["run", "plan"]), "plan.1-of-1: 8 points, 5 of them run now\n");
    assert_eq!(text(&folder, &["merge", "plan", "plan.1-of-1"]), whole);
    assert_eq!(text(&folder, &["run", "plan"]), "plan.1-of-1: 8 points, 0 of them run now\n");
}

/// A plan of one point on `mine.toml`, a machine with a context switch of `cycles`.
fn plan_on_a_file(folder: &Path, cycles: u32) {
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sim/machines/recent-bare.toml");
    let text = fs::read_to_string(built_in).unwrap();
    let (from, to) = ("context_switch_base = { value = 2090", format!("context_switch_base = {{ value = {cycles}"));
    assert!(text.contains(from));
    fs::write(folder.join("mine.toml"), text.replace(from, &to)).unwrap();
    let lists = ["plan", "ebizzy-m", "--machine", "mine.toml", "--policy", "tlbkit", "--cpus", "2", "--milliseconds"];
    fs::write(folder.join("plan"), self::text(folder, &[&lists[..], &["1", "--seed", "1,2"]].concat())).unwrap();
}

#[test]
fn rows_of_a_machine_that_has_changed_since_are_refused() {
    let folder = folder("machine");
    plan_on_a_file(&folder, 2090);
    text(&folder, &["run", "plan", "--shard", "1/2"]);
    text(&folder, &["run", "plan", "-o", "first"]);
    let comment = format!("# A word.\n{}", fs::read_to_string(folder.join("mine.toml")).unwrap());
    fs::write(folder.join("mine.toml"), comment).unwrap();
    assert_eq!(text(&folder, &["run", "plan", "-o", "first"]), "first: 2 points, 0 of them run now\n");
    plan_on_a_file(&folder, 2500);
    text(&folder, &["run", "plan", "--shard", "2/2"]);
    text(&folder, &["run", "plan", "-o", "second"]);
    for (arguments, file) in [
        (&["run", "plan", "-o", "first"][..], "first"),
        (&["run", "plan", "--shard", "1/2"], "plan.1-of-2"),
        (&["merge", "plan", "first"], "first"),
        (&["merge", "plan", "plan.2-of-2", "plan.1-of-2"], "plan.1-of-2"),
    ] {
        let output = sweep(&folder, arguments);
        let message = str::from_utf8(&output.stderr).unwrap();
        let expected =
            format!("tlbkit: {file}:1: machine mine.toml has changed since: remove the file, run its shard again\n");
        assert_eq!((message, output.status.code()), (expected.as_str(), Some(2)), "{arguments:?}");
    }
    assert_eq!(text(&folder, &["merge", "plan", "second"]).lines().count(), 2);
}

#[test]
fn wrong_input_is_one_line_and_status_2() {
    let folder = folder("wrong");
    plan(&folder);
    let first = fs::read_to_string(folder.join("plan")).unwrap().lines().next().unwrap().to_owned();
    fs::write(folder.join("bad"), format!("{first}\n{}\n", first.replace("tlbkit", "x").replace("linux-6.18", "y")))
        .unwrap();
    fs::write(folder.join("foreign"), "{\"format\": 5, \"point\": 0, \"outcome\": {}}\n").unwrap();
    text(&folder, &["run", "plan", "--shard", "1/8"]);
    let row = fs::read_to_string(folder.join("plan.1-of-8")).unwrap();
    fs::write(folder.join("older"), row.replace("\"format\":5,", "")).unwrap();
    fs::write(folder.join("newer"), row.replace("\"format\":5,", "\"format\":9,")).unwrap();
    fs::write(folder.join("empty"), "").unwrap();
    fs::write(folder.join("twice"), format!("{first}\n{first}\n")).unwrap();
    fs::write(folder.join("rows"), row.repeat(2)).unwrap();
    fs::write(folder.join("cut"), &row[..300]).unwrap();
    fs::write(folder.join("cut-plan"), &first[..50]).unwrap();
    fs::write(folder.join("quoted"), first.replace("\"cpus\":2", "\"cpus\":\"2\"")).unwrap();
    let quoted = "tlbkit: quoted:1: no point of `sweep plan`: \"cpus\": \"2\": invalid type: string \"2\", expected a \
                  whole number without quotes";
    fs::write(folder.join("listed"), format!("{first}\n{}", first.replace("\"seed\":1", "\"seed\":[1]"))).unwrap();
    fs::write(folder.join("unknown"), first.replace("\"seed\"", "\"seeds\"")).unwrap();
    let cases: [(&[&str], &str); 24] = [
        (&["run", "/dev/null"], "tlbkit: /dev/null: is no plain file: name one for the rows with -o FILE"),
        (&["run", "quoted"], quoted),
        (
            &["run", "listed"],
            "tlbkit: listed:2: no point of `sweep plan`: \"seed\": [1]: invalid type: sequence, expected ",
        ),
        (&["run", "unknown"], "tlbkit: unknown:1: no point of `sweep plan`: unknown field `seeds`, expected one of "),
        (&["plan", "ebizzy-m", "--policy", "vms"], "tlbkit: no policy vms; see tlbkit list policies"),
        (&["plan", "ebizzy-m", "--set", "threads"], "tlbkit: --set threads: is no KEY=VALUE, such as threads=1,2"),
        (&["plan", "ebizzy-m", "--cpus", "2,0"], "tlbkit: 0 CPUs: must be 1 to 8192"),
        (&["plan", "ebizzy-m", "--cpus", "8193"], "tlbkit: 8193 CPUs: must be 1 to 8192"),
        (&["run", "nowhere"], "tlbkit: nowhere: No such file"),
        (&["run", "empty"], "tlbkit: empty: no point in it; tlbkit sweep plan prints points"),
        (&["plan", "ebizzy-m", "--seed", "1,1"], "tlbkit: the plan has a point twice, "),
        (&["run", "twice"], "tlbkit: twice:2: the same point as in line 1; remove one of them"),
        (&["table", "rows"], "tlbkit: rows:2: seed 1 again, of the same point and policy"),
        (&["run", "bad"], "tlbkit: bad:2: no policy y; "),
        (&["run", "plan", "-o", "plan"], "tlbkit: --output plan: is the plan, which is read; want another file"),
        (&["run", "rows"], "tlbkit: rows:1: a row with what came out, and no point of `sweep plan`"),
        (&["run", "cut-plan"], "tlbkit: cut-plan:1: a point that is cut short: run tlbkit sweep plan again"),
        (&["merge", "plan", "cut"], "tlbkit: cut:1: a row that is cut short: run its shard again"),
        (&["table", "cut"], "tlbkit: cut:1: a row that is cut short: run tlbkit sweep merge"),
        (&["merge", "plan", "foreign"], "tlbkit: foreign:1: no row of this plan: leave the file out, or name the plan"),
        (&["merge", "plan", "older"], "tlbkit: older:1: format none, written by another tlbkit: must be 5; run its"),
        (&["merge", "plan", "newer"], "tlbkit: newer:1: format 9, written by another tlbkit: must be 5; run its"),
        (&["run", "plan", "-o", "older"], "tlbkit: older:1: format none, "),
        (&["merge", "plan", "empty"], "tlbkit: plan:1: 8 points have no row yet, this one first"),
    ];
    for (arguments, start) in cases {
        let output = sweep(&folder, arguments);
        let message = str::from_utf8(&output.stderr).unwrap();
        assert!(message.starts_with(start) && message.lines().count() == 1, "{arguments:?}: {message}");
        assert_eq!(output.status.code(), Some(2));
    }
    assert_eq!(sweep(&folder, &["run", "plan", "--shard", "4/3"]).status.code(), Some(2));
}

/// A device has no rows to go on with, and reading one may never end.
#[test]
fn a_disk_that_is_full_is_one_line_found_at_once() {
    let folder = folder("full");
    plan(&folder);
    let limited = format!("ulimit -v 4000000; exec '{}' sweep run plan -o /dev/full", env!("CARGO_BIN_EXE_tlbkit"));
    let output = Command::new("sh").args(["-c", &limited]).current_dir(&folder).output().unwrap();
    let message = str::from_utf8(&output.stderr).unwrap();
    assert!(message.starts_with("tlbkit: /dev/full: No space left on device"), "{message}");
    assert_eq!((message.lines().count(), output.status.code()), (1, Some(2)));
}

/// Runs a block of a shell with the command as built for this test first on the PATH, and gives the rows it ends with.
fn rows_of_block(block: &str, folder: &Path) -> String {
    let built = Path::new(env!("CARGO_BIN_EXE_tlbkit")).parent().unwrap().to_path_buf();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([built].into_iter().chain(std::env::split_paths(&path))).unwrap();
    let output = Command::new("sh").args(["-ec", block]).current_dir(folder).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{block}{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(folder.join("results.jsonl")).unwrap()
}

#[test]
fn what_the_page_on_sweeps_says_gives_the_same_bytes_whoever_runs_the_shards() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab/sweeps.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks: Vec<_> =
        page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
    let [by_xargs, by_parallel] = blocks.as_slice() else { panic!("two blocks can be run: {blocks:?}") };
    let rows = rows_of_block(by_xargs, &folder("xargs"));
    assert_eq!(rows.lines().count(), 4, "two policies and two seeds: {rows}");
    if Command::new("parallel").arg("--version").output().is_err() {
        return println!("skipped: no GNU parallel");
    }
    assert!(by_parallel.contains("parallel"), "{by_parallel}");
    assert_eq!(rows_of_block(by_parallel, &folder("parallel")), rows);
}
