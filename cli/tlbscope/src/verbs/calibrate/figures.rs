//! What a person is shown of a survey: each figure with its spread, the conclusions, and which of them are doubtful.

use serde_json::{Value, json};
use tlbkit_host::collateral::Collateral;
use tlbkit_host::collateral::Fracturing;
use tlbkit_host::partner::Company;
use tlbkit_host::primitives::Primitives;
use tlbkit_host::revocation::{Call, Revocation};
use tlbkit_host::ring::Rings;
use tlbkit_host::translation::Translation;
use tlbkit_host::{Part, Sample, Survey};

/// One measured time.
pub(super) struct Figure {
    name: String,
    sample: Sample,
    cycles: f64,
}

impl Figure {
    pub(super) fn json_row(&self) -> Value {
        let Sample { low, median, high, repetitions } = self.sample;
        json!({
            "figure": self.name, "unit": "ns", "value": median, "low": low, "high": high, "repetitions": repetitions,
            "cycles": self.cycles, "noisy": self.sample.is_noisy(),
        })
    }

    pub(super) fn text_row(&self) -> Vec<String> {
        let spread = spread(&self.sample);
        let remark = if self.sample.is_noisy() { "too noisy" } else { "" };
        let (time, cycles) = (format!("{:.2}", self.sample.median), format!("{:.1}", self.cycles));
        vec![self.name.clone(), time, spread, cycles, remark.into()]
    }
}

/// Of the median; none where the median is zero, as two loads that cost the same leave nothing between them.
pub(super) fn spread(sample: &Sample) -> String {
    let spread = sample.spread();
    if spread.is_finite() { format!("{:.0} %", 100.0 * spread) } else { "-".to_owned() }
}

/// Everything with a time.
pub(super) fn all(survey: &Survey) -> Vec<Figure> {
    let named = loads(&survey.translation).into_iter();
    let named = named.chain(revocation(&survey.revocation)).chain(rings(&survey.rings));
    single(survey).into_iter().chain(figures(survey.host.tsc_mhz, named)).collect()
}

/// Those of the parts that were measured before somebody ended the survey, on a host whose clock has `tsc_mhz`.
pub(super) fn of_parts(parts: &[Part], tsc_mhz: f64) -> Vec<Figure> {
    let named = parts.iter().flat_map(|part| match part {
        Part::Primitives(costs) => primitives(costs),
        Part::Translation(costs) => [translation(costs), loads(costs)].concat(),
        Part::Revocation(costs) => [remote(costs).into_iter().collect(), revocation(costs)].concat(),
        Part::Collateral(costs) => collateral(costs),
        Part::Rings(costs) => rings(costs),
    });
    figures(tsc_mhz, named)
}

/// What depends on no number of pages or processes.
pub(super) fn single(survey: &Survey) -> Vec<Figure> {
    let named = primitives(&survey.primitives).into_iter().chain(translation(&survey.translation));
    let named = named.chain(remote(&survey.revocation)).chain(collateral(&survey.collateral));
    figures(survey.host.tsc_mhz, named)
}

fn figures(tsc_mhz: f64, named: impl Iterator<Item = Named>) -> Vec<Figure> {
    let cycles = |sample: &Sample| sample.median * tsc_mhz / 1e3;
    named.map(|(name, sample)| Figure { name, cycles: cycles(&sample), sample }).collect()
}

type Named = (String, Sample);

fn primitives(costs: &Primitives) -> Vec<Named> {
    let always = [
        ("system call", costs.syscall),
        ("fault, page of zeros", costs.read_fault),
        ("fault, new page", costs.write_fault),
        ("fault, new page alone", costs.lone_fault),
        ("page marked by MADV_FREE", costs.lazy_free_page),
        ("store to a marked page", costs.lazy_free_store),
        ("copying a page", costs.copy_page),
        ("locked addition", costs.locked_op),
        ("full fence", costs.full_fence),
        ("pause", costs.pause),
    ];
    let transfer = costs.line_transfer.map(|sample| ("line from another CPU", sample));
    let huge = costs.huge_fault.map(|sample| ("fault, new 2 MiB", sample));
    always.into_iter().chain(huge).chain(transfer).map(|(name, sample)| (name.to_owned(), sample)).collect()
}

fn translation(translation: &Translation) -> Vec<Named> {
    let derived = [
        ("second-level hit", translation.stlb_hit),
        ("second-level hit, overlapped", translation.stlb_hit_overlapped),
        ("walk, near tables", translation.walk_warm),
        ("walk, near tables, overlapped", translation.walk_overlapped),
        ("walk, far tables", translation.walk_cold),
    ];
    let stride = |&(count, sample): &(usize, Sample)| (format!("load, {count} pages of 2M"), sample);
    let derived = derived.into_iter().map(|(name, sample)| (name.to_owned(), sample));
    derived.chain(translation.large_strides.iter().map(stride)).collect()
}

fn loads(translation: &Translation) -> Vec<Named> {
    let mut named = Vec::new();
    for point in &translation.curve {
        named.push((format!("load, {} pages of 4K", point.pages), point.small));
        named.extend(point.large.map(|sample| (format!("load, {} pages, backed by 2M", point.pages), sample)));
        named.push((format!("load, {} lines side by side", point.pages), point.dense));
    }
    named
}

