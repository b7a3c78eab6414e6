//! What is read from CPUID, beside the same leaves read here, field by field, on the machine that runs the test.
#![cfg(target_arch = "x86_64")]

use std::arch::x86_64::{__get_cpuid_max, CpuidResult};

use tlbkit_x86::{Identity, Vendor};

#[allow(unused_unsafe, reason = "the intrinsic became safe after the oldest Rust that this builds with")]
fn leaf(leaf: u32) -> CpuidResult {
    // SAFETY: every x86-64 CPU has the instruction and these leaves.
    unsafe { std::arch::x86_64::__cpuid_count(leaf, 0) }
}

#[allow(unused_unsafe, reason = "as above")]
fn highest(first: u32) -> u32 {
    // SAFETY: as above.
    unsafe { __get_cpuid_max(first) }.0
}

fn bit(word: u32, bit: u32) -> bool {
    word / 2u32.pow(bit) % 2 == 1
}

#[test]
fn this_cpu_is_what_its_leaves_say() {
    let cpu = Identity::of_this_cpu();
    let zero = leaf(0);
    let name = [zero.ebx, zero.edx, zero.ecx].map(u32::to_le_bytes).concat();
    let vendor = match name.as_slice() {
        b"GenuineIntel" => Vendor::Intel,
        b"AuthenticAMD" => Vendor::Amd,
        _ => Vendor::Other,
    };
    assert_eq!(cpu.vendor, vendor);
    let one = leaf(1);
    let digit = |shift: u32| one.eax / 16u32.pow(shift) % 16;
    let family = digit(2) + if digit(2) == 15 { one.eax / 16u32.pow(5) % 256 } else { 0 };
    assert_eq!((cpu.family, cpu.model), (family, digit(1) + 16 * digit(4)));
    assert_eq!((cpu.has_pcid, cpu.has_x2apic, cpu.is_guest), (bit(one.ecx, 17), bit(one.ecx, 21), bit(one.ecx, 31)));
    assert_eq!(cpu.has_invpcid, highest(0) >= 7 && bit(leaf(7).ebx, 10));
    let has_broadcast = highest(0x8000_0000) >= 0x8000_0008 && bit(leaf(0x8000_0008).ebx, 3);
    assert_eq!(cpu.broadcast_pages.is_some(), has_broadcast);
    assert_eq!((cpu.microcode, cpu.with_microcode(5).microcode), (0, 5), "only ring 0 can read it");
}
