//! Running one workload: its first task on the first CPU, and the numbers of the run when no task is left.

use core::fmt::{self, Write};

use tlbkit::{Place, Reason, SIZES, SizeRow};

use crate::arch::exit::Ending;
use crate::arch::serial::Serial;
use crate::command_line::{self, CommandLine};
use crate::counters::{self, Counter};
use crate::machine::protocol;
use crate::user::shared;
use crate::{machine, memory, process, report, sched};

/// The first CPU's way into the run.
pub(crate) fn begin(line: &CommandLine) -> ! {
    shared::start(line.limit_cycles, line.cpus, line.compute_percent);
    sched::start((line.first_task)(line.workload), process::begin());
    wait_for_work()
}

/// What every CPU does: it idles until there is work, and runs tasks until none is left.
pub(crate) fn wait_for_work() -> ! {
    // The first CPU makes the first task after the others are up; until then there is nobody.
    while !sched::is_anybody_left() {
        core::hint::spin_loop();
    }
    sched::idle();
    report::last_line(Ending::Fine, |port| write_result(port, command_line::get()))
}

fn write_result(port: &mut Serial, line: &CommandLine) -> fmt::Result {
    let features = machine::features();
    let (workload, policy, cpus, seed) = (line.workload_name, line.policy_name, line.cpus, line.seed);
    write!(port, r#"{{"kind":"result","workload":"{workload}","policy":"{policy}","cpus":{cpus},"seed":{seed},"#)?;
    write!(port, r#""pcid":{},"invpcid":{},"score":{}"#, features.pcid, features.invpcid, shared::score())?;
    write!(port, r#","cycles":{}"#, shared::elapsed_cycles())?;
    let (tables, data) = memory::frames_used();
    write!(port, r#","tables_left":{tables},"data_left":{data}"#)?;
    for (counter, name) in Counter::ALL {
        write!(port, r#","{name}":{}"#, counters::sum(*counter))?;
    }
    write!(port, r#","reasons":["#)?;
    for (n, reason) in Reason::ALL.into_iter().enumerate() {
        let [local, remote, kernel] =
            [Place::Local, Place::Remote, Place::Kernel].map(|at| protocol::flushes_for(reason, at));
        let comma = if n == 0 { "" } else { "," };
        write!(port, r#"{comma}{{"local":{local},"remote":{remote},"kernel":{kernel}}}"#)?;
    }
    // The histogram of flush sizes, without empty rows; 0 stands for flushes of everything.
    write!(port, r#"],"sizes":["#)?;
    let rows = (0..=SIZES).map(|pages| (pages, protocol::flushes_of(pages))).filter(|(_, row)| row.samples > 0);
    for (n, (pages, SizeRow { samples, cycles })) in rows.enumerate() {
        let comma = if n == 0 { "" } else { "," };
        write!(port, r#"{comma}{{"pages":{pages},"samples":{samples},"cycles":{cycles}}}"#)?;
    }
    write!(port, "]}}")
}
