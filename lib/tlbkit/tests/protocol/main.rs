//! The protocol on small machines that never evict: each invariant by name, random programs, real threads.

mod machine;

mod bring_up;
mod cpu_set;
mod foreign;
mod gather;
mod generations;
mod isolation;
mod kernel_range;
mod late;
mod lazy;
mod many;
mod random;
mod stats;
mod stress;
mod tags;
mod threads;
mod waiting;
