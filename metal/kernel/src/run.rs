//! Running one workload: its first task on the first CPU, and the report when no task is left.

use crate::boot::options::Options;
use crate::user::shared;
use crate::{process, report, sched};

/// The first CPU's way into the run.
pub(crate) fn begin(options: &Options) -> ! {
    shared::start(options.limit_cycles, options.cpus, options.compute_percent);
    sched::start((options.first_task)(options.workload), process::new());
    wait_for_work()
}

/// Every CPU's: idle until there is work, and to the end of the run.
pub(crate) fn wait_for_work() -> ! {
    // The first CPU makes the first task after the others are up; until then there is nobody.
    while !sched::is_anybody_left() {
        tlbkit_x86::pause();
    }
    sched::idle();
    report::result(crate::boot::options())
}
