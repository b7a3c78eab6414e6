//! The report as its readers see it: laid out by a real browser at the width of a phone and of a desktop.
//!
//! A headless window is never narrower than 500 pixels, so the page is laid out in a frame of exactly the width wanted.
//! A script appended to a copy of the report measures it and hands the figures to the page around the frame, whose DOM
//! the browser prints. The report itself is not changed, and needs no server.

use crate::outcome::{StepOutcome, cargo};
use crate::setup::{self, Ready};
use crate::shown::Rows;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PHONE_PX: u32 = 390;
const DESKTOP_PX: u32 = 1200;
/// A file for each result; a whole report has a section with a plot for each.
const RESULTS: &str = "sim/experiments";
const TIME_MAX: Duration = Duration::from_secs(600);
/// No shot is taller; a browser refuses surfaces far above this.
const HEIGHT_PX_MAX: u32 = 16_000;
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=5000",
];
/// Measures the page once it is loaded: one number each, in the order of `Measured`, then the sections with a plot.
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
    const numbers = [page.scrollWidth, page.clientWidth, page.scrollHeight, loads, errors];
    parent.postMessage(numbers.concat(drawn).join(" "), "*");
  });
})();
</script>"#;

/// What the probe saw.
#[derive(Debug, PartialEq, Eq)]
struct Measured {
    content_width_px: u32,
    frame_width_px: u32,
    height_px: u32,
    loads_count: u32,
    errors_count: u32,
    drawn: Vec<String>,
}

/// The step: makes a report by the README's first command, whose verdicts must be as recorded, and looks at it. What
/// the pages show of its figures must be what it found.
pub(crate) fn check(root: &Path) -> Result<StepOutcome> {
    let dir = fresh_dir(root, "report-check")?;
    let mut faults = reproduce(root, &dir)?.faults(root)?;
    let browser = match chromium() {
        Ready::Yes(browser) => browser,
        Ready::No(how) if faults.is_empty() => {
            return Ok(StepOutcome::Skipped(format!("every verdict as recorded; no chromium; {how}")));
        }
        Ready::No(_) => return Ok(StepOutcome::Failed(faults.join("; "))),
    };
    let report = dir.join("report/index.html");
    let results = results(root)?;
    for width_px in [PHONE_PX, DESKTOP_PX] {
        let measured = measure(&browser, &report, width_px, &dir)?;
        faults
            .extend(measured_faults(&measured, &results).into_iter().map(|fault| format!("at {width_px} px {fault}")));
    }
    print_pdf(&browser, &report, &dir)?;
    fs::remove_dir_all(&dir)?;
    Ok(if faults.is_empty() {
        StepOutcome::Ok(format!("{PHONE_PX} px, {DESKTOP_PX} px, print"))
    } else {
        StepOutcome::Failed(faults.join("; "))
    })
}

/// Runs `reproduce` in `dir`. It must find every verdict as recorded.
fn reproduce(root: &Path, dir: &Path) -> Result<Rows> {
    let built = cargo(root, "build --release --quiet --package tlbkit-cli")?;
    ensure!(matches!(built, StepOutcome::Ok(_)), "the command did not build");
    let command = setup::target_dir(root).join("release/tlbkit");
    let run = ["reproduce", "--json"];
    let output = Command::new(&command).args(run).current_dir(dir).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("running {}", command.display()))?;
    let rows = Rows::read(&String::from_utf8_lossy(&output.stdout))?;
    ensure!(output.status.success(), "tlbkit reproduce: {}\n{}", output.status, rows.changed().join("\n"));
    Ok(rows)
}

/// The names of the published results, by their files.
fn results(root: &Path) -> Result<Vec<String>> {
    let folder = root.join(RESULTS);
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_stem().filter(|_| path.extension().is_some_and(|end| end == "toml"));
        names.extend(name.map(|name| name.to_string_lossy().into_owned()));
    }
    ensure!(!names.is_empty(), "{}: no experiments", folder.display());
    names.sort();
    Ok(names)
}

