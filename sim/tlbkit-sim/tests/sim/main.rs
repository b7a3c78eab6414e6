//! Runs of the simulated machine, each watched from outside: one program, so that the simulator is linked once.

mod accounts;
mod commands;
mod counters;
mod ends;
mod glibc;
mod overlap;
mod placement;
mod truth;
mod whole_runs;
