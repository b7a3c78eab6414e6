//! What happens when programs and files take more memory than there is.

use tlbkit_pmap::{Memory, Purpose};
use tlbkit_workloads::calls;
use tlbkit_workloads::os::{Backing, Protection};

use super::super::Kernel;
use super::act_first;
use super::actors::{Kept, put};
use crate::kernel::{FileReads, KernelSettings};
use crate::mmu::{Access, Overlap};
use crate::run::Run;
use crate::run::stage::{Stage, rehearse_with};

const FILE: u32 = 7;

/// Takes every frame that is left for data.
fn take_all(kernel: &Kernel) {
    for shift in [21, 12] {
        while kernel.phys.alloc(shift, Purpose::Data).is_some() {}
    }
}

/// Goes on until the run has failed, and checks that the reason names the limit.
fn fails(stage: &mut Stage, kernel: &'static Kernel) {
    stage.turn(kernel, || kernel.failure().is_some());
    let error = kernel.failure().expect("there is no frame").to_string();
    assert!(error.contains("no frame left") && error.contains("64 GiB"), "{error}");
}

#[test]
fn a_file_that_memory_has_no_room_for_ends_the_run_whichever_way_it_is_read() {
    for file_reads in [FileReads::DirectMap, FileReads::Windows] {
        let body = |stage: &mut Stage, kernel: &'static Kernel| {
            stage.boot(kernel).unwrap();
            act_first(stage, kernel, 0, move || {
                kernel.read_file(FILE, 1);
                take_all(kernel);
                // What is in memory can be read as before.
                kernel.read_file(FILE, 1);
                assert!(kernel.failure().is_none());
                kernel.read_file(FILE, 2);
            });
            fails(stage, kernel);
        };
        let settings = KernelSettings { file_reads, ..KernelSettings::default() };
        rehearse_with(1, |run| Run { kernel: settings, ..run }, body);
    }
}

#[test]
fn a_fault_that_memory_has_no_room_for_ends_the_run_whatever_is_mapped() {
    for backing in [Backing::FilePrivate, Backing::FileShared, Backing::AnonPrivate] {
        let body = |stage: &mut Stage, kernel: &'static Kernel| {
            stage.boot(kernel).unwrap();
            let process = kernel.new_process();
            put(kernel, process, (0, Kept::Pinned), move |me| {
                let region = calls::region(1, backing, Protection::ReadWrite);
                let va = kernel.machine().with_cpu(0, |cpu| process.vm.map_region(&cpu, region)).unwrap();
                take_all(kernel);
                kernel.touch(me, va, Access::Write, Overlap::Dependent);
            });
            fails(stage, kernel);
        };
        rehearse_with(1, |run| run, body);
    }
}
