//! The instructions of the feature `x86`. In the table of functions that it fills each is the one that was asked for,
//! and the two functions that save and restore the interrupt flag come from the same hand; in the archive `linked` they
//! stand in the library's own code.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "../../tlbkit-x86/tests/traps/machine.rs"]
#[allow(dead_code, reason = "shared with the tests of tlbkit-x86, which look at more instructions")]
mod machine;
mod tools;

use std::process::Command;

use machine::{Did, trace};
use tlbkit::Features;
use tlbkit_c::ops::{HardwareOps, TrustKind};
use tlbkit_c::status::Status;
use tlbkit_c::x86::{tlbkit_x86_disable_tags, tlbkit_x86_fill, tlbkit_x86_start};
use tlbkit_x86::{CR4_PCIDE, CR4_PGE, Identity, Overrides, Trust, enable_pcids};
use tools::{Result, archive_of, run};

const EMPTY: HardwareOps = HardwareOps {
    features: None,
    write_cr3: None,
    invlpg: None,
    invpcid: None,
    toggle_pge: None,
    send_ipi: None,
    send_ipi_to_others: None,
    relax: None,
    irqs_enabled: None,
    irqs_save: None,
    irqs_restore: None,
    now_cycles: None,
    late: None,
    last_lazy_reference: None,
    this_cpu: None,
    unanswered: None,
    lazy_left: None,
    event: None,
    patience_turns: 0,
    patience_rounds: 0,
    flush_by_host: None,
    host_flush: 0,
    invlpgb: None,
    tlbsync: None,
    broadcast_pages: 0,
    root_here: None,
};

fn fill(ops: &mut HardwareOps) -> Status {
    // SAFETY: a whole struct.
    unsafe { tlbkit_x86_fill(ops) }
}

unsafe extern "C" fn own_save(_cpu: u32) -> u64 {
    0x200
}

unsafe extern "C" fn own_restore(_cpu: u32, _saved: u64) {}

#[test]
fn each_type_of_invpcid_is_the_instruction_of_that_type() {
    const TAG: u32 = 0x805;
    const VA: u64 = 0x7f12_3456_7000;
    let mut ops = EMPTY;
    assert_eq!(fill(&mut ops), Status::Ok);
    let invpcid = ops.invpcid.expect("filled");
    // SAFETY: nothing reaches the real CPU: the instruction traps.
    let done = trace(0, CR4_PGE | CR4_PCIDE, || (0..4).for_each(|kind| unsafe { invpcid(0, kind, TAG, VA) }));
    let tag = u64::from(TAG);
    assert_eq!(done, [[0, tag, VA], [1, tag, 0], [2, 0, 0], [3, 0, 0]].map(Did::Invpcid));
}

#[test]
fn the_table_gets_each_instruction_that_it_lacks() {
    const VA: u64 = 0x7f12_3456_7000;
    let mut ops = EMPTY;
    assert_eq!(fill(&mut ops), Status::Ok);
    // SAFETY: nothing reaches the real CPU: the instructions trap.
    let done = trace(0x1000, CR4_PGE | CR4_PCIDE, || unsafe {
        ops.write_cr3.expect("filled")(0, 0x5003);
        ops.invlpg.expect("filled")(0, VA);
        ops.toggle_pge.expect("filled")(0);
        ops.invlpgb.expect("filled")(0, 1, 2, 3);
        ops.tlbsync.expect("filled")(0);
        ops.relax.expect("filled")(0);
    });
    let pge = [CR4_PCIDE, CR4_PGE | CR4_PCIDE].map(Did::Cr4);
    let broadcast = [Did::Invlpgb { rax: 1, ecx: 2, edx: 3 }, Did::Tlbsync];
    assert_eq!(done, [&[Did::Cr3(0x5003), Did::Invlpg(VA)][..], &pge, &broadcast].concat());
    let (now, are_enabled) = (ops.now_cycles.expect("filled"), ops.irqs_enabled.expect("filled"));
    // SAFETY: a program of the host may do both.
    unsafe {
        assert!(now(0) < now(0));
        assert!(are_enabled(0), "a program of the host runs with interrupts enabled");
    }
}

/// What the CPU of the host has, which is asked as it is: with trust, each of both counts by itself.
#[test]
fn starting_a_cpu_returns_each_feature_by_its_flag() {
    let (mut flags, mut on) = ([0; 2], Features::default());
    // SAFETY: nothing reaches the real CPU: what is written traps.
    trace(0x1000, CR4_PGE, || unsafe {
        flags = [TrustKind::Always, TrustKind::Never].map(|trust| tlbkit_x86_start(trust as u32))
    });
    // SAFETY: as above.
    trace(0x1000, CR4_PGE, || unsafe {
        let overrides = Overrides { invlpg_with_pcids: Trust::Always };
        on = enable_pcids(Identity::of_this_cpu().with_microcode_read().features(overrides));
    });
    let always = u32::from(on.pcid) | u32::from(on.invpcid) << 1;
    assert_eq!(flags, [always, always & 2]);
}

