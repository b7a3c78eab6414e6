//! How a process begins, with an empty address space, and how it ends, when its last thread leaves that space.

use tlbkit::{AddressSpace, Destroyed, Hardware, Isolation};
use tlbkit_pmap::Vm;

use crate::command_line;
use crate::counters::{self, Counter};
use crate::machine::{self, protocol};
use crate::memory::{self, Ram};
use crate::process_table::{self, Process};

/// A process with an empty space.
pub(crate) fn begin() -> &'static Process {
    process_table::take_unreferenced(|process| {
        process.vm().reclaim(&Ram);
        process.free_slot();
    });
    process_table::take(|token, set| {
        let set = &set[..AddressSpace::set_words(command_line::get().cpus as usize)];
        let (tlb, map) = (protocol::tlb(), protocol::kernel_map());
        let vm = Vm::new(tlb, &Ram, map, token, set).expect("memory for another space");
        if tlb.policy().isolation == Isolation::On {
            memory::share_image_with_user_half(vm.space().root());
        }
        vm
    })
}

/// The running thread ends, and with the last thread of a process its space. The CPU enters lazy TLB mode before the
/// thread is subtracted from the count, because a space may be destroyed only when no CPU runs it, and the last thread
/// does not wait for a context switch.
pub(crate) fn leave(process: &'static Process) {
    let cpu = machine::cpu();
    let go_lazy = || {
        if cpu.is_running(process.space()) {
            cpu.hardware().with_irqs_off(|irqs| cpu.enter_lazy(irqs));
        }
    };
    if process.has_other_threads() {
        go_lazy();
    }
    if !process.remove_thread() {
        return;
    }
    counters::add(Counter::Exits, 1);
    process.vm().exit(&cpu, &Ram);
    go_lazy();
    if process.vm().destroy(&cpu, &Ram) == Destroyed::Now {
        process.free_slot();
    }
}
