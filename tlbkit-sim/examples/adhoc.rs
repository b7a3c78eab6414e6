//! Ad hoc.
use tlbkit::Policy;
use tlbkit_sim::Run;
use tlbkit_sim::machine::Machine;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let machine = Machine::builtin(&a[2]).unwrap();
    let names: Vec<&str> = if a[1] == "all" { tlbkit_workloads::names().collect() } else { vec![&a[1]] };
    for name in names {
        for policy in a[3].split(',') {
            let mut w = tlbkit_workloads::by_name(name).unwrap();
            for set in &a[6..] { w.set(set).unwrap(); }
            let run = Run { cpus: a[4].parse().unwrap(), limit_cycles: Some(a[5].parse().unwrap()), ..Run::new(&machine, Policy::preset(policy).expect("preset"), w) };
            let t = std::time::Instant::now();
            match run.execute() {
                Ok(o) => println!("{name} {policy} score/s {:.0} elapsed {} host {:?} touches/s {:.1}M ipis {:?} needed {:?} walks {} kernel {:?} left {} {}", o.score_per_second, o.elapsed_cycles, t.elapsed(), o.tlb.accesses as f64 / t.elapsed().as_secs_f64()/1e6, o.ipis, o.flushes.interrupts, o.tlb.walks, o.kernel, o.tables_left, o.data_left),
                Err(e) => println!("{name} {policy} ERROR {e}"),
            }
        }
    }
}
