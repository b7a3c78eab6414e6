//! One task: its program, its two stacks, its CPU, and the task that waits for it.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use tlbkit_workloads::calls::TaskRandom;

use crate::command_line;
use crate::process_table::Process;
use crate::user::Start;

/// Most tasks at a time.
pub(super) const MOST_TASKS: usize = 512;
/// Bytes of a kernel stack: a sweep of 512 frames is moved across it several times, and so is an address space.
const KERNEL_STACK_BYTES: usize = 80 << 10;
/// Bytes of a program's stack.
const USER_STACK_BYTES: usize = 16 << 10;

/// Index of a task's slot.
pub(crate) type TaskIndex = usize;

/// What a task is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TaskState {
    /// The slot is unused.
    Free,
    /// In a run queue.
    Queued,
    /// On a CPU.
    Running,
    /// Waiting for a channel or for another task.
    Blocked,
    /// Leaving for the CPU that it is pinned to.
    Moving,
    /// Its program has returned; no task has joined it yet.
    Ended,
}

/// One task.
pub(super) struct Task {
    pub(super) state: TaskState,
    process: Option<&'static Process>,
    /// Where it runs or ran last.
    pub(super) cpu: usize,
    pub(super) pinned: Option<usize>,
    pub(super) joiner: Option<TaskIndex>,
    /// The task behind it in its queue.
    pub(super) next: Option<TaskIndex>,
    /// Its kernel stack pointer while it does not run.
    pub(super) stack: u64,
}

#[repr(C, align(4096))]
struct Stacks<const BYTES: usize>(UnsafeCell<[MaybeUninit<[u8; BYTES]>; MOST_TASKS]>);

// SAFETY: each task uses its own; a new one is written before it runs.
unsafe impl<const BYTES: usize> Sync for Stacks<BYTES> {}

static KERNEL_STACKS: Stacks<KERNEL_STACK_BYTES> =
    Stacks(UnsafeCell::new([const { MaybeUninit::uninit() }; MOST_TASKS]));
#[unsafe(link_section = ".bss.user.stacks")]
static USER_STACKS: Stacks<USER_STACK_BYTES> = Stacks(UnsafeCell::new([const { MaybeUninit::uninit() }; MOST_TASKS]));

impl<const BYTES: usize> Stacks<BYTES> {
    fn top(&self, index: TaskIndex) -> u64 {
        self.0.get() as u64 + (index as u64 + 1) * BYTES as u64
    }
}

/// Where a task's traps and system calls begin to push.
pub(super) fn kernel_stack_top(index: TaskIndex) -> u64 {
    KERNEL_STACKS.top(index)
}

/// Where its program's start lies, and below it its stack.
fn user_start(index: TaskIndex) -> u64 {
    (USER_STACKS.top(index) - size_of::<Start>() as u64) & !15
}

impl Task {
    pub(super) const fn new() -> Self {
        let (process, pinned, joiner, next) = (None, None, None, None);
        Self { state: TaskState::Free, process, cpu: 0, pinned, joiner, next, stack: 0 }
    }

    pub(super) fn process(&self) -> &'static Process {
        self.process.expect("a task has a process")
    }

    /// Makes the slot a task that will begin at `begin` on its kernel stack; `number` counts all tasks.
    pub(super) fn prepare(
        &mut self,
        index: TaskIndex,
        program: tlbkit_workloads::Task,
        process: &'static Process,
        number: u64,
        begin: unsafe extern "C" fn(),
    ) {
        *self = Self { process: Some(process), ..Self::new() };
        let start = Start { program, random: TaskRandom::new(command_line::get().seed, number) };
        // Six registers, rbx the last but one, the address to return to, and one word for alignment.
        let frame = [0, 0, 0, 0, user_start(index), 0, begin as *const () as u64, 0];
        self.stack = kernel_stack_top(index) - size_of_val(&frame) as u64;
        // SAFETY: stacks of a slot that no task uses.
        unsafe {
            (self.stack as *mut [u64; 8]).write(frame);
            (user_start(index) as *mut Start).write(start);
        }
    }
}