/// What a reader would object to in a report of these results.
fn measured_faults(measured: &Measured, results: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    if measured.content_width_px > measured.frame_width_px {
        faults.push(format!("the page is {} px wide and scrolls sideways", measured.content_width_px));
    }
    if measured.loads_count > 0 {
        faults.push(format!("it loads {} other files, a report stands alone", measured.loads_count));
    }
    if measured.errors_count > 0 {
        faults.push(format!("{} script or load errors", measured.errors_count));
    }
    let is_drawn = |name: &str| measured.drawn.iter().any(|drawn| drawn == name);
    let missing = results.iter().filter(|name| !is_drawn(name));
    faults.extend(missing.map(|name| format!("no <section id=\"{name}\"> with an inline svg")));
    faults
}

/// The verb: `report/index.html` as two pictures.
pub(crate) fn report_png(root: &Path) -> Result<bool> {
    let report = root.join("report/index.html");
    ensure!(report.is_file(), "no {}; run `cargo run --release -- reproduce` first", report.display());
    let browser = match chromium() {
        Ready::Yes(browser) => browser,
        Ready::No(how) => bail!("no chromium; {how}"),
    };
    let dir = fresh_dir(root, "report-png")?;
    for (width_px, name) in [(DESKTOP_PX, "report.png"), (PHONE_PX, "report-phone.png")] {
        let height_px = measure(&browser, &report, width_px, &dir)?.height_px.min(HEIGHT_PX_MAX);
        let frame = frame_page(&report, &dir, width_px, height_px)?;
        let picture = setup::target_dir(root).join(name);
        let shot = format!("--screenshot={}", picture.display());
        browse(&browser, &dir, &[&shot, &format!("--window-size={width_px},{height_px}"), &url(&frame)])?;
        ensure!(picture.is_file(), "the browser made no {}", picture.display());
        println!("{} ({width_px} x {height_px})", picture.display());
    }
    fs::remove_dir_all(&dir)?;
    Ok(true)
}

fn chromium() -> Ready<PathBuf> {
    setup::program(&["chromium", "chromium-browser", "google-chrome"], "chromium")
}

/// An empty folder under the build folder, where nothing of the user's is.
fn fresh_dir(root: &Path, name: &str) -> Result<PathBuf> {
    let dir = setup::target_dir(root).join("xtask").join(format!("{name}-{}", std::process::id()));
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    dir.canonicalize().context("finding the folder just made")
}

fn measure(browser: &Path, report: &Path, width_px: u32, dir: &Path) -> Result<Measured> {
    let frame = frame_page(report, dir, width_px, 900)?;
    let dom = browse(browser, dir, &["--dump-dom", &url(&frame)])?;
    parse(&dom).with_context(|| format!("the browser did not measure the report at {width_px} px"))
}

/// Writes the report with the probe in it, and the page with the frame around it; returns the latter.
fn frame_page(report: &Path, dir: &Path, width_px: u32, height_px: u32) -> Result<PathBuf> {
    let text = fs::read_to_string(report).with_context(|| format!("reading {}", report.display()))?;
    fs::write(dir.join("probed.html"), with_probe(&text))?;
    let frame = dir.join("frame.html");
    let page = format!(
        "<!doctype html><body style=\"margin:0\"><script>\
         addEventListener(\"message\", (e) => {{ document.body.dataset.measured = e.data; }});</script>\
         <iframe src=\"probed.html\" width=\"{width_px}\" height=\"{height_px}\" style=\"border:0\"></iframe></body>"
    );
    fs::write(&frame, page)?;
    Ok(frame)
}

/// The probe goes first, so that it also hears of errors in scripts that come after.
fn with_probe(text: &str) -> String {
    let at = text.find("<head>").map_or(0, |at| at + "<head>".len());
    format!("{}{PROBE}{}", &text[..at], &text[at..])
}

fn parse(dom: &str) -> Result<Measured> {
    let words = dom.split("data-measured=\"").nth(1).and_then(|rest| rest.split('"').next()).context("no figures")?;
    let mut words = words.split(' ');
    let mut number = || words.next().unwrap_or("").parse::<u32>().context("not a number");
    Ok(Measured {
        content_width_px: number()?,
        frame_width_px: number()?,
        height_px: number()?,
        loads_count: number()?,
        errors_count: number()?,
        drawn: words.map(str::to_owned).collect(),
    })
}