/// What a call is called.
pub(super) fn call_word(call: Call) -> &'static str {
    match call {
        Call::Munmap => "munmap",
        Call::Madvise => "madvise",
        Call::Mprotect => "mprotect",
    }
}

fn remote(revocation: &Revocation) -> Option<Named> {
    revocation.remote().map(|sample| ("telling a running thread".to_owned(), sample))
}

fn revocation(revocation: &Revocation) -> Vec<Named> {
    let mut named = Vec::new();
    for row in &revocation.rows {
        let cases =
            [(Company::Alone, Some(row.alone)), (Company::Asleep, row.asleep), (Company::Spinning, row.spinning)];
        for (company, sample) in cases {
            let name = format!("{}, {} pages, {}", call_word(row.call), row.pages, company_word(company));
            named.extend(sample.map(|sample| (name, sample)));
        }
    }
    named
}

fn company_word(company: Company) -> &'static str {
    match company {
        Company::Alone => "alone",
        Company::Asleep => "thread asleep",
        Company::Spinning => "thread running",
    }
}

fn collateral(collateral: &Collateral) -> Vec<Named> {
    let cases = [("nothing", collateral.after_none), ("1 page", collateral.after_one), ("all", collateral.after_all)];
    cases.map(|(what, sample)| (format!("512 warm pages after a flush of {what}"), sample)).into()
}

fn rings(rings: &Rings) -> Vec<Named> {
    let row = |row: &tlbkit_host::ring::RingCost| {
        let name = |pages| format!("hop, {} processes, {pages} pages", row.processes);
        [(name(0), row.idle), (name(256), row.few_pages), (name(512), row.many_pages)]
    };
    rings.rows.iter().flat_map(row).collect()
}

/// Something that follows from the times.
pub(super) struct Conclusion {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) remark: String,
}

/// All of it, doubts included.
pub(super) fn findings(survey: &Survey) -> Vec<Conclusion> {
    let entries = |count: Option<usize>| count.map_or("no step seen".to_owned(), |count| count.to_string());
    let finding = |name, value, remark: &str| Conclusion { name, value, remark: remark.to_owned() };
    let translation = &survey.translation;
    vec![
        finding("first-level entries", entries(translation.l1_entries), "the largest chase that misses nothing"),
        finding("second-level entries", entries(translation.stlb_entries), "the largest chase that walks nothing"),
        fracturing(survey),
        ceiling(survey),
        tags(survey),
        company(survey),
        hypervisor(survey),
        noise(survey),
    ]
}

fn fracturing(survey: &Survey) -> Conclusion {
    let (value, remark) = match survey.collateral.fracturing() {
        Fracturing::On => ("on", "the flush of one page slows other pages as much as a flush of everything"),
        Fracturing::Off => ("off", "the flush of one page leaves other pages as fast as they were"),
        Fracturing::Unclear => ("unclear", "a flush of everything hardly shows, or the times lie between both cases"),
    };
    Conclusion { name: "fracturing", value: value.into(), remark: remark.into() }
}

fn ceiling(survey: &Survey) -> Conclusion {
    let (value, remark) = match &survey.revocation.ceiling {
        Some(step) => (
            step.last.to_string(),
            format!(
                "mprotect grows by {:.0} ns a page up to here, drops by {:.0} ns and grows by {:.0} ns a page",
                step.slope_before, step.drop, step.slope_after
            ),
        ),
        None => {
            ("no step seen".into(), "page by page and everything at once cost the same, or the host is noisy".into())
        }
    };
    Conclusion { name: "ceiling in pages", value, remark }
}

fn tags(survey: &Survey) -> Conclusion {
    let (value, remark) = match survey.tags() {
        Some(tags) => (tags.to_string(), "processes in a ring that keep their translations; Linux has six tags a CPU"),
        None => ("no limit seen".into(), "rings of up to eight processes pay the same for a page"),
    };
    Conclusion { name: "address-space tags", value, remark: remark.into() }
}

fn company(survey: &Survey) -> Conclusion {
    let (value, remark) = match survey.revocation.remote() {
        Some(_) => ("measured", "with a thread asleep and one running on another CPU"),
        None => ("not measured", "this process may use one CPU only, so interrupts cost what they do elsewhere"),
    };
    Conclusion { name: "other CPUs", value: value.into(), remark: remark.into() }
}

fn hypervisor(survey: &Survey) -> Conclusion {
    let (value, remark) = if survey.host.is_virtual {
        ("virtual", "walks are nested and interrupts pass the host below: the file holds for guests of this host only")
    } else {
        ("bare metal", "no hypervisor shows itself")
    };
    Conclusion { name: "host", value: value.into(), remark: remark.into() }
}

fn noise(survey: &Survey) -> Conclusion {
    let disturbance = &survey.disturbance;
    let value = format!("{:.1} % others, {:.1} % stolen", disturbance.others_percent, disturbance.stolen_percent);
    let noisy = all(survey).iter().filter(|figure| figure.sample.is_noisy()).count();
    let remark = if disturbance.is_too_much() {
        format!("too much for figures to mean anything, {noisy} of them scatter widely: measure again when it is quiet")
    } else {
        format!("quiet enough; {noisy} figures scatter widely and are priors in the file")
    };
    Conclusion { name: "CPU time meanwhile", value, remark }
}
