//! The real instructions, with the operands that they really got: in user mode each of them traps, and the handler
//! decodes it, reads its operands from the interrupted registers, does what a CPU would do, and goes on behind it.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod interrupts;
mod machine;

use std::cell::{Cell, UnsafeCell};
use std::num::NonZeroU32;

use machine::{Did, trace};
use tlbkit::{
    AddressSpace, CpuId, Cr3, Features, Hardware, Invlpgb, Invpcid, Pcid, PhysAddr, SpaceToken, Stride, Tables,
    VirtAddr,
};
use tlbkit_x86::{Apic, CR4_PCIDE, CR4_PGE, Identity, Invalidate, Invalidation, Kernel, Operands, Vendor, X86Cpu};

const VA: VirtAddr = VirtAddr(0x7f12_3456_7000);
const PCID: Pcid = Pcid(0x805);
const VECTOR: u8 = 0xf1;

struct NoSpaces;

impl Kernel for NoSpaces {
    type Set = [tlbkit::sync::AtomicU64; 1];
    type Token = SpaceToken;

    fn with_space_of<R>(&self, token: SpaceToken, _: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        unreachable!("no test asks for a space, but for {token:?}")
    }

    fn apic_id(&self, cpu: CpuId) -> u32 {
        cpu.0 * 2
    }

    fn broadcast_pages(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(8)
    }
}

fn cpu(features: Features, apic: Apic) -> X86Cpu<'static, NoSpaces> {
    // SAFETY: no instruction of it reaches the real CPU: all trap.
    unsafe { X86Cpu::new(&NoSpaces, features, apic, VECTOR) }
}