/// A report must print; an empty page or a crash leaves no PDF of any size.
fn print_pdf(browser: &Path, report: &Path, dir: &Path) -> Result<()> {
    let paper = dir.join("report.pdf");
    browse(browser, dir, &[&format!("--print-to-pdf={}", paper.display()), &url(report)])?;
    let size_bytes = fs::metadata(&paper).context("the browser printed no report")?.len();
    ensure!(size_bytes > 4096, "the printed report has {size_bytes} bytes only");
    Ok(())
}

fn url(file: &Path) -> String {
    format!("file://{}", file.display())
}

/// Runs the browser with a profile of its own and returns what it wrote, or ends it after `TIME_MAX`.
fn browse(browser: &Path, dir: &Path, args: &[&str]) -> Result<String> {
    let (profile, out) = (dir.join("profile"), dir.join("stdout"));
    if profile.exists() {
        fs::remove_dir_all(&profile)?;
    }
    let mut command = Command::new(browser);
    command.args(FLAGS).arg(format!("--user-data-dir={}", profile.display())).args(args);
    let mut child = command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(Stdio::null()).spawn()?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "{}: {status}", browser.display());
            return fs::read_to_string(&out).context("reading what the browser wrote");
        }
        if start.elapsed() > TIME_MAX {
            child.kill()?;
            child.wait()?;
            bail!("{} took more than {} s", browser.display(), TIME_MAX.as_secs());
        }
        sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["batch", "pcid", "pti"].map(str::to_owned).to_vec()
    }

    fn fine() -> Measured {
        let drawn = names();
        Measured { content_width_px: 390, frame_width_px: 390, height_px: 9000, loads_count: 0, errors_count: 0, drawn }
    }

    #[test]
    fn a_fine_report_has_no_faults() {
        assert!(measured_faults(&fine(), &names()).is_empty());
    }

    #[test]
    fn every_experiment_is_a_result() -> Result<()> {
        let results = results(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?;
        for name in ["pcid", "concurrent", "storm"] {
            assert!(results.iter().any(|result| result == name), "{results:?}");
        }
        Ok(())
    }

    #[test]
    fn each_fault_is_told() {
        let mut bad = Measured { content_width_px: 391, loads_count: 2, errors_count: 3, ..fine() };
        bad.drawn.retain(|name| name != "pti");
        let faults = measured_faults(&bad, &names()).join("\n");
        for word in ["391 px", "2 other files", "3 script", "\"pti\""] {
            assert!(faults.contains(word), "{faults}");
        }
        assert_eq!(measured_faults(&bad, &names()).len(), 4);
    }

    #[test]
    fn the_figures_are_read_back_from_the_dom() -> Result<()> {
        let dom = "<body data-measured=\"390 390 9000 0 0 batch pcid pti\"><iframe></iframe></body>";
        assert_eq!(parse(dom)?, fine());
        assert!(parse("<body><iframe></iframe></body>").is_err());
        Ok(())
    }

    #[test]
    fn the_probe_comes_before_the_pages_own_scripts() {
        let page = with_probe("<!doctype html><html><head><script>own()</script></head></html>");
        assert!(page.find("postMessage") < page.find("own()"), "{page}");
    }

    #[test]
    fn a_real_browser_sees_a_page_that_is_too_wide() -> Result<()> {
        // Only where a browser is already there: a unit test installs nothing.
        let there = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].map(Path::new);
        let Some(browser) = there.into_iter().find(|path| path.is_file()) else { return Ok(()) };
        let dir = std::env::temp_dir().join(format!("tlbkit-browser-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        let report = dir.join("page.html");
        let wide = "<!doctype html><head><link rel=\"stylesheet\" href=\"there.css\"></head>\
                    <section id=\"pcid\"><svg></svg></section>\
                    <section id=\"lazy\"></section><div style=\"width:700px\">x</div><img src=\"gone.png\">";
        fs::write(&report, wide)?;
        fs::write(dir.join("there.css"), "body { margin: 8px }")?;
        let measured = measure(browser, &report, PHONE_PX, &dir);
        fs::remove_dir_all(&dir)?;
        let measured = measured?;
        assert_eq!((measured.frame_width_px, measured.drawn.as_slice()), (PHONE_PX, &["pcid".to_owned()][..]));
        assert!(measured.content_width_px >= 700 && measured.loads_count == 2, "{measured:?}");
        assert_eq!(measured.errors_count, 1, "{measured:?}");
        Ok(())
    }
}
