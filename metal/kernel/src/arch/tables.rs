//! Segments, the task state with its stacks, the gates, and the registers of SYSCALL: one set a CPU.

use core::cell::UnsafeCell;

use spin::Once;
use x86_64::VirtAddr;
use x86_64::instructions::tables::{lidt, load_tss};
use x86_64::registers::segmentation::{CS, DS, ES, FS, GS, SS, Segment};
use x86_64::structures::DescriptorTablePointer;
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable, SegmentSelector};
use x86_64::structures::tss::TaskStateSegment;

use super::cpu;
use super::gates::{Gates, KERNEL_CODE, NON_MASKABLE, gates_at};
use crate::layout::MAX_CPUS;

const KERNEL_DATA: u16 = 0x10;
/// What SYSRET counts from: data 8 above, code 16 above.
const USER_BASE: u16 = 0x18;
const TASK_STATE: u16 = 0x30;

const MSR_STAR: u32 = 0xc000_0081;
const MSR_LSTAR: u32 = 0xc000_0082;
const MSR_SFMASK: u32 = 0xc000_0084;
const MSR_GS_BASE: u32 = 0xc000_0101;
/// Flags that SYSCALL clears: trap, interrupt, direction, alignment check.
pub(crate) const CLEARED_FLAGS: u64 = 1 << 8 | 1 << 9 | 1 << 10 | 1 << 18;

const FATAL_STACK_BYTES: usize = 8192;
const DOUBLE_FAULT: u64 = 8;
const MACHINE_CHECK: u64 = 18;

/// Where the CPU goes from ring 3, or from the kernel itself, into the kernel.
#[derive(Clone, Copy)]
pub(crate) struct Entries {
    /// The first of 256 gates, 16 bytes apart: one for each vector.
    pub(crate) traps: unsafe extern "C" fn(),
    /// The one for SYSCALL.
    pub(crate) syscall: unsafe extern "C" fn(),
}

/// What one CPU's registers point to.
#[repr(C, align(64))]
struct Tables {
    task_state: TaskStateSegment,
    segments: GlobalDescriptorTable<8>,
    /// For traps that may find a broken stack.
    fatal_stack: [u8; FATAL_STACK_BYTES],
}

struct PerCpu(UnsafeCell<[Tables; MAX_CPUS]>);

// SAFETY: each CPU touches its own alone.
unsafe impl Sync for PerCpu {}

static TABLES: PerCpu = PerCpu(UnsafeCell::new(
    [const {
        Tables {
            task_state: TaskStateSegment::new(),
            segments: GlobalDescriptorTable::empty(),
            fatal_stack: [0; FATAL_STACK_BYTES],
        }
    }; MAX_CPUS],
));

fn tables(index: u32) -> *mut Tables {
    // Only an address is made.
    TABLES.0.get().cast::<Tables>().wrapping_add(index as usize)
}

/// Gives this CPU its number and its tables, which are the same on every CPU but for the stacks.
pub(crate) fn load(index: u32, entries: Entries) {
    // SAFETY: this CPU's tables, written before they are loaded, alive for ever; the selectors are those just made.
    unsafe {
        let own = &mut *tables(index);
        let fatal_top = (&raw const own.fatal_stack) as u64 + FATAL_STACK_BYTES as u64;
        own.task_state.interrupt_stack_table[0] = VirtAddr::new(fatal_top);
        for segment in [Descriptor::kernel_code_segment(), Descriptor::kernel_data_segment()] {
            own.segments.append(segment);
        }
        own.segments.append(Descriptor::UserSegment(0));
        own.segments.append(Descriptor::user_data_segment());
        own.segments.append(Descriptor::user_code_segment());
        own.segments.append(Descriptor::tss_segment_unchecked(&raw const own.task_state));
        own.segments.load_unsafe();
        CS::set_reg(SegmentSelector(KERNEL_CODE));
        SS::set_reg(SegmentSelector(KERNEL_DATA));
        // Null, as a way out to ring 3 makes those that it finds in ring 0, maybe with the base of GS.
        DS::set_reg(SegmentSelector(0));
        ES::set_reg(SegmentSelector(0));
        FS::set_reg(SegmentSelector(0));
        GS::set_reg(SegmentSelector(0));
        load_tss(SegmentSelector(TASK_STATE));
        lidt(&DescriptorTablePointer { limit: 4095, base: VirtAddr::from_ptr(gates(entries)) });
    }
    set_syscall_registers(index, entries);
}

fn set_syscall_registers(index: u32, entries: Entries) {
    let selectors = u64::from(USER_BASE | 3) << 48 | u64::from(KERNEL_CODE) << 32;
    let local = core::ptr::from_ref(cpu::local(index)) as u64;
    // SAFETY: registers of every x86-64 CPU; the gate switches stacks before it uses one.
    unsafe {
        for (register, value) in [
            (MSR_STAR, selectors),
            (MSR_LSTAR, entries.syscall as *const () as u64),
            (MSR_SFMASK, CLEARED_FLAGS),
            (MSR_GS_BASE, local),
        ] {
            tlbkit_x86::write_msr(register, value);
        }
    }
}

/// Makes system calls and traps of this CPU's programs arrive on this stack.
pub(crate) fn set_kernel_stack(top: u64) {
    cpu::set_syscall_stack(top);
    // SAFETY: this CPU's own task state; the CPU reads it at the next trap.
    unsafe { (&raw mut (*tables(cpu::index())).task_state.privilege_stack_table[0]).write(VirtAddr::new(top)) }
}

/// Where traps from ring 3 on this CPU find their stack.
pub(crate) fn trap_stack() -> u64 {
    // SAFETY: this CPU's own task state, as above.
    unsafe { (&raw const (*tables(cpu::index())).task_state.privilege_stack_table[0]).read_unaligned() }.as_u64()
}

/// Gives this CPU's table of stacks its `entry`, from 1.
///
/// # Safety
/// `top` is that of a stack that nothing else uses.
pub(crate) unsafe fn set_stack(entry: u64, top: u64) {
    // SAFETY: this CPU's own task state, as above.
    unsafe {
        (&raw mut (*tables(cpu::index())).task_state.interrupt_stack_table[entry as usize - 1])
            .write_unaligned(VirtAddr::new(top));
    }
}

/// The gates are the same for every CPU: interrupts stay off inside.
fn gates(entries: Entries) -> *const Gates {
    static GATES: Once<Gates> = Once::new();
    let stack_of = |vector| u64::from(matches!(vector as u64, DOUBLE_FAULT | NON_MASKABLE | MACHINE_CHECK));
    GATES.call_once(|| gates_at(entries.traps as *const () as u64, stack_of))
}
