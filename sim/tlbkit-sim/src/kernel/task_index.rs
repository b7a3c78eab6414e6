//! How the kernel names a task. The locks use it, which are below the tasks that use the locks.

/// A task's index: tasks are counted from 0 as they start.
pub(super) type TaskIndex = u32;
