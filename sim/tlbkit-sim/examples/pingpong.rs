//! The ping-pong of the PCID measurement: microseconds a round and walks, with and without tags.

use tlbkit::{Policy, Tags};
use tlbkit_machine::Machine;
use tlbkit_sim::Run;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = Machine::builtin("skylake-laptop-kvm")?;
    let mut workload = tlbkit_workloads::by_name("pingpong").ok_or("no such workload")?;
    let tagged = Policy::preset("linux-4.14").ok_or("no such preset")?;
    let untagged = Policy { tags: Tags::Off, ..tagged };
    for pages in ["pages=0", "pages=512"] {
        workload.set(pages).map_err(|error| error.to_string())?;
        workload.set("rounds=2000").map_err(|error| error.to_string())?;
        for (name, policy) in [("pcid", tagged), ("nopcid", untagged)] {
            let outcome = Run { cpus: 1, ..Run::new(&machine, policy, workload) }.execute()?;
            let micros = outcome.elapsed_seconds * 1e6 / outcome.score as f64;
            println!("{pages:10} {name:7} {micros:7.3} us a round, {:8} walks", outcome.tlb.walks);
        }
    }
    Ok(())
}
