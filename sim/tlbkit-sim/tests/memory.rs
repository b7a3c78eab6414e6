//! CPUs of one socket wait for each other where memory carries too little for the pages that they fill.

use tlbkit::Policy;
use tlbkit_sim::Run;
use tlbkit_sim::machine::Machine;

const DESKTOP: &str = include_str!("../../machines/haswell-4770.toml");

/// Simulated cycles until four processes, each on a core of its own, have gone through 512 pages each, which all have
/// to be zeroed, with memory that carries so much behind such a cache.
fn cycles(gb_per_s: &str, last_level_kib: &str) -> u64 {
    let text = DESKTOP
        .replacen("socket_gb_per_s = { value = 25.6,", &format!("socket_gb_per_s = {{ value = {gb_per_s},"), 1)
        .replacen("band = [12.8, 25.6]", "band = [0.1, 10000]", 1)
        .replacen("last_level_kib = { value = 8192,", &format!("last_level_kib = {{ value = {last_level_kib},"), 1);
    let machine = Machine::parse("m.toml", &text).unwrap();
    let mut workload = tlbkit_workloads::by_name("tlb-flush2").unwrap();
    for setting in ["threads=4", "processes=1", "rounds=2"] {
        workload.set(setting).unwrap();
    }
    Run { cpus: 8, ..Run::new(&machine, Policy::preset("linux-6.18").unwrap(), workload) }
        .execute()
        .unwrap()
        .elapsed_cycles
}

#[test]
fn pages_that_no_cache_has_take_as_long_as_memory_takes_to_carry_them() {
    // A gigabyte a second and 3,700 cycles a microsecond.
    let carried = 4 * 512 * 4096 * 37 / 10;
    let (much, little) = (cycles("10000", "0"), cycles("1", "0"));
    assert!(much < carried / 4, "{much} for {carried}");
    assert!(carried < little && little < carried + much, "{little} for {carried} and {much}");
}

#[test]
fn pages_that_the_cache_has_wait_for_nobody() {
    let (much, little) = (cycles("10000", "8192"), cycles("1", "8192"));
    assert!(little < much + much / 2, "{little} for {much}");
}
