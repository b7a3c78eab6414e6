//! A bare-metal SMP kernel that runs tlbkit on real instructions, with the workloads of `tlbkit-workloads`, unchanged,
//! in ring 3.
//!
//! Layers, lowest first; each uses only what stands above it in this table:
//!
//! | file or folder | what |
//! |---|---|
//! | `layout`, `fault` | the memory layout; the rule that is broken on purpose |
//! | `user` | what runs in ring 3: [`tlbkit_workloads::Os`] as system calls |
//! | `command_line` | what the kernel is booted for, as `key=value` words |
//! | `arch` | segments, gates, the APIC, the serial port, the end |
//! | `counters`, `report` | what is counted; one JSON line a result |
//! | `memory` | frames, the image's and the direct map's tables |
//! | `process_table` | the slots of processes |
//! | `machine` | the protocol's memory and hardware interface, which counts and can break rules on purpose |
//! | `reclaim` | memory that is too small for a file |
//! | `process` | how processes begin and end |
//! | `sched` | tasks, queues, switching, idling |
//! | `calls`, `traps` | system calls; traps and interrupts |
//! | `monitor` | a software TLB that all of the above runs on, in ring 3, if asked for |
//! | `run`, `rules`, `bench` | the three modes: a workload; what the CPU must obey; what instructions cost here |
//! | `boot` | from the loader to Rust, on every CPU |
//!
//! The command line picks a [`BootMode`](command_line::BootMode). Locks are taken with interrupts off and held across
//! nothing that waits for another CPU; the protocol's flushes run with interrupts on and none of them held. `reclaim`
//! alone holds a lock with interrupts on, and across flushes.
#![no_std]
#![no_main]

mod arch;
mod bench;
mod boot;
mod calls;
mod command_line;
mod counters;
mod fault;
mod layout;
mod machine;
mod memory;
mod monitor;
mod process;
mod process_table;
mod reclaim;
mod report;
mod rules;
mod run;
mod sched;
mod traps;
mod user;

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    report::panicked(info)
}
