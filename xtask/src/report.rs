//! `cargo xtask report`: the README's first command, and what comes of it. Every verdict is as recorded, README.md and
//! docs/ show the figures of this run, and the report fits a phone and a desktop, as a real browser lays it out.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::setup::{self, Need, output, tool};

const BROWSER: Need = Need::Program("chromium", "chromium");
const WIDTHS_PX: [u32; 3] = [390, 900, 1200];
/// A headless window is never narrower than 500 pixels: so the page is laid out in a frame of the width wanted. The
/// probe is put first into a copy of the report, where it hears of errors in scripts that come after, and hands its
/// figures to the page around the frame, whose DOM the browser prints.
const PROBE: &str = r#"<script>
(() => {
  let errors = 0;
  addEventListener("error", () => { errors += 1; }, true);
  addEventListener("load", () => {
    const page = document.documentElement;
    const drawn = [...document.querySelectorAll("section[id]")].filter((s) => s.querySelector("svg")).map((s) => s.id);
    const named = [...document.querySelectorAll("[src], link[href]")].map((e) => e.src || e.href);
    const fetched = performance.getEntriesByType("resource").map((r) => r.name);
    const loads = new Set(named.concat(fetched).filter((name) => !name.startsWith("data:"))).size;
    parent.postMessage([page.scrollWidth, loads, errors].concat(drawn).join(" "), "*");
  });
})();
</script>"#;
/// The folder for the drawings that docs/ has.
const PICTURES: &str = "pictures";
const FRAME: &str = r#"<!doctype html><body style="margin:0"><script>
addEventListener("message", (e) => { document.body.dataset.measured = e.data; });</script>
<iframe src="probed.html" width="WIDTH" height="900" style="border:0"></iframe></body>"#;

/// Runs it; false if something is not as it is shown.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let folder = setup::target_dir(root).join("xtask/report");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    tool(Command::new("cargo").args(["build", "--release", "--quiet", "--package", "tlbkit-cli"]), root)?;
    let mut reproduce = Command::new(setup::target_dir(root).join("release/tlbkit"));
    let ended = reproduce
        .args(["reproduce", "--all", "--json", "--pictures", PICTURES])
        .current_dir(&folder)
        .stderr(Stdio::inherit())
        .output()?;
    let rows = rows(&String::from_utf8_lossy(&ended.stdout))?;
    let mut faults: Vec<String> = rows.iter().filter(|row| row.verdict.starts_with("changed")).map(Row::told).collect();
    ensure!(ended.status.success() || !faults.is_empty(), "tlbkit reproduce: {}", ended.status);
    let page = |path: &str| fs::read_to_string(root.join(path)).with_context(|| path.to_owned());
    let policies = |experiment: &str| policies(&page(&format!("sim/experiments/{experiment}.toml"))?);
    faults.extend(shown_otherwise(&rows, policies, &page("README.md")?, &page("docs/lab/reproduce.md")?)?);
    for entry in fs::read_dir(folder.join(PICTURES)).context("reading the pictures")? {
        let path = entry?.path();
        let name = format!("docs/{}", path.file_name().unwrap_or_default().to_string_lossy());
        if fs::read(&path)? != fs::read(root.join(&name)).unwrap_or_default() {
            faults.push(format!("{name} is another one: tlbkit reproduce --all --pictures docs"));
        }
    }
    let no_browser = BROWSER.lack();
    if no_browser.is_none() {
        let report = fs::read_to_string(folder.join("report/all.html")).context("reading the report")?;
        for width_px in WIDTHS_PX {
            let measured = laid_out(&report, width_px, &folder)?;
            faults.extend(measured.faults(width_px, &results(root)?));
        }
    }
    faults.iter().for_each(|fault| println!("{fault}"));
    if let (Some(how), true) = (no_browser, faults.is_empty()) {
        println!("skipped: all is as recorded and shown, but no browser has laid out the report; {how}");
    }
    Ok(faults.is_empty())
}

