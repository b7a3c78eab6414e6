//! What the kernel says about the machine: CPU, clock, topology, and whether there is a host below it.

use std::fs;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::sys;

/// The host as its own kernel describes it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Host {
    /// The name of this node.
    pub name: String,
    /// The CPU's own name.
    pub cpu_model: String,
    /// The vendor of the CPU.
    pub vendor: String,
    /// The kernel's release.
    pub kernel: String,
    /// Rate of the time-stamp counter, in which machine files count cycles.
    pub tsc_mhz: f64,
    /// Logical CPUs that are on.
    pub cpus: usize,
    /// Sockets.
    pub sockets: usize,
    /// Logical CPUs of one core.
    pub smt: usize,
    /// A hypervisor runs below this kernel.
    pub is_virtual: bool,
    /// The CPU has process-context identifiers.
    pub has_pcid: bool,
    /// The CPU has INVPCID.
    pub has_invpcid: bool,
    /// The CPU has global pages.
    pub has_pge: bool,
    /// The kernel isolates its page tables from the user's.
    pub is_isolated: bool,
}

/// Where to measure: on one CPU, with a partner on another if there is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeasuringPlace {
    /// All CPUs that this process may use.
    pub allowed: Vec<usize>,
    /// The CPU that measures.
    pub cpu: usize,
    /// The CPU of the partner; on another core where that is possible.
    pub partner: Option<usize>,
}

impl Host {
    /// Asks the kernel.
    ///
    /// # Errors
    /// If `/proc` lacks what every x86-64 kernel shows.
    pub fn ask() -> Result<Self> {
        let path = "/proc/cpuinfo";
        let info = fs::read_to_string(path).map_err(Error::kernel("reading /proc/cpuinfo"))?;
        let field = |name, wanted| cpuinfo_field(&info, name).ok_or(Error::Missing { path, wanted });
        let flags = field("flags", "the line flags")?;
        let has = |flag: &str| flags.split_whitespace().any(|one| one == flag);
        // The kernel computes it from the rate of the time-stamp counter, twice which it is.
        let bogomips: f64 =
            field("bogomips", "the line bogomips")?.parse().map_err(|_| Error::Missing { path, wanted: "a rate" })?;
        let uname = rustix::system::uname();
        let cpus = count_cpus(&info);
        let siblings: usize = cpuinfo_field(&info, "siblings").and_then(|text| text.parse().ok()).unwrap_or(cpus);
        let cores: usize = cpuinfo_field(&info, "cpu cores").and_then(|text| text.parse().ok()).unwrap_or(siblings);
        Ok(Self {
            name: uname.nodename().to_string_lossy().into_owned(),
            cpu_model: field("model name", "the line model name")?.to_owned(),
            vendor: field("vendor_id", "the line vendor_id")?.to_owned(),
            kernel: uname.release().to_string_lossy().into_owned(),
            tsc_mhz: bogomips / 2.0,
            cpus,
            sockets: distinct(&info, "physical id").max(1),
            smt: (siblings / cores.max(1)).max(1),
            is_virtual: has("hypervisor"),
            has_pcid: has("pcid"),
            has_invpcid: has("invpcid"),
            has_pge: has("pge"),
            is_isolated: has("pti"),
        })
    }
}

impl MeasuringPlace {
    /// The first CPU that this process may use, and another.
    ///
    /// # Errors
    /// If the kernel does not tell which those are.
    pub fn choose() -> Result<Self> {
        let allowed = sys::allowed_cpus()?;
        let &cpu = allowed.first().ok_or(Error::Missing { path: "sched_getaffinity", wanted: "a CPU" })?;
        let siblings = sibling_list(cpu);
        let others = || allowed.iter().copied().filter(|&other| other != cpu);
        let partner = others().find(|other| !siblings.contains(other)).or_else(|| others().next());
        Ok(Self { cpu, partner, allowed })
    }
}

/// CPUs that share the core of `cpu`; none if the kernel does not say.
fn sibling_list(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    fs::read_to_string(path).map(|text| cpu_list(&text)).unwrap_or_default()
}

/// Reads `0-2,5`.
fn cpu_list(text: &str) -> Vec<usize> {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let span = |part: &str| match part.split_once('-') {
        Some((first, last)) => Some(number(first)?..=number(last)?),
        None => number(part).map(|one| one..=one),
    };
    text.split(',').filter_map(span).flatten().collect()
}

fn cpuinfo_values<'a>(info: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .filter(move |(key, _)| key.trim() == name)
        .map(|(_, v)| v.trim())
}

fn cpuinfo_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo_values(info, name).next()
}

fn count_cpus(info: &str) -> usize {
    cpuinfo_values(info, "processor").count()
}

fn distinct(info: &str, name: &str) -> usize {
    let mut values: Vec<_> = cpuinfo_values(info, name).collect();
    values.sort_unstable();
    values.dedup();
    values.len()
}

#[cfg(test)]
mod tests {
    use super::{Host, MeasuringPlace, count_cpus, cpu_list, cpuinfo_field, distinct};

    const INFO: &str =
        "processor\t: 0\nphysical id\t: 0\nmodel name\t: A CPU: big\n\nprocessor\t: 1\nphysical id\t: 1\n";

    #[test]
    fn cpuinfo_is_read_by_its_keys() {
        assert_eq!((count_cpus(INFO), distinct(INFO, "physical id")), (2, 2));
        assert_eq!(cpuinfo_field(INFO, "model name"), Some("A CPU: big"));
        assert_eq!(cpuinfo_field(INFO, "flags"), None);
    }

    #[test]
    fn lists_of_cpus_have_ranges() {
        assert_eq!(cpu_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(cpu_list("\n"), [0; 0]);
    }

    #[test]
    fn this_host_can_be_asked() {
        let host = Host::ask().unwrap();
        assert!(host.tsc_mhz > 100.0 && host.cpus >= 1, "{host:?}");
        assert!(host.cpus.is_multiple_of(host.sockets * host.smt), "{host:?}");
        let place = MeasuringPlace::choose().unwrap();
        assert!(place.allowed.contains(&place.cpu) && place.partner != Some(place.cpu), "{place:?}");
    }
}
