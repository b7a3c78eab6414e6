//! The protocol on small machines that never evict: each invariant by name, random programs, real threads.

mod machine;

mod batch;
mod bring_up;
mod broadcast;
mod cpu_set;
mod early;
mod events;
mod foreign;
mod gather;
mod generations;
mod holding;
mod interrupts;
mod isolation;
mod issue;
mod kernel_range;
mod late;
mod lazy;
mod many;
mod misuse;
mod polling;
mod random;
mod retire;
mod sharers;
mod spared;
#[cfg(feature = "history")]
mod stats;
mod stress;
mod tags;
mod this_cpu;
mod threads;
mod waiting;
