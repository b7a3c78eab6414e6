//! What the compiler makes of each wrapper, instruction by instruction: what must be there, in which order, and what
//! must not come in between. Nothing here is executed; operands that only a running CPU has are the business of the
//! tests that trap.
//!
//! A fence that is missing, a load that is hoisted above an invalidation and a store that sinks below it all leave a
//! program that passes every test of what it computes.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod image;
mod probes;

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};
use probes::{Probe, STORED};

fn code((name, start): Probe) -> Vec<Instruction> {
    image::code(name, start)
}

fn mnemonics(code: &[Instruction]) -> Vec<Mnemonic> {
    code.iter().map(Instruction::mnemonic).collect()
}

/// Instructions that do not move values between registers, constants and the stack, nor compute: those that a wrapper
/// is about.
fn notable(code: &[Instruction]) -> Vec<Mnemonic> {
    const ABOUT: &[Mnemonic] = &[
        Mnemonic::Invlpg,
        Mnemonic::Invpcid,
        Mnemonic::Invlpgb,
        Mnemonic::Tlbsync,
        Mnemonic::Rdmsr,
        Mnemonic::Wrmsr,
        Mnemonic::Mfence,
        Mnemonic::Lfence,
        Mnemonic::Sfence,
        Mnemonic::Cpuid,
        Mnemonic::Cli,
        Mnemonic::Sti,
        Mnemonic::Hlt,
        Mnemonic::Pushfq,
        Mnemonic::Popfq,
        Mnemonic::Pause,
    ];
    mnemonics(code).into_iter().filter(|mnemonic| ABOUT.contains(mnemonic)).collect()
}

fn places(code: &[Instruction], is_it: impl Fn(&Instruction) -> bool) -> Vec<usize> {
    (0..code.len()).filter(|&n| is_it(&code[n])).collect()
}

fn place_of(code: &[Instruction], mnemonic: Mnemonic) -> usize {
    let all = places(code, |it| it.mnemonic() == mnemonic);
    assert_eq!(all.len(), 1, "{mnemonic:?} once in {:?}", mnemonics(code));
    all[0]
}

