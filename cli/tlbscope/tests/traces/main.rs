//! `explain` and `replay` on traces that are kept, cut or made here.

#[path = "../command/mod.rs"]
mod command;
#[path = "../command/not_here.rs"]
mod not_here;

mod bad_input;
mod explain;
mod replay;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

const BUILD: &str = "build-zlib.script.txt.zst";
const STRESS: &str = "stress-ng-tlb-shootdown.script.txt.zst";
/// One process: its main thread protects four pages 300 times and allows them again, beside one that computes on the
/// other CPU. Its own threads are all that was recorded, with stacks and with what it had mapped.
const SERVICE: &str = "service.tlbtrace";

fn shared(name: &str) -> String {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../linux/tlbkit-trace/tests/data");
    Path::new(data).join(name).display().to_string()
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("traces");
    fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    command::text(arguments).lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect()
}