/// A kernel keeps one for each CPU in a static, and makes it there.
#[test]
fn a_cpu_can_be_kept_in_a_static() {
    const fn is_shared<T: Send + Sync>() {}
    const { is_shared::<X86Cpu<'static, NoSpaces>>() };
}

const WITH_TAGS: Features = Features { pcid: true, invpcid: true };

#[test]
fn invlpg_names_the_address_and_not_the_variable_that_holds_it() {
    let done = trace(0, CR4_PGE, || cpu(WITH_TAGS, Apic::Registers).invlpg(VA));
    assert_eq!(done, [Did::Invlpg(VA.0)]);
}

#[test]
fn invpcid_has_its_type_and_the_words_of_its_descriptor_in_order() {
    let types = [Invpcid::Address(PCID, VA), Invpcid::Single(PCID), Invpcid::AllAndGlobals, Invpcid::All];
    let done =
        trace(0, CR4_PGE | CR4_PCIDE, || types.iter().for_each(|&kind| cpu(WITH_TAGS, Apic::Registers).invpcid(kind)));
    let tag = u64::from(PCID.0);
    let expected = [[0, tag, VA.0], [1, tag, 0], [2, 0, 0], [3, 0, 0]].map(Did::Invpcid);
    assert_eq!(done, expected);
}

#[test]
fn cr3_carries_tag_and_no_flush_bit_only_where_tags_are_on() {
    let keeping = Cr3::keeping(PhysAddr(0x1234_5000), PCID);
    let on = trace(0, CR4_PGE | CR4_PCIDE, || cpu(WITH_TAGS, Apic::Registers).write_cr3(keeping));
    assert_eq!(on, [Did::Cr3(1 << 63 | 0x1234_5805)]);
    let off = trace(0, CR4_PGE, || cpu(Features::default(), Apic::Registers).write_cr3(keeping));
    assert_eq!(off, [Did::Cr3(0x1234_5000)]);
}

/// Loses each flush, and counts those that it is asked about.
#[derive(Default)]
struct Losing(Cell<u32>);

impl Kernel for Losing {
    type Set = [tlbkit::sync::AtomicU64; 1];
    type Token = SpaceToken;

    fn with_space_of<R>(&self, token: SpaceToken, _: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        unreachable!("no test asks for a space, but for {token:?}")
    }

    fn apic_id(&self, cpu: CpuId) -> u32 {
        cpu.0
    }

    fn invalidate(&self, _what: Invalidation) -> Invalidate {
        self.0.set(self.0.get() + 1);
        Invalidate::Never
    }
}

/// Whether a CR3 write flushes: as it says, unless the kernel loses that; without PCIDs nothing can be kept.
#[test]
fn cr3_keeps_what_it_is_told_to_keep_and_what_a_test_loses() {
    let root = PhysAddr(0x1234_5000);
    let (flushing, keeping) = (Cr3::flushing(root, PCID), Cr3::keeping(root, PCID));
    let [flushed, kept] = [0x1234_5805, 1 << 63 | 0x1234_5805];
    for (features, cr3, written, lost, asked) in [
        (WITH_TAGS, flushing, flushed, kept, 1),
        (WITH_TAGS, keeping, kept, kept, 0),
        (Features::default(), flushing, root.0, root.0, 1),
    ] {
        let losing = Losing::default();
        let cr4 = if features.pcid { CR4_PGE | CR4_PCIDE } else { CR4_PGE };
        assert_eq!(trace(0, cr4, || cpu(features, Apic::Registers).write_cr3(cr3)), [Did::Cr3(written)]);
        // SAFETY: as in `cpu`.
        let cpu = unsafe { X86Cpu::new(&losing, features, Apic::Registers, VECTOR) };
        assert_eq!(trace(0, cr4, || cpu.write_cr3(cr3)), [Did::Cr3(lost)]);
        assert_eq!(losing.0.get(), asked);
    }
}

#[test]
fn a_register_of_a_model_is_read_in_two_halves() {
    let mut read = 0;
    // SAFETY: nothing reaches the real CPU.
    let done = trace(0, 0, || read = unsafe { tlbkit_x86::read_msr(0x8b) });
    assert_eq!((done, read), (vec![Did::ReadMsr(0x8b)], u64::from(machine::MICROCODE) << 32 | 0x8b));
}

#[test]
fn c_33_pge_is_changed_and_restored_and_nothing_else_is() {
    let done = trace(0, CR4_PGE | CR4_PCIDE | 1 << 5, || cpu(WITH_TAGS, Apic::Registers).toggle_pge());
    assert_eq!(done, [Did::Cr4(CR4_PCIDE | 1 << 5), Did::Cr4(CR4_PGE | CR4_PCIDE | 1 << 5)]);
}

#[test]
fn c_33_tags_are_switched_on_under_tag_0_after_global_pages() {
    let mut features = Features::default();
    // SAFETY: nothing reaches the real CPU.
    let done = trace(0x1234_5018, 1 << 5, || features = unsafe { tlbkit_x86::enable_pcids(WITH_TAGS) });
    assert_eq!(done, [Did::Cr4(CR4_PGE | 1 << 5), Did::Cr3(0x1234_5000), Did::Cr4(CR4_PCIDE | CR4_PGE | 1 << 5)]);
    assert_eq!(features, WITH_TAGS);
}

#[test]
fn c_33_a_cpu_without_tags_is_not_asked_for_them() {
    let mut features = WITH_TAGS;
    let wanted = Features { pcid: false, invpcid: true };
    // SAFETY: as above.
    let done = trace(0x1234_5000, 0, || features = unsafe { tlbkit_x86::enable_pcids(wanted) });
    assert_eq!((done.as_slice(), features), (&[Did::Cr4(CR4_PGE)][..], wanted));
}

/// The firmware, or an earlier kernel.
#[test]
fn c_33_tags_that_are_on_already_stay_on_or_go_off_as_is_wanted() {
    let is = CR4_PGE | CR4_PCIDE;
    let mut features = Features::default();
    // SAFETY: as above.
    let kept = trace(0x1234_5007, is, || features = unsafe { tlbkit_x86::enable_pcids(WITH_TAGS) });
    assert_eq!((kept.as_slice(), features), (&[Did::Cr4(is)][..], WITH_TAGS));
    let wanted = Features { pcid: false, ..WITH_TAGS };
    // SAFETY: as above.
    let off = trace(0x1234_5007, is, || features = unsafe { tlbkit_x86::enable_pcids(wanted) });
    assert_eq!((off, features), (vec![Did::Cr4(is), Did::Cr3(0x1234_5000), Did::Cr4(CR4_PGE)], wanted));
}

#[test]
fn c_33_tags_are_switched_off_under_tag_0() {
    // SAFETY: as above.
    let done = trace(0x1234_5007, CR4_PGE | CR4_PCIDE, || unsafe { tlbkit_x86::disable_pcids() });
    assert_eq!(done, [Did::Cr3(0x1234_5000), Did::Cr4(CR4_PGE)]);
}

#[test]
fn c_37_microcode_is_read_where_an_erratum_depends_on_it() {
    let read = |cpu: Identity| {
        let mut read = cpu;
        // SAFETY: nothing reaches the real CPU.
        let done = trace(0, 0, || read = unsafe { cpu.with_microcode_read() });
        (done, read.microcode)
    };
    let raptor_lake = Identity {
        vendor: Vendor::Intel,
        family: 6,
        model: 0xb7,
        is_guest: false,
        microcode: 0,
        ..Identity::of_this_cpu()
    };
    // The models of ADL063 and RPL042.
    for model in [0x97, 0x9a, 0xbe, 0xb7, 0xba, 0xbf] {
        let done = vec![Did::Msr(0x8b, 0), Did::ReadMsr(0x8b)];
        assert_eq!(read(Identity { model, ..raptor_lake }), (done, machine::MICROCODE), "model {model:#x}");
    }
    // No microcode mends the erratum of the last.
    for other in [
        Identity { model: 0x55, ..raptor_lake },
        Identity { is_guest: true, ..raptor_lake },
        Identity { vendor: Vendor::Amd, family: 0x19, ..raptor_lake },
    ] {
        assert_eq!(read(other), (vec![], 0));
    }
}

/// What the CPU is given for one INVLPGB.
fn invlpgb(what: Invlpgb) -> (u64, u32, u32) {
    let done = trace(0, CR4_PGE, || {
        cpu(WITH_TAGS, Apic::Registers).invlpgb(what);
        cpu(WITH_TAGS, Apic::Registers).tlbsync();
    });
    let [Did::Invlpgb { rax, ecx, edx }, Did::Tlbsync] = done[..] else { panic!("{done:?}") };
    (rax, ecx, edx)
}

#[test]
fn c_36_invlpgb_counts_from_zero_and_always_names_the_asid() {
    let pages = |pages, stride, tables| invlpgb(Invlpgb::Pages { pcid: PCID, first: VA, pages, stride, tables });
    let edx = 0x805 << 16;
    assert_eq!(pages(8, Stride::Page4K, Tables::Freed), (VA.0 | 0b0_0111, 7, edx));
    assert_eq!(pages(1, Stride::Page4K, Tables::Kept), (VA.0 | 0b1_0111, 0, edx), "final translations alone");
    assert_eq!(pages(1 << 16, Stride::Page4K, Tables::Freed).1, 0xffff);
    assert_eq!(pages(2, Stride::Page2M, Tables::Freed), (VA.0 & !0x1f_ffff | 0b0_0111, 1 << 31 | 1, edx));
    assert_eq!(pages(1, Stride::Page1G, Tables::Freed), (VA.0 & !0x3fff_ffff | 0b0_0111, 0, edx), "no such step");
}

#[test]
fn c_36_what_belongs_to_no_tag_names_none() {
    let all = Invlpgb::PagesOfAll { first: VA, pages: 2, stride: Stride::Page4K };
    assert_eq!(invlpgb(all), (VA.0 | 0b0_1101, 1, 0));
    assert_eq!(invlpgb(Invlpgb::Single(PCID)), (0b0_0110, 0, 0x805 << 16));
    assert_eq!(invlpgb(Invlpgb::All), (0b0_0100, 0, 0));
    assert_eq!(invlpgb(Invlpgb::AllAndGlobals), (0b0_1100, 0, 0));
}

/// The count has 16 bits: the rest of a larger one would be taken for something else.
#[test]
#[should_panic(expected = "more than its count holds")]
fn c_36_a_count_that_the_instruction_cannot_hold_is_refused() {
    let _ = Operands::of(Invlpgb::PagesOfAll { first: VA, pages: (1 << 16) + 1, stride: Stride::Page4K });
}

/// INVLPGB of a PCID faults while there are none, so a kernel without them is not asked how many pages it takes.
#[test]
fn c_36_without_pcids_there_is_no_invlpgb() {
    assert_eq!(cpu(WITH_TAGS, Apic::Registers).broadcast_pages(), NonZeroU32::new(8));
    assert_eq!(cpu(Features::default(), Apic::Registers).broadcast_pages(), None);
}

#[test]
fn x2apic_sends_one_register_write() {
    let done = trace(0, 0, || {
        cpu(WITH_TAGS, Apic::Registers).send_ipi(CpuId(3));
        cpu(WITH_TAGS, Apic::Registers).send_ipi_to_others();
    });
    let fixed = 0x4000 | u64::from(VECTOR);
    assert_eq!(done, [Did::Msr(0x830, 6 << 32 | fixed), Did::Msr(0x830, 0b11 << 18 | fixed)]);
}

#[test]
fn interrupts_are_off_inside_and_as_before_after() {
    let done = trace(0, CR4_PGE, || {
        let cpu = cpu(WITH_TAGS, Apic::Registers);
        cpu.with_irqs_off(|_| cpu.invlpg(VA));
    });
    assert_eq!(done, [Did::Cli, Did::Invlpg(VA.0), Did::Sti]);
}

/// A word that the compiler must believe others can see.
struct Shared(UnsafeCell<u64>);

// SAFETY: one test uses it, on one thread and in the handler of that thread's traps.
unsafe impl Sync for Shared {}

static WORD: Shared = Shared(UnsafeCell::new(0));

fn store(value: u64) {
    // SAFETY: as above.
    unsafe { *WORD.0.get() = value }
}

#[test]
fn instructions_are_barriers_for_the_compiler() {
    // A plain store before each instruction: of a `nomem` block the compiler would move or drop it.
    let seen = machine::watching(WORD.0.get(), || {
        store(1);
        cpu(WITH_TAGS, Apic::Registers).invlpg(VA);
        store(2);
        cpu(WITH_TAGS, Apic::Registers).invpcid(Invpcid::All);
        store(3);
        cpu(WITH_TAGS, Apic::Registers).write_cr3(Cr3(0x1000));
        store(4);
        cpu(WITH_TAGS, Apic::Registers).invlpgb(Invlpgb::All);
        store(5);
        cpu(WITH_TAGS, Apic::Registers).tlbsync();
        store(6);
    });
    assert_eq!(seen, [1, 2, 3, 4, 5]);
}