/// A conditional or unconditional jump inside the function.
fn is_jump(it: &Instruction) -> bool {
    matches!(it.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
}

/// True if every instruction of `between` is executed exactly when its first one is: none jumps, none is jumped to.
fn is_straight(code: &[Instruction], from: usize, to: usize) -> bool {
    let inside = &code[from + 1..=to];
    let is_target = |at: u64| code.iter().any(|it| is_jump(it) && it.near_branch_target() == at);
    inside.iter().all(|it| it.flow_control() == FlowControl::Next && !is_target(it.ip()))
}

fn is_memory(it: &Instruction, operand: u32) -> bool {
    it.op_count() > operand && it.op_kind(operand) == OpKind::Memory
}

#[test]
fn a_wrapper_of_one_instruction_is_that_instruction_and_no_other() {
    let alone = |probe: Probe| code(probe).iter().map(Instruction::code).collect::<Vec<_>>();
    assert_eq!(alone(probes::disable()), [Code::Cli, Code::Retnq]);
    assert_eq!(alone(probes::enable()), [Code::Sti, Code::Retnq]);
    assert_eq!(alone(probes::tlbsync()), [Code::Tlbsync, Code::Retnq]);
    assert_eq!(alone(probes::invlpg()), [Code::Invlpg_m, Code::Retnq]);
    assert_eq!(alone(probes::write_cr3()), [Code::Mov_cr_r64, Code::Retnq]);
    assert_eq!(alone(probes::write_cr4()), [Code::Mov_cr_r64, Code::Retnq]);
    for read in [probes::read_cr2(), probes::read_cr3(), probes::read_cr4()] {
        assert_eq!(alone(read), [Code::Mov_r64_cr, Code::Retnq]);
    }
    // Between the two an interrupt would come, and the wait for it would go on for ever.
    assert_eq!(alone(probes::enable_and_halt()), [Code::Sti, Code::Hlt, Code::Retnq]);
}

#[test]
fn each_control_register_is_the_one_that_was_asked_for() {
    let written = |probe: Probe| code(probe)[0].op0_register();
    assert_eq!([probes::write_cr3(), probes::write_cr4()].map(written), [Register::CR3, Register::CR4]);
    let read = |probe: Probe| code(probe)[0].op1_register();
    let all = [probes::read_cr2(), probes::read_cr3(), probes::read_cr4()].map(read);
    assert_eq!(all, [Register::CR2, Register::CR3, Register::CR4]);
    let toggled: Vec<_> = code(probes::toggle_pge())
        .iter()
        .filter(|it| matches!(it.code(), Code::Mov_cr_r64 | Code::Mov_r64_cr))
        .map(|it| (it.code(), if it.code() == Code::Mov_cr_r64 { it.op0_register() } else { it.op1_register() }))
        .collect();
    let write = (Code::Mov_cr_r64, Register::CR4);
    assert_eq!(toggled, [(Code::Mov_r64_cr, Register::CR4), write, write]);
}

#[test]
fn invlpg_has_the_address_in_a_register() {
    let code = code(probes::invlpg());
    assert_eq!((code[0].memory_base(), code[0].memory_displacement64()), (Register::RDI, 0));
}

#[test]
fn invpcid_finds_its_descriptor_written_whole() {
    for probe in [probes::invpcid_single(), probes::invpcid_all(), probes::invpcid_all_and_globals()] {
        let code = code(probe);
        let at = place_of(&code, Mnemonic::Invpcid);
        assert_eq!(code[at].code(), Code::Invpcid_r64_m128);
        // The descriptor lies on the stack: its sixteen bytes are stored before, by the same base or by the stack
        // pointer, and nothing jumps.
        let stored: usize = code[..at]
            .iter()
            .filter(|it| is_memory(it, 0) && it.mnemonic() != Mnemonic::Lea)
            .map(|it| it.memory_size().size())
            .sum();
        assert_eq!(stored, 16, "{}: {:?}", probe.0, mnemonics(&code));
        assert!(is_straight(&code, 0, at), "{}", probe.0);
    }
}

#[test]
fn msrs_and_broadcasts_are_one_instruction_each() {
    assert_eq!(notable(&code(probes::write_msr())), [Mnemonic::Wrmsr]);
    assert_eq!(notable(&code(probes::read_msr())), [Mnemonic::Rdmsr]);
    assert_eq!(notable(&code(probes::invlpgb())), [Mnemonic::Invlpgb]);
}

/// A write of an x2APIC register waits for no earlier store: MFENCE makes the stores visible, and LFENCE keeps the
/// write behind it.
#[test]
fn an_x2apic_write_comes_right_after_mfence_and_lfence() {
    let code = code(probes::send_x2apic());
    let (mfence, lfence, write) =
        (place_of(&code, Mnemonic::Mfence), place_of(&code, Mnemonic::Lfence), place_of(&code, Mnemonic::Wrmsr));
    assert!(mfence < lfence && lfence < write, "{:?}", mnemonics(&code));
    assert!(is_straight(&code, mfence, write), "{:?}", mnemonics(&code));
    let stores = places(&code[mfence..write], |it| is_memory(it, 0));
    assert_eq!(stores, [], "nothing is stored behind the fence: {:?}", mnemonics(&code));
}

/// The two registers lie at 0x300 and 0x310; the store to the low one sends.
#[test]
fn an_xapic_command_waits_for_the_one_before_with_interrupts_off() {
    const LOW: u64 = 0x300;
    const HIGH: u64 = 0x310;
    let code = code(probes::send_xapic());
    let at = |it: &Instruction, place: u64| it.memory_displacement64() == place;
    let looks = |it: &Instruction| is_memory(it, 1) || it.mnemonic() == Mnemonic::Test && is_memory(it, 0);
    let loads = places(&code, |it| looks(it) && at(it, LOW));
    let stores = |place| places(&code, |it| it.mnemonic() == Mnemonic::Mov && is_memory(it, 0) && at(it, place));
    let (high, low) = (stores(HIGH), stores(LOW));
    assert_eq!((high.len(), low.len()), (1, 1), "{:?}", mnemonics(&code));
    let (off, on) = (place_of(&code, Mnemonic::Cli), place_of(&code, Mnemonic::Sti));
    assert!(!loads.is_empty() && loads.iter().all(|&load| off < load && load < high[0]), "{:?}", mnemonics(&code));
    assert!(high[0] < low[0] && low[0] < on, "{:?}", mnemonics(&code));
    let goes_back = |it: &Instruction| is_jump(it) && it.near_branch_target() <= it.ip();
    assert_eq!(places(&code[off..high[0]], goes_back).len(), 1, "a loop of loads: {:?}", mnemonics(&code));
    assert!(place_of(&code, Mnemonic::Pushfq) < off, "what was before is read before it is changed");
}

#[test]
fn interrupts_are_looked_at_before_they_are_disabled_and_enabled_only_under_a_condition() {
    for asked in [probes::are_enabled(), probes::irqs_enabled()] {
        assert_eq!(notable(&code(asked)), [Mnemonic::Pushfq], "{}", asked.0);
    }
    assert_eq!(notable(&code(probes::save_and_disable())), [Mnemonic::Pushfq, Mnemonic::Cli]);
    let restore = code(probes::restore());
    assert_eq!(notable(&restore), [Mnemonic::Sti]);
    let sti = place_of(&restore, Mnemonic::Sti);
    assert_eq!(places(&restore[..sti], |it| it.flow_control() == FlowControl::ConditionalBranch).len(), 1);
}

/// CPUID fills the register that says the revision: without it an older value, or 0, is read.
#[test]
fn microcode_is_read_after_cpuid_and_that_after_the_write_of_0() {
    let order = notable(&code(probes::read_microcode()));
    assert_eq!(order, [Mnemonic::Wrmsr, Mnemonic::Cpuid, Mnemonic::Rdmsr]);
}

/// What a probe of order does with its word, around the instruction that it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Store(u64),
    Load,
    Instruction,
}

