//! What is measured, boot by boot: single costs and interrupts, the ping-pong, each size of flush by each method,
//! ebizzy.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tlbkit_host::Sample;

use super::counts::KernelRun;
use super::qemu::{Accelerator, Qemu};
use crate::lab::terminal::progress_bar;

/// One timed instruction or interrupt, in cycles.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    pub(super) name: String,
    pub(super) sample: Sample,
}

/// All that was measured.
#[derive(Clone, Debug)]
pub(super) struct Bench {
    /// None of an emulator.
    pub(super) costs: Vec<Cost>,
    /// The boot that timed them: what the guest has, and the interrupts that it took.
    pub(super) timing: KernelRun,
    pub(super) pingpong: Vec<KernelRun>,
    pub(super) flushes: Vec<KernelRun>,
    pub(super) ebizzy: KernelRun,
}

/// Name, and what is set: pages, whether tags are used.
const PINGPONG: &[(&str, &str)] = &[
    ("0 pages, PCID", "pages=0"),
    ("0 pages, no PCID", "pages=0 with=pcid=off"),
    ("512 pages, PCID", "pages=512"),
    ("512 pages, no PCID", "pages=512 with=pcid=off"),
];

/// How the pages of a flush are invalidated. The first three name each page, however many they are.
const METHODS: &[(&str, &str)] = &[
    ("INVLPG", "with=pti=off+ceiling=512"),
    ("isolated, INVPCID", "with=pti=on+user_flush=invpcid+ceiling=512"),
    ("isolated, deferred CR3", "with=pti=on+user_flush=cr3+ceiling=512"),
    ("everything", "with=pti=off+ceiling=0"),
];

/// How often each thing is done.
struct Effort {
    rounds: u32,
    /// Flushes of each size.
    each: u32,
    ebizzy_rounds: u32,
    /// A word of the kernel's command line.
    tags: &'static str,
}

impl Effort {
    /// Counts are the same for every round, so an emulator need not do many. It has no tags either: there the kernel's
    /// monitor stands in for them, a software TLB with the manual's rules.
    const fn on(accelerator: &Accelerator) -> Self {
        match accelerator {
            Accelerator::Hardware => Self { rounds: 20_000, each: 200, ebizzy_rounds: 2000, tags: "" },
            Accelerator::Emulation { .. } => Self { rounds: 40, each: 4, ebizzy_rounds: 20, tags: "monitor=on" },
        }
    }
}

/// Boots for each.
pub(super) fn run(qemu: &Qemu<'_>, policy: &str) -> Result<Bench> {
    let Effort { rounds, each, ebizzy_rounds, tags } = Effort::on(qemu.accelerator);
    let alone = Qemu { cpus: 1, ..*qemu };
    let bar = progress_bar(PINGPONG.len() + METHODS.len() + 2);
    let boot = |qemu: &Qemu<'_>, name: &str, words: &str| {
        bar.set_message(name.to_owned());
        bar.inc(1);
        KernelRun::of(name, qemu, &format!("policy={policy} {words}"))
    };
    let pingpong = |&(name, pages): &(&str, &str)| {
        boot(&alone, name, &format!("workload=pingpong set=rounds={rounds} {tags} set={pages}"))
    };
    let flush_count = each as usize * tlbkit_workloads::FLUSH_SIZES.len();
    let flush = |&(name, words): &(&str, &str)| {
        boot(
            &alone,
            name,
            &format!("workload=flushsizes set=each={each},rounds={flush_count} with=stats=on {tags} {words}"),
        )
    };
    let (costs, timing) = costs(qemu)?;
    let bench = Bench {
        costs,
        timing,
        pingpong: PINGPONG.iter().map(pingpong).collect::<Result<_>>()?,
        flushes: METHODS.iter().map(flush).collect::<Result<_>>()?,
        ebizzy: boot(qemu, "ebizzy", &format!("workload=ebizzy-m set=rounds={ebizzy_rounds},threads={}", qemu.cpus))?,
    };
    bar.finish_and_clear();
    Ok(bench)
}

fn costs(qemu: &Qemu<'_>) -> Result<(Vec<Cost>, KernelRun)> {
    let ended = qemu.boot("mode=bench")?;
    let costs = ended.costs.iter().map(|line| Cost::read(line).with_context(|| format!("the kernel's line {line}")));
    let timing = KernelRun { name: "interrupts".into(), result: ended.result, seconds: ended.seconds };
    Ok((costs.collect::<Result<_>>()?, timing))
}

impl Cost {
    /// From the kernel's line.
    fn read(line: &Value) -> Option<Self> {
        let number = |key: &str| line[key].as_f64();
        let (low, median, high) = (number("low")?, number("median")?, number("high")?);
        let repetitions = line["repetitions"].as_u64()? as usize;
        Some(Self { name: line["name"].as_str()?.to_owned(), sample: Sample { low, median, high, repetitions } })
    }

    fn json_row(&self) -> Value {
        let Sample { low, median, high, repetitions } = self.sample;
        json!({
            "cost": self.name, "unit": "cycles", "value": median, "low": low, "high": high,
            "repetitions": repetitions, "noisy": self.sample.is_noisy(),
        })
    }
}

impl Bench {
    fn runs(&self) -> impl Iterator<Item = &KernelRun> {
        [&self.timing].into_iter().chain(&self.pingpong).chain(&self.flushes).chain([&self.ebizzy])
    }

    /// A row a cost, and a row a boot.
    pub(super) fn json_rows(&self, qemu: &Qemu<'_>) -> Vec<Value> {
        let mut rows: Vec<_> = self.costs.iter().map(Cost::json_row).collect();
        rows.extend(self.runs().map(|run| run.json_row(qemu)));
        rows.push(json!({ "accelerator": qemu.accelerator.word(), "remark": qemu.accelerator.to_string() }));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_read_whole_or_not_at_all() {
        let mut line =
            json!({ "kind": "cost", "name": "invlpg", "low": 1, "median": 2, "high": 3, "repetitions": 301 });
        let row = Cost::read(&line).unwrap().json_row();
        assert_eq!(
            (row["cost"].as_str(), row["value"].as_f64(), row["noisy"].as_bool()),
            (Some("invlpg"), Some(2.0), Some(true))
        );
        line["median"] = Value::Null;
        assert!(Cost::read(&line).is_none());
    }
}
