//! A bare-metal SMP kernel that runs tlbkit on real instructions, with the workloads of `tlbkit-workloads`, unchanged,
//! in ring 3.
//!
//! | folder | what |
//! |---|---|
//! | `boot` | from the loader to Rust, on every CPU; the command line |
//! | `arch` | segments, traps, the APIC, the serial port, the end |
//! | `memory` | frames, the image's and the direct map's tables |
//! | `machine` | the protocol's statics; its door to this machine, which counts and can break things on purpose |
//! | `sched` | tasks, queues, switching, idling |
//! | `calls` | what programs ask of the kernel |
//! | `user` | what runs in ring 3: [`tlbkit_workloads::Os`] as system calls |
//! | `rules` | what the CPU itself must obey |
//! | `monitor` | a software TLB that all of the above runs on, in ring 3, if asked for |
//! | `bench` | what instructions and interrupts cost here |
//! | `report` | one JSON line a result |
//!
//! The command line picks a [`mode`](boot::options::Mode). Locks are taken with interrupts off and held across nothing
//! that waits for another CPU; the protocol's flushes run with interrupts on and none of them held.
#![no_std]
#![no_main]

mod arch;
mod bench;
mod boot;
mod calls;
mod machine;
mod memory;
mod monitor;
mod process;
mod report;
mod rules;
mod run;
mod sched;
mod user;

/// Most CPUs: one word of bits.
pub(crate) const MAX_CPUS: usize = 64;

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    report::panicked(info)
}