fn acts(code: &[Instruction]) -> Vec<Act> {
    let stored = |it: &Instruction| it.try_immediate(1).ok().filter(|value| STORED.contains(value));
    // Nothing else in these functions is loaded from where a register points, the stack apart.
    let is_of_word = |it: &Instruction| it.memory_displacement64() == 0 && it.memory_base() != Register::RSP;
    let act = |it: &Instruction| {
        if is_memory(it, 0)
            && let Some(value) = stored(it)
        {
            return Some(Act::Store(value));
        }
        if it.code() == Code::Mov_r64_rm64 && is_memory(it, 1) && is_of_word(it) {
            return Some(Act::Load);
        }
        let is_control = matches!(it.code(), Code::Mov_cr_r64);
        (is_control || !notable(std::slice::from_ref(it)).is_empty()).then_some(Act::Instruction)
    };
    let mut acts: Vec<_> = code.iter().filter_map(act).collect();
    acts.dedup();
    acts
}

#[test]
fn no_access_crosses_an_instruction_where_the_compiler_would_let_it() {
    let expected = [Act::Store(STORED[0]), Act::Instruction, Act::Load, Act::Store(STORED[1])];
    for probe in probes::orders() {
        assert_eq!(acts(&code(probe)), expected, "{}", probe.0);
    }
    // The same code around an instruction that is said not to touch memory: the first store and the load are gone.
    let without = acts(&code(probes::order_of_no_memory()));
    assert_eq!(without.iter().filter(|&&act| act == Act::Load).count(), 0, "{without:?}");
    assert!(!without.contains(&Act::Store(STORED[0])), "{without:?}");
}