#[test]
fn tags_are_switched_off_under_tag_0_and_nothing_else_is() {
    // SAFETY: nothing reaches the real CPU: both instructions trap.
    let done = trace(0x1234_5007, CR4_PGE | CR4_PCIDE, || unsafe { tlbkit_x86_disable_tags() });
    assert_eq!(done, [Did::Cr3(0x1234_5000), Did::Cr4(CR4_PGE)]);
}

#[test]
fn saving_and_restoring_interrupts_is_filled_as_a_pair() {
    let mut ops = EMPTY;
    assert_eq!(fill(&mut ops), Status::Ok);
    let (save, restore) = (ops.irqs_save.expect("filled"), ops.irqs_restore.expect("filled"));
    // SAFETY: nothing reaches the real CPU: both instructions trap.
    let done = trace(0, 0, || unsafe { restore(0, save(0)) });
    assert_eq!(done, [Did::Cli, Did::Sti], "a program of the host runs with interrupts enabled");

    let mut own = HardwareOps { irqs_save: Some(own_save), irqs_restore: Some(own_restore), ..EMPTY };
    assert_eq!(fill(&mut own), Status::Ok);
    let own = (own.irqs_save.map(|f| f as usize), own.irqs_restore.map(|f| f as usize));
    assert_eq!(own, (Some(own_save as *const () as usize), Some(own_restore as *const () as usize)));
}

#[test]
fn half_a_pair_is_refused_and_nothing_is_filled() {
    // What the kernel's own `save` returns means nothing to the library's `restore`, which would enable interrupts.
    let halves =
        [HardwareOps { irqs_save: Some(own_save), ..EMPTY }, HardwareOps { irqs_restore: Some(own_restore), ..EMPTY }];
    for mut half in halves {
        assert_eq!(fill(&mut half), Status::NoFunction);
        assert!(half.irqs_save.is_none() || half.irqs_restore.is_none());
        assert!(half.invlpg.is_none(), "what is refused has changed nothing");
    }
}

/// The functions of `objdump -dr`, each by its name and its lines.
fn functions(listing: &str) -> Vec<(&str, Vec<&str>)> {
    let bodies = listing.split("\n\n").filter_map(|body| body.trim_start().split_once(">:\n"));
    bodies.filter_map(|(head, lines)| Some((head.split_once('<')?.1, lines.lines().collect()))).collect()
}

/// How many of `lines` hold `word`.
fn count(lines: &[&str], word: &str) -> usize {
    lines.iter().filter(|line| line.contains(word)).count()
}

/// What a kernel takes when it runs: no table, so what is hot stands where it is needed, and the interrupts are sent by
/// functions of the kernel's that the linker finds.
#[test]
fn the_linked_archive_has_each_instruction_in_its_place() -> Result<()> {
    let features = ["--no-default-features", "--features", "linked,x86"];
    let Some(archive) = archive_of("archive-fast", &features)? else { return Ok(()) };
    let listing = run(Command::new("objdump").args(["-dr", "--no-show-raw-insn"]).arg(&archive))?;
    // The table that the feature `x86` fills is in the archive as well: its functions stand in for nothing.
    let functions: Vec<_> = functions(&listing).into_iter().filter(|(name, _)| !name.contains("x86")).collect();
    for (name, middle) in [
        ("tlbkit_flush_range_alone", "\tinvlpg"),
        ("tlbkit_flush_this_cpu", "\tcall"), // what it calls has the instructions
        ("tlbkit_flush_loaded_this_cpu", ",%cr3"),
    ] {
        let (_, lines) = functions.iter().find(|(known, _)| *known == name).ok_or(name)?;
        let mut rest = lines.iter();
        for word in ["\tpushf", "\tcli", middle, "\tsti"] {
            assert!(rest.any(|line| line.contains(word)), "{name} has no {word:?} where it must: {lines:#?}");
        }
    }
    // Interrupts come back only if they were on: a branch around `sti` is taken where bit 9 of the flags was clear.
    let (_, lines) =
        functions.iter().find(|(name, _)| *name == "tlbkit_flush_all_this_cpu").ok_or("no such function")?;
    let sti = lines.iter().position(|line| line.contains("\tsti")).ok_or("no sti")?;
    let before = lines[..sti].last().ok_or("nothing before sti")?;
    assert!(["\tjae ", "\tje "].iter().any(|branch| before.contains(branch)), "{before} before sti");
    let all: Vec<&str> = functions.iter().flat_map(|(_, lines)| lines.iter().copied()).collect();
    assert_eq!(count(&all, ",%cr4"), 2, "CR4.PGE is cleared and set in one place");
    for name in ["tlbkit_k_send_ipi-", "tlbkit_k_send_ipi_to_others-"] {
        assert!(count(&all, name) > 0, "nobody calls {name}");
    }
    // A wait asks first whether interrupts are on, saves the flag in each turn, and pauses.
    let waits = functions.iter().filter(|(_, lines)| count(lines, "\tpause") > 0 && count(lines, "\tcli") > 0);
    let asked_and_saved = waits.map(|(_, lines)| (count(lines, "\tpushf"), count(lines, "\tcli")));
    assert!(asked_and_saved.clone().any(|(asked, saved)| asked > saved), "{:?}", asked_and_saved.collect::<Vec<_>>());
    Ok(())
}
