//! What runs in ring 3: the programs of `tlbkit-workloads`, and [`Os`] as system calls.
//!
//! Loads and stores are real ones. What the kernel need not be asked stands in one page that programs may write.

pub(crate) mod call;
mod program;
pub(crate) mod race;
pub(crate) mod shared;

use tlbkit_workloads::Task;
use tlbkit_workloads::calls::TaskRandom;

use call::{Call, call};
use program::Program;

/// What a program is started with.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Start {
    pub(crate) program: Task,
    pub(crate) random: TaskRandom,
}

/// The first instruction in ring 3.
pub(crate) extern "C" fn main(start: &Start) -> ! {
    let program = Program::new(start.program.workload, start.random);
    if start.program.part.role & race::ROLE == 0 {
        start.program.run(&program);
    } else {
        race::run(start.program, &program);
    }
    call(Call::End, 0, 0, 0);
    unreachable!("a task that has ended goes on")
}
