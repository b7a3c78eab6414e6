//! A summary as tables: by reason, by name of the process, by cause, by size with time, by CPU, by call site.

use std::collections::BTreeMap;

use tlbkit_trace::summary::{CpuRow, ProgramRow, SizeRow};
use tlbkit_trace::{FlushReason, FlushSize, Names, Summary};

use tlbkit_output::number;
use tlbkit_output::table::grid;

/// Somewhat below the shortest interval that can be asked for.
const RATE_LEAST_NS: u64 = 90_000_000;
/// Frames that a call site is named by.
const FRAMES: usize = 6;
/// Reasons whose sizes are of interest: those that a shootdown has.
const SIZED: [FlushReason; 3] =
    [FlushReason::LocalMmShootdown, FlushReason::RemoteShootdown, FlushReason::LocalShootdown];

/// Everything so far, and what is needed to show it.
pub(super) struct Observed {
    pub(super) total: Summary,
    tsc_mhz: f64,
    missing: Vec<&'static str>,
}

impl Observed {
    pub(super) fn new(tsc_mhz: f64, missing: Vec<&'static str>) -> Self {
        Self { total: Summary::default(), tsc_mhz, missing }
    }

    /// All tables, each with `most` rows at most; those without a row are left out.
    pub(super) fn text(&self, summary: &Summary, names: &Names, most: usize) -> String {
        let causes = summary.causes();
        let causes = causes.iter().map(|(cause, count)| (cause.label().to_owned(), *count));
        let mut tables =
            vec![reasons(summary), programs(summary, most), counts("cause of own flushes", causes, summary, most)];
        tables.extend(SIZED.into_iter().filter(|reason| summary.flushes(*reason) > 0).map(|reason| {
            format!("{}:\n{}", reason.label(), sizes(&summary.sizes(reason).rows(), self.tsc_mhz, most))
        }));
        tables.push(cpus(summary, most));
        tables.push(counts("call site", call_sites(summary, names).into_iter(), summary, most));
        tables.retain(|table| !table.is_empty());
        tables.join("\n")
    }

    /// What the figures do not say by themselves.
    pub(super) fn notes(&self) -> String {
        let mut notes = match self.total.floor_ns() {
            Some(floor_ns) => {
                format!("- times include the two tracepoints around each flush: {floor_ns} ns at least\n")
            }
            None => "- no time of the tracepoints themselves could be taken\n".to_owned(),
        };
        notes += "- timed are flushes in a call across CPUs (csd:csd_function_entry and exit)\n";
        notes += "- times include walking the stack of each flush\n";
        if !self.missing.is_empty() {
            notes += &format!("- not in this kernel, so not counted: {}\n", self.missing.join(", "));
        }
        notes
    }
}

/// Events a second.
pub(super) fn rate(count: u64, summary: &Summary) -> f64 {
    count as f64 * 1e9 / summary.length_ns().max(1) as f64
}

/// The same for a cell: of less than this a rate would say nothing of a second.
fn rate_cell(count: u64, summary: &Summary) -> String {
    if summary.length_ns() < RATE_LEAST_NS { number::NONE.to_owned() } else { format!("{:.0}", rate(count, summary)) }
}

fn reasons(summary: &Summary) -> String {
    let row = |reason: FlushReason| {
        let count = summary.flushes(reason);
        let nothing = summary.sizes(reason).of(FlushSize::Pages(0));
        vec![
            reason.label().to_owned(),
            rate_cell(count, summary),
            count.to_string(),
            nothing.to_string(),
            summary.sizes(reason).of(FlushSize::All).to_string(),
        ]
    };
    grid(&["reason", "a second", "flushes", "nothing to do", "everything"], &FlushReason::ALL.map(row))
}

fn programs(summary: &Summary, most: usize) -> String {
    let row = |row: &ProgramRow| {
        let per_second = rate_cell(row.total(), summary);
        vec![row.comm.clone(), row.processes.to_string(), per_second, row.total().to_string()]
    };
    let rows: Vec<_> = summary.programs().iter().take(most).map(row).collect();
    if rows.is_empty() { String::new() } else { grid(&["name", "processes", "a second", "flushes"], &rows) }
}

