//! Cache lines that a path touches each time, of code and of data: this very program under lackey, which writes down
//! every address.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::measure::{ENV, Path};

/// How often a line was touched, by its number.
type Touched = HashMap<u64, u64>;

/// What one run touched.
#[derive(Default)]
struct Trace {
    code: Touched,
    data: Touched,
}

/// Prints the lines of each path that the same loop without it does not touch.
pub(crate) fn run(paths: &[Path]) {
    println!("{:30} {:>6} {:>6}", "path", "code", "data");
    for (index, path) in paths.iter().enumerate() {
        let [whole, rest] = [0, 1].map(|is_rest| each_time(index, is_rest));
        match (whole, rest) {
            (Ok(whole), Ok(rest)) => {
                let more = |of: fn(&[Vec<u64>; 2]) -> &Vec<u64>| {
                    of(&whole).iter().filter(|line| !of(&rest).contains(line)).count()
                };
                println!("{:30} {:>6} {:>6}", path.name(), more(|it| &it[0]), more(|it| &it[1]));
            }
            (Err(why), _) | (_, Err(why)) => println!("{:30} {why}", path.name()),
        }
    }
}

/// The lines of code, and of data, that each pass touches: those which a longer run touches so many times more.
fn each_time(index: usize, is_rest: u32) -> Result<[Vec<u64>; 2], String> {
    const SHORT: u64 = 96;
    const LONG: u64 = 288;
    let (short, long) = (trace(index, is_rest, SHORT)?, trace(index, is_rest, LONG)?);
    let often = |long: &Touched, short: &Touched| {
        let more = |line: &u64, times: u64| times - short.get(line).copied().unwrap_or(0);
        let is_each = |(line, times): (&u64, &u64)| (more(line, *times) * 20 >= (LONG - SHORT) * 19).then_some(*line);
        long.iter().filter_map(is_each).collect()
    };
    Ok([often(&long.code, &short.code), often(&long.data, &short.data)])
}

fn trace(index: usize, is_rest: u32, n: u64) -> Result<Trace, String> {
    let me = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=1"])
        .arg(me)
        .env(ENV, format!("{index} {is_rest} {n}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|_| "no valgrind".to_owned())?;
    let output = child.stdout.take().ok_or("no output")?;
    let mut trace = Trace::default();
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let Some((first, last, is_code)) = touched(&line) else { continue };
        let lines = if is_code { &mut trace.code } else { &mut trace.data };
        (first..=last).for_each(|line| *lines.entry(line).or_default() += 1);
    }
    child.wait().map_err(|error| error.to_string())?;
    Ok(trace)
}

/// The first and the last line of one access, as `I  04001000,3` or ` S 1ffefff000,8`.
fn touched(text: &str) -> Option<(u64, u64, bool)> {
    let (kind, rest) = (text.get(..3)?, text.get(3..)?);
    if !matches!(kind, "I  " | " L " | " S " | " M ") {
        return None;
    }
    let (address, bytes) = rest.split_once(',')?;
    let (address, bytes) = (u64::from_str_radix(address, 16).ok()?, bytes.parse::<u64>().ok()?);
    Some((address >> 6, (address + bytes - 1) >> 6, kind == "I  "))
}
