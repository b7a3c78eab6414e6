//! Where the CPU's time went, by samples of it: which of them are of recording itself, and what the others belong to.
//!
//! A sample is an interrupt of a clock. While the kernel has interrupts closed it waits, and is taken at the function
//! that opens them. Some events are recorded with interrupts closed, so at such a function nobody knows whether the
//! sample is of the program or of its recording.

use super::why::Shown;
use crate::names::{Code, Name, Names, StackId};
use rustc_hash::FxHashMap;

/// Samples that belong to something.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Samples {
    /// Those that certainly do.
    pub sure: u64,
    /// Those that do, or are of the recording of an event.
    pub or_recording: u64,
    /// Those that do, or are of the program's own code: taken at the instruction that has just faulted.
    pub or_program: u64,
}

impl Samples {
    /// Adds other samples.
    pub fn add(&mut self, other: &Self) {
        self.sure += other.sure;
        self.or_recording += other.or_recording;
        self.or_program += other.or_program;
    }

    /// How many there are at most.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.sure + self.or_recording + self.or_program
    }
}

/// All samples of one program.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Sampled {
    /// How many there are.
    pub all: u64,
    /// How many of them are of recording.
    pub recording: u64,
    /// How many of them may be of recording.
    pub or_recording: u64,
    /// How many of them are of the program's own code, as far as nothing else may have been meant.
    pub own: u64,
    /// The innermost functions of those in the kernel that belong to no flush, call or fault that was recorded.
    pub elsewhere: FxHashMap<Name, u64>,
}

impl Sampled {
    /// Adds those of another program.
    pub fn add(&mut self, other: &Self) {
        self.all += other.all;
        self.recording += other.recording;
        self.or_recording += other.or_recording;
        self.own += other.own;
        for (&name, count) in &other.elsewhere {
            *self.elsewhere.entry(name).or_default() += count;
        }
    }
}

/// What the kernel's functions on the stack of a sample show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// An event is being recorded.
    Recording,
    /// Something else.
    Kernel {
        /// Whether the sample may have been due while an event was recorded.
        is_unsure: bool,
        work: Work,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// An interrupt is handled, which is none of the thread's work.
    Interrupt,
    /// An address space is taken down.
    Teardown,
    /// What the stack shows, if it shows anything.
    Threads(Option<Shown>),
}

/// The places of the stacks that were met.
#[derive(Default)]
pub(super) struct Places {
    known: FxHashMap<StackId, Place>,
}

impl Places {
    pub(super) fn of(&mut self, stack: StackId, names: &Names) -> Place {
        *self.known.entry(stack).or_insert_with(|| place(names.stack(stack), names))
    }
}

fn place(frames: &[Code], names: &Names) -> Place {
    let is_of = |frame: &Code, starts: &[&str]| {
        let function = frame.name().map(|name| names.text(name));
        function.is_some_and(|function| starts.iter().any(|start| function.starts_with(start)))
    };
    let has = |starts: &[&str]| frames.iter().any(|frame| is_of(frame, starts));
    if has(&RECORDING) {
        return Place::Recording;
    }
    let work = match () {
        () if has(&INTERRUPTS) => Work::Interrupt,
        () if has(&["exit_mmap"]) => Work::Teardown,
        () => Work::Threads(Shown::by(frames, names)),
    };
    Place::Kernel { is_unsure: frames.first().is_some_and(|inner| is_of(inner, &OPENERS)), work }
}

/// How the names of the functions begin that record events, or are on the way of a system call for them alone.
const RECORDING: [&str; 13] = [
    "perf_",
    "__perf_",
    "get_perf_callchain",
    "__traceiter_",
    "trace_event_",
    "syscall_trace_enter",
    "syscall_exit_work",
    "trace_call_bpf",
    "__bpf_",
    "ftrace_",
    "ring_buffer_",
    "irq_work_",
    "asm_sysvec_irq_work",
];

/// How the names of the functions begin by which interrupts come.
const INTERRUPTS: [&str; 4] = ["asm_sysvec_", "asm_common_interrupt", "handle_softirqs", "__do_softirq"];

/// How the names of the functions begin that open interrupts after an event was recorded with interrupts closed: a page
/// fault, a flush on the own CPU, a request to other CPUs (whose handlers, for which this waits, are recorded too), and
/// a switch of threads.
const OPENERS: [&str; 9] = [
    "asm_exc_page_fault",
    "exc_page_fault",
    "do_user_addr_fault",
    "flush_tlb_",
    "native_flush_tlb_",
    "arch_tlbbatch_flush",
    "on_each_cpu_cond_mask",
    "smp_call_function_many_cond",
    "finish_task_switch",
];

#[cfg(test)]
mod tests {
    use super::super::why::Why;
    use super::*;

    #[test]
    fn a_stack_shows_recording_first_and_then_whose_work_it_is() {
        let place = |functions: &str| {
            let mut names = Names::default();
            let frames: Vec<_> = functions.split(' ').map(|text| Code::symbol(names.add(text))).collect();
            place(&frames, &names)
        };
        let recording = "strnlen perf_event_mmap mprotect_fixup do_mprotect_pkey __x64_sys_mprotect do_syscall_64";
        assert_eq!(place(recording), Place::Recording);
        assert_eq!(
            place("exc_page_fault asm_exc_page_fault __get_user_nocheck_8 perf_callchain_user"),
            Place::Recording
        );
        let fault = |is_unsure| Place::Kernel { is_unsure, work: Work::Threads(Some(Shown::Fault(Why::AbsentPage))) };
        assert_eq!(place("clear_page_erms do_anonymous_page exc_page_fault asm_exc_page_fault"), fault(false));
        assert_eq!(place("exc_page_fault asm_exc_page_fault"), fault(true));
        let of = |is_unsure, work| Place::Kernel { is_unsure, work };
        let interrupt = "finish_task_switch.isra.0 schedule irqentry_exit asm_sysvec_apic_timer_interrupt";
        assert_eq!(place(interrupt), of(true, Work::Interrupt));
        assert_eq!(place("unmap_page_range exit_mmap do_exit do_group_exit"), of(false, Work::Teardown));
        assert_eq!(place("ret_from_fork"), of(false, Work::Threads(None)));
    }
}