/// The columns of the published table of Linux flush sizes, and the shortest time.
fn sizes(rows: &[SizeRow], tsc_mhz: f64, most: usize) -> String {
    let mut shown: Vec<_> = rows.iter().collect();
    if shown.len() > most {
        shown.sort_by_key(|row| std::cmp::Reverse(row.samples));
        shown.truncate(most);
        shown.sort_by_key(|row| row.size);
    }
    let cell = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
    let row = |row: &SizeRow| {
        let pages = match row.size {
            FlushSize::Pages(pages) => pages.to_string(),
            FlushSize::All => "all".to_owned(),
        };
        vec![
            pages,
            format!("{:.2}", row.percent),
            format!("{:.2}", row.cumulative_percent),
            cell(row.mean_cycles(tsc_mhz)),
            cell(row.cycles_per_page(tsc_mhz)),
            row.samples.to_string(),
            row.timed.to_string(),
            cell(row.min_ns.map(|ns| ns as f64 * tsc_mhz / 1e3)),
        ]
    };
    let rows: Vec<_> = shown.into_iter().map(row).collect();
    grid(&["pages", "%", "cum. %", "cycles", "cyc/page", "samples", "timed", "min"], &rows)
}

fn counts(title: &str, rows: impl Iterator<Item = (String, u64)>, summary: &Summary, most: usize) -> String {
    let row = |(name, count): (String, u64)| vec![name, rate_cell(count, summary), count.to_string()];
    let rows: Vec<_> = rows.take(most).map(row).collect();
    if rows.is_empty() { String::new() } else { grid(&[title, "a second", "flushes"], &rows) }
}

/// The CPUs that are interrupted most. Of an interrupt to several at once the kernel does not record to which.
fn cpus(summary: &Summary, most: usize) -> String {
    let to_many = summary.ipis_to_many();
    let mut shown: Vec<_> = summary.cpus().iter().enumerate().collect();
    shown.sort_by_key(|(_, row)| std::cmp::Reverse(row.interrupts));
    shown.truncate(most.saturating_sub(usize::from(to_many > 0)));
    shown.sort_by_key(|(cpu, _)| *cpu);
    let row = |(cpu, row): (usize, &CpuRow)| {
        let counts = [row.interrupts, row.ipis_sent_to, row.remote_flushes];
        let cells = counts.into_iter().map(|count| rate_cell(count, summary));
        [cpu.to_string()].into_iter().chain(cells).collect()
    };
    let mut rows: Vec<Vec<_>> = shown.into_iter().map(row).collect();
    if to_many > 0 {
        rows.push(vec!["several".to_owned(), String::new(), rate_cell(to_many, summary), String::new()]);
    }
    if rows.is_empty() {
        return String::new();
    }
    grid(&["CPU", "call interrupts a second", "sent to it", "flushes for others"], &rows)
}

/// Flushes by the functions that led to them, the most frequent first.
pub(super) fn call_sites(summary: &Summary, names: &Names) -> Vec<(String, u64)> {
    let mut sites: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, count) in summary.stacks() {
        let frames = names.stack(stack).iter().take(FRAMES);
        *sites.entry(frames.map(|code| names.code(*code)).collect::<Vec<_>>().join(" < ")).or_default() += count;
    }
    let mut sites: Vec<_> = sites.into_iter().collect();
    sites.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    sites
}

#[cfg(test)]
mod tests {
    use tlbkit_trace::{Code, Event, EventKind};

    use super::*;

    #[test]
    fn interrupts_to_several_cpus_have_a_row_of_their_own() {
        let names = Names::default();
        let event = |time_ns, kind| Event { time_ns, cpu: 0, pid: 7, tid: 7, comm: Names::UNKNOWN, stack: None, kind };
        let (callsite, callback) = (Code::address(1), Code::address(2));
        let mut summary = Summary::default();
        for (second, cpu) in [(0, 1), (1, 1), (1, 2)] {
            summary.add(&event(second * 1_000_000_000, EventKind::IpiSend { cpu, callsite, callback }), &names);
        }
        let rows = |summary: &Summary, most| -> Vec<String> {
            let words = |line: &str| line.replace('|', " ").split_whitespace().collect::<Vec<_>>().join(" ");
            cpus(summary, most).lines().map(words).filter(|line| line.contains(char::is_numeric)).collect()
        };
        assert_eq!(rows(&summary, 3), ["0 0 0 0", "1 0 2 0", "2 0 1 0"]);
        summary.add(&event(1_000_000_000, EventKind::IpiSendMask { targets: 5, callsite, callback }), &names);
        assert_eq!(rows(&summary, 3), ["0 0 0 0", "1 0 2 0", "several 5"]);
    }
}