/// The names of the published results, by their files: a report has a section with a plot for each that has more than
/// one figure.
fn results(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for file in fs::read_dir(root.join("sim/experiments"))? {
        let path = file?.path();
        let is_plotted = || anyhow::Ok(fs::read_to_string(&path)?.matches("[[figure]]").count() > 1);
        if path.extension().is_some_and(|end| end == "toml") && is_plotted()? {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    Ok(names)
}

/// What the probe saw.
#[derive(Debug)]
struct Measured {
    width_px: u32,
    loads: u32,
    errors: u32,
    drawn: Vec<String>,
}

/// Lays out the report in a frame, and measures it.
fn laid_out(report: &str, width_px: u32, folder: &Path) -> Result<Measured> {
    let head = report.find("<head>").map_or(0, |at| at + "<head>".len());
    fs::write(folder.join("probed.html"), [&report[..head], PROBE, &report[head..]].concat())?;
    let frame = folder.join("frame.html");
    fs::write(&frame, FRAME.replace("WIDTH", &width_px.to_string()))?;
    let mut browser = Command::new("timeout");
    browser.args(["600", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]);
    browser.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    browser.args(["--hide-scrollbars", "--virtual-time-budget=5000", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    let dom = output(browser.arg(format!("file://{}", fs::canonicalize(frame)?.display())))?;
    let words = dom.split("data-measured=\"").nth(1).and_then(|rest| rest.split('"').next());
    let mut words =
        words.with_context(|| format!("the browser did not measure the report at {width_px} px"))?.split(' ');
    let mut number = || words.next().unwrap_or_default().parse::<u32>().context("the browser measured no number");
    let (width_px, loads, errors) = (number()?, number()?, number()?);
    Ok(Measured { width_px, loads, errors, drawn: words.map(str::to_owned).collect() })
}

impl Measured {
    /// What a reader would object to in a report of these results.
    fn faults(&self, frame_px: u32, results: &[String]) -> Vec<String> {
        let Self { width_px, loads, errors, drawn } = self;
        let missing = results.iter().filter(|name| !drawn.contains(name));
        let mut faults: Vec<String> =
            missing.map(|name| format!("no <section id=\"{name}\"> with an inline svg")).collect();
        if *width_px > frame_px {
            faults.push(format!("the page is {width_px} px wide in a frame of {frame_px} px and scrolls sideways"));
        }
        if loads + errors > 0 {
            faults.push(format!("{loads} other files loaded, {errors} script or load errors; a report stands alone"));
        }
        faults
    }
}

/// A row of `reproduce --json`, as far as pages show it.
#[derive(Debug)]
struct Row {
    experiment: String,
    quantity: String,
    published: Option<f64>,
    ours: Option<f64>,
    error_pct: Option<f64>,
    null: Option<f64>,
    kind: String,
    claim: String,
    verdict: String,
}

impl Row {
    /// Whether it is a prediction that could have come out otherwise.
    fn is_evidence(&self) -> bool {
        ["strong", "weak"].contains(&self.claim.as_str())
    }

    fn told(&self) -> String {
        format!("{} {}: {}", self.experiment, self.quantity, self.verdict)
    }
}

fn rows(lines: &str) -> Result<Vec<Row>> {
    let row = |line: &str| {
        let value: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| value[key].as_f64();
        Ok(Row {
            experiment: text("experiment"),
            quantity: text("quantity"),
            published: number("published"),
            ours: number("ours"),
            error_pct: number("error_pct"),
            null: number("null"),
            kind: text("kind"),
            claim: text("claim"),
            verdict: text("verdict"),
        })
    };
    lines.lines().map(row).collect()
}

/// The policies of an experiment, the one that the others are compared with first.
fn policies(file: &str) -> Result<Vec<String>> {
    let experiment: toml::Table = toml::from_str(file)?;
    let policies = experiment["setup"]["policies"].as_array().context("setup.policies")?;
    Ok(policies.iter().filter_map(|policy| policy["id"].as_str()).map(str::to_owned).collect())
}

/// Where a page says something else than these rows.
fn shown_otherwise(
    rows: &[Row],
    policies: impl Fn(&str) -> Result<Vec<String>>,
    readme: &str,
    reproduce: &str,
) -> Result<Vec<String>> {
    let mut names: Vec<&str> = rows.iter().map(|row| row.experiment.as_str()).collect();
    names.dedup();
    let (mut expected, mut all, mut without_ebizzy) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        let of: Vec<&Row> = rows.iter().filter(|row| row.experiment == name).collect();
        let differences = differences(&of, &policies(name)?);
        if !differences.is_empty() {
            expected.push((name, cells_of(&differences)));
        }
        if !GAINS_OF_EBIZZY.contains(&name) {
            without_ebizzy.extend(differences.iter().copied());
        }
        all.extend(differences);
        expected.push((name, Summary::of(&of).cells()));
    }
    let whole = Summary::of(&rows.iter().collect::<Vec<_>>());
    expected.extend([("all", cells_of(&all)), ("all", whole.cells())]);
    expected.push(("all but `range` and `half`", cells_of(&without_ebizzy)));
    let is_there = |name: &str, cells: &str| {
        reproduce.lines().any(|line| line.starts_with(&format!("| {name} |")) && line.ends_with(cells))
    };
    expected.retain(|(name, cells)| !is_there(name, cells));
    let lack = |(name, cells): &(&str, String)| format!("docs/lab/reproduce.md lacks `| {name} ... {cells}`");
    let mut faults: Vec<String> = expected.iter().map(lack).collect();
    let flowing = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentences = [whole.sentence(), sentence_of(&all)];
    faults.extend(sentences.iter().filter(|it| !flowing.contains(*it)).map(|it| format!("README.md lacks `{it}`")));
    let wrong = readme.lines().filter_map(result_cells).filter(|cells| !rows.iter().any(|row| is_shown(row, cells)));
    faults.extend(wrong.map(|cells| format!("README.md says `{}`, and no row of a run does", cells.join(" | "))));
    Ok(faults)
}

/// Experiments of one program under the same policies on two machines, which have most of the differences.
const GAINS_OF_EBIZZY: [&str; 2] = ["range", "half"];

/// By how many percent a figure of one policy differs from another policy's.
#[derive(Clone, Copy, Debug)]
struct Difference {
    published: Option<f64>,
    ours: Option<f64>,
    null: Option<f64>,
    is_in_band: bool,
}

/// What an experiment predicts of differences: the changes that its document gives, and where it gives none, those of
/// each figure of the first policy to the same figure of another, which must lie within a factor of two, unless
/// something was fitted to both.
fn differences(rows: &[&Row], policies: &[String]) -> Vec<Difference> {
    let parts = |row: &Row| row.quantity.split(", ").map(str::to_owned).collect::<Vec<_>>();
    let is_of_two = |row: &Row| parts(row).iter().any(|part| part == "gain" || part.contains(" over "));
    let is_change = |row: &Row| is_of_two(row) || parts(row).iter().any(|part| part == "change");
    let stated = rows.iter().filter(|row| row.is_evidence() && is_change(row)).map(|row| Difference {
        published: row.published,
        ours: row.ours,
        null: row.null,
        is_in_band: row.verdict == "in band",
    });
    let mut differences: Vec<Difference> = stated.collect();
    if rows.iter().any(|row| is_of_two(row)) {
        return differences;
    }
    let is_fitted = |row: &Row| row.kind == "calibrated";
    for row in rows.iter().filter(|row| row.is_evidence() || is_fitted(row)) {
        let named = parts(row);
        let Some(at) = named.iter().position(|part| policies.iter().skip(1).any(|policy| policy == part)) else {
            continue;
        };
        let mut of_first = named;
        of_first[at].clone_from(&policies[0]);
        let of_first = of_first.join(", ");
        let first = rows.iter().find(|row| row.quantity == of_first && (row.is_evidence() || is_fitted(row)));
        let Some(first) = first.filter(|first| !(is_fitted(first) && is_fitted(row))) else { continue };
        let change =
            |of: fn(&Row) -> Option<f64>| Some((of(row)? / of(first).filter(|&base| base != 0.0)? - 1.0) * 100.0);
        let (published, ours) = (change(|row| row.published), change(|row| row.ours));
        let is_in_band = published.zip(ours).is_some_and(|(published, ours)| (0.5..=2.0).contains(&(ours / published)));
        // What was fitted is known to the null model.
        differences.push(Difference { published, ours, null: change(|row| row.null.or(row.published)), is_in_band });
    }
    differences
}

/// How many have the right sign, of those of 1 % at least; lie in band; are nearer to what was published than the null
/// model.
fn counts_of(differences: &[Difference]) -> [String; 3] {
    let count = |judge: &dyn Fn(&Difference) -> Option<bool>| {
        let judged: Vec<bool> = differences.iter().filter_map(judge).collect();
        format!("{} of {}", judged.iter().filter(|is_so| **is_so).count(), judged.len())
    };
    let sign = |one: &Difference| {
        let published = one.published.filter(|published| published.abs() >= 1.0)?;
        Some(one.ours? * published > 0.0)
    };
    let nearer = |one: &Difference| {
        let published = one.published?;
        Some((one.ours? - published).abs() < (one.null? - published).abs())
    };
    [count(&sign), count(&|one| Some(one.is_in_band)), count(&nearer)]
}

/// The last cells of a line about them.
fn cells_of(differences: &[Difference]) -> String {
    format!("| {} |", counts_of(differences).join(" | "))
}

/// What the README says of all.
fn sentence_of(differences: &[Difference]) -> String {
    let [sign, band, _] = counts_of(differences);
    format!(
        "Differences between two policies have the right sign in {sign} cases, and the size that was asked for in \
         {band}."
    )
}

/// How many predictions of each kind hold, and how far they are off.
struct Summary {
    /// In band, and in all: strong, weak, tautological.
    kinds: [(usize, usize); 3],
    /// Mean and median.
    error_pct: [f64; 2],
    null_error_pct: [f64; 2],
    figures: usize,
}

impl Summary {
    fn of(rows: &[&Row]) -> Self {
        let kinds = ["strong", "weak", "tautological"].map(|claim| {
            let of_kind = rows.iter().filter(|row| row.claim == claim);
            (of_kind.clone().filter(|row| row.verdict == "in band").count(), of_kind.count())
        });
        let (mut errors, mut null_errors) = (Vec::new(), Vec::new());
        for row in rows.iter().filter(|row| row.is_evidence()) {
            if let (Some(published), Some(error_pct)) = (row.published.filter(|&value| value != 0.0), row.error_pct) {
                errors.push(error_pct.abs());
                null_errors.extend(row.null.map(|null| ((null - published) / published).abs() * 100.0));
            }
        }
        let figures = errors.len();
        Self { kinds, error_pct: mean_and_median(errors), null_error_pct: mean_and_median(null_errors), figures }
    }

    /// The last cells of a line of docs/lab/reproduce.md.
    fn cells(&self) -> String {
        let kinds = self.kinds.map(|(held, all)| format!("{held} of {all}")).join(" | ");
        let [error, null] =
            [self.error_pct, self.null_error_pct].map(|[mean, median]| format!("{mean:.1}, {median:.1} %"));
        format!("| {kinds} | {error} | {null} | {} |", self.figures)
    }

    /// What the README says of all.
    fn sentence(&self) -> String {
        let [strong, weak, tautological] = self.kinds.map(|(held, all)| format!("{held} of {all}"));
        format!(
            "In band are {strong} strong and {weak} weak predictions, and {tautological} that could hardly come \
             out otherwise. The mean error is {:.0} % and the median {:.0} %; those of the null models are {:.0} and \
             {:.0} %.",
            self.error_pct[0], self.error_pct[1], self.null_error_pct[0], self.null_error_pct[1]
        )
    }
}

fn mean_and_median(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return [0.0; 2] };
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    [mean, f64::midpoint(values[last / 2], values[values.len() / 2])]
}

/// The last six cells of a line of the README's table of results: published, ours, error, null model, kind, verdict.
fn result_cells(line: &str) -> Option<Vec<&str>> {
    let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
    let is_result = cells.len() == 8 && ["strong", "weak", "tautological"].contains(&cells[6]);
    is_result.then(|| cells[2..].to_vec())
}

/// Whether the cells say what the row does, in any unit.
fn is_shown(row: &Row, cells: &[&str]) -> bool {
    let [published, ours, error, null, kind, verdict] = cells else { return false };
    let says = |cell: &str, value: Option<f64>, shift: i32| value.is_some_and(|value| says(cell, value, shift));
    row.claim == *kind
        && row.verdict == verdict.trim_matches('*')
        && says(error, row.error_pct, 0)
        && [-6, -3, -2, 0, 2, 3, 6].into_iter().any(|shift| {
            says(published, row.published, shift) && says(ours, row.ours, shift) && says(null, row.null, shift)
        })
}

/// Whether the number in `cell` is `value` times ten to the power of `shift`, rounded to the digits that it has.
fn says(cell: &str, value: f64, shift: i32) -> bool {
    let digits: String = cell.chars().filter(|c| c.is_ascii_digit() || ".-".contains(*c)).collect();
    let digits = digits.trim_end_matches(['.', '-']);
    let decimals = digits.split_once('.').map_or(0, |(_, after)| after.len());
    let Ok(number) = digits.parse::<f64>() else { return false };
    let scaled = value * 10f64.powi(shift);
    (scaled - number).abs() <= 0.5000001 * 10f64.powi(-(decimals as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = concat!(
        r#"{"experiment":"pcid","quantity":"time, pages 512, pcid","unit":"us","published":1.8,"ours":1.658,"#,
        r#""error_pct":-7.9,"kind":"prediction","null":1.22,"verdict":"in band","claim":"strong"}"#,
        "\n",
        r#"{"experiment":"pcid","quantity":"time, pages 512, nopcid","unit":"us","published":6.2,"ours":6.2,"#,
        r#""error_pct":0.0,"kind":"calibrated","null":null,"verdict":"fitted","claim":null}"#
    );

    fn of_two(_: &str) -> Result<Vec<String>> {
        Ok(vec!["pcid".to_owned(), "nopcid".to_owned()])
    }

    #[test]
    fn a_page_that_says_something_else_is_found() -> Result<()> {
        let rows = rows(LINE)?;
        let reproduce = "| pcid | tags | 1 of 1 | 1 of 1 | 1 of 1 |\n\
                         | all | | 1 of 1 | 1 of 1 | 1 of 1 |\n\
                         | all but `range` and `half` | | 1 of 1 | 1 of 1 | 1 of 1 |\n\
                         | pcid | turns | 1 of 1 | 0 of 0 | 0 of 0 | 7.9, 7.9 % | 32.2, 32.2 % | 1 |\n\
                         | all | | 1 of 1 | 0 of 0 | 0 of 0 | 7.9, 7.9 % | 32.2, 32.2 % | 1 |";
        let readme = "| PCID, 2017 | a turn | 1.80 us | 1.66 us | -8 % | 1.22 | strong | in band |\n\
                      In band are 1 of 1 strong and 0 of 0 weak predictions, and 0 of 0 that could hardly come \
                      out otherwise. \
                      The mean error is 8 % and the median 8 %; those of the null models are 32 and 32 %. \
                      Differences between two policies have the right sign in 1 of 1 cases, and the size that was \
                      asked for in 1 of 1.";
        assert_eq!(shown_otherwise(&rows, of_two, readme, reproduce)?, [] as [&str; 0]);
        let others = [("1.66", "1.70"), ("1.66", "166"), ("mean", "least"), ("1 of 1 cases", "0 of 1 cases")];
        for wrong in others.map(|(said, other)| readme.replace(said, other)) {
            assert_eq!(shown_otherwise(&rows, of_two, &wrong, reproduce)?.len(), 1, "{wrong}");
        }
        assert_eq!(shown_otherwise(&rows, of_two, readme, "")?.len(), 5);
        assert!(super::rows("{").is_err());
        Ok(())
    }

    #[test]
    fn a_difference_is_stated_or_that_of_two_figures() {
        let row = |quantity: &str, published, ours, null, verdict: &str| Row {
            experiment: "range".to_owned(),
            quantity: quantity.to_owned(),
            published: Some(published),
            ours: Some(ours),
            error_pct: None,
            null: Some(null),
            kind: "prediction".to_owned(),
            claim: "weak".to_owned(),
            verdict: verdict.to_owned(),
        };
        let policies = ["old", "new"].map(str::to_owned);
        let means =
            [row("mean, old", 100.0, 80.0, 100.0, "known miss"), row("mean, new", 110.0, 86.0, 100.0, "in band")];
        let by_pair = differences(&means.iter().collect::<Vec<_>>(), &policies);
        assert_eq!(cells_of(&by_pair), "| 1 of 1 | 1 of 1 | 1 of 1 |", "10 % and 7.5: {by_pair:?}");
        let gains =
            [row("gain, threads 2, new", 10.0, -2.0, 0.0, "known miss"), row("gain, new", 0.5, -0.1, 0.0, "in band")];
        let stated = differences(&means.iter().chain(&gains).collect::<Vec<_>>(), &policies);
        assert_eq!(cells_of(&stated), "| 0 of 1 | 1 of 2 | 0 of 2 |", "the pair is not counted besides: {stated:?}");
    }

    #[test]
    fn a_real_browser_sees_what_is_wrong_with_a_page() -> Result<()> {
        // Only where a browser is already there: a unit test installs nothing.
        if setup::find("chromium").is_none() {
            return Ok(());
        }
        let folder = std::env::temp_dir().join(format!("tlbkit-browser-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let page = "<!doctype html><head></head><section id=\"pcid\"><svg></svg></section>\
                    <section id=\"lazy\"></section><div style=\"width:700px\">x</div><img src=\"gone.png\">";
        let measured = laid_out(page, WIDTHS_PX[0], &folder);
        fs::remove_dir_all(&folder)?;
        let faults = measured?.faults(WIDTHS_PX[0], &["pcid", "lazy"].map(str::to_owned)).join("\n");
        assert!(faults.contains("\"lazy\"") && !faults.contains("\"pcid\""), "{faults}");
        assert!(faults.contains("scrolls sideways") && faults.contains("1 other files loaded, 1 script"), "{faults}");
        Ok(())
    }
}
