//! The locks of regions and tables: what one holder did, the next one finds.

use tlbkit::PAGE_BYTES;
use tlbkit_pmap::{Access, Fault, Memory, Pte, Purpose};

use crate::cpu::Cpu;
use crate::explore::check;

const BITS: u64 = Pte::PRESENT | Pte::WRITE | Pte::USER;

fn enter(cpu: &Cpu, va: u64) {
    let frame = cpu.machine.mem.alloc(12, Purpose::Data).expect("memory");
    cpu.machine.vm.enter(&cpu.protocol(), cpu.machine.mem, va, frame, BITS).expect("memory");
}

fn both_are_mapped(cpu: &Cpu, va: u64) {
    let frames = [va, va + PAGE_BYTES].map(|va| cpu.entry(va).map(Pte::frame));
    assert!(frames[0].is_some() && frames[1].is_some() && frames[0] != frames[1], "{frames:?}");
}

/// The second CPU finds the table that the first one allocated, and does not replace it.
#[test]
fn two_pages_entered_at_once_share_the_tables_above_them() {
    check(|[cpu, _]| cpu.map(2), [|cpu, va| enter(cpu, va), |cpu, va| enter(cpu, va + PAGE_BYTES)], both_are_mapped);
}

/// Nothing stays mapped where no region is: the fault comes before the end of the region and is swept away, or after it
/// and is refused.
#[test]
fn a_fault_meets_the_end_of_its_region() {
    check(
        |[cpu, _]| cpu.map(1),
        [Cpu::unmap, |cpu, va| {
            let fault = cpu.machine.vm.fault(&cpu.protocol(), cpu.machine.mem, va, Access::Write);
            assert!(matches!(fault, Fault::Bad | Fault::Mapped { .. }), "{fault:?}");
        }],
        |cpu, va| assert_eq!(cpu.entry(va), None, "mapped where no region is"),
    );
}

/// A region can be mapped in place of one that was unmapped only when no CPU uses the old one any more. A neighbouring
/// region keeps the page tables, so that only the frame of the page waits for the flush.
#[test]
fn a_region_is_mapped_in_place_of_another_after_the_flush_of_that_one() {
    let maps_again = |cpu: &Cpu, va| {
        if cpu.map(1) == va {
            cpu.machine.address.with_mut(|_| ());
        }
    };
    check(|[cpu, _]| cpu.map_and_store(2), [Cpu::unmap, maps_again], |cpu, va| assert_eq!(cpu.entry(va), None));
}
