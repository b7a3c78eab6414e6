//! The archive keeps a kernel's rules: it links with a kernel's objects, uses no vector or x87 register and no red
//! zone, and is small.
//!
//! What is looked at is a link with `--gc-sections` in which every function of the header is wanted: all of the
//! library, and of the compiler's support only what it reaches.

mod code;
mod stack;
#[path = "../tools/mod.rs"]
mod tools;

use std::path::{Path, PathBuf};
use std::process::Command;
use tools::{KERNEL_FLAGS, Result, archive, archive_of, crate_dir, run, scratch};

/// With every function of the header called: of the checked archive, and of the fast one.
const TEXT_BYTES_MAX: u64 = 52_400;
const FAST_TEXT_BYTES_MAX: u64 = 42_200;
const CPU_BYTES_MAX: u64 = 512;

/// As docs/kernel/reference.md says: what a kernel must have left on the stack of its interrupt handler, and elsewhere.
const fn stack_bytes_max(function: &str) -> u64 {
    match function.as_bytes() {
        b"tlbkit_answer" => 896,
        b"tlbkit_machine_init" => 2_048, // the machine is made there, and moved to its place
        _ => 1_600,
    }
}

/// The functions of the header: the last word before the first bracket of each declaration. Those of `history`,
/// `isolated`, `broadcast`, `reuse` and `directories` are not in this archive, and `tlbkit_k_` begins what a kernel
/// defines.
fn functions() -> Result<Vec<String>> {
    let header = std::fs::read_to_string(crate_dir().join("include/tlbkit.h"))?;
    let mut of_others = false;
    let here = header.lines().filter(|line| {
        let begins = ["HISTORY", "ISOLATED", "BROADCAST", "REUSE", "DIRECTORIES"]
            .map(|name| format!("if defined(TLBKIT_{name})"));
        of_others = begins.iter().any(|begin| line.contains(begin)) || of_others && !line.starts_with("#endif");
        !of_others
    });
    let declarations = here.filter(|line| !line.starts_with([' ', '/', '#']) && !line.starts_with("static"));
    let names = declarations.filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next().map(str::to_owned));
    Ok(names.filter(|name| name.starts_with("tlbkit_") && !name.starts_with("tlbkit_k_")).collect())
}

/// Links a kernel's object with all of the archive that the header reaches.
fn link(archive: &Path, dir: &Path, how: &[&str]) -> Result<PathBuf> {
    let (source, object, linked) = (dir.join("kernel.c"), dir.join("kernel.o"), dir.join("kernel"));
    std::fs::write(
        &source,
        "#include \"tlbkit.h\"\nbool start(void);\nbool start(void) { return tlbkit_header_fits(); }\n",
    )?;
    let mut gcc = Command::new("gcc");
    gcc.args(KERNEL_FLAGS).arg("-I").arg(crate_dir().join("include")).arg("-c").arg(&source).arg("-o").arg(&object);
    run(&mut gcc)?;
    let mut ld = Command::new("ld");
    ld.current_dir(dir).args(["--gc-sections", "-static", "-e", "start", "--fatal-warnings"]).args(how);
    for name in functions()? {
        ld.args(["-u", name.as_str(), "--require-defined", name.as_str()]);
    }
    run(ld.arg("-o").arg(&linked).arg(&object).arg(archive))?;
    Ok(linked)
}

/// The size of one section, in bytes.
fn section_bytes(sizes: &str, name: &str) -> u64 {
    let line = sizes.lines().find(|line| line.split_whitespace().next() == Some(name));
    line.and_then(|line| line.split_whitespace().nth(1)).and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// What `linked` contains is what a kernel may run, and no call takes more stack than the guide says.
fn assert_obeys(linked: &Path) -> Result<()> {
    let listing = run(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(linked))?;
    assert!(listing.lines().count() > 3_000, "only {} lines were disassembled", listing.lines().count());
    let breaches = code::breaches(&listing);
    assert!(breaches.is_empty(), "{breaches:#?}");
    let depths = stack::depths(&listing)?;
    for name in functions()? {
        let (bytes, max) = (depths.get(&name).copied().unwrap_or(0), stack_bytes_max(&name));
        assert!(bytes <= max, "{name} takes {bytes} bytes of stack, at most {max}");
    }
    Ok(())
}

#[test]
fn the_archive_obeys_a_kernels_rules_and_is_small() -> Result<()> {
    let Some(archive) = archive("x86")? else { return Ok(()) };
    let linked = link(&archive, &scratch("kernel-link")?, &["-Ttext=0xffffffff80100000"])?;
    assert_obeys(&linked)?;

    let sizes = run(Command::new("size").arg("-A").arg(&linked))?;
    let names = [".text", ".rodata", ".data.rel.ro", ".data", ".bss"];
    let bytes = names.map(|name| section_bytes(&sizes, name));
    let cpu_bytes = tlbkit_c::storage::tlbkit_layout().cpu_state_bytes;
    println!(
        "{}, each CPU {cpu_bytes} bytes",
        names.iter().zip(bytes).map(|(n, b)| format!("{n} {b}")).collect::<Vec<_>>().join(", ")
    );
    assert!(bytes[0] > 10_000, "text of {} bytes: the link lost the library", bytes[0]);
    assert!(bytes[0] <= TEXT_BYTES_MAX, "text of {} bytes, at most {TEXT_BYTES_MAX}", bytes[0]);
    assert!(cpu_bytes <= CPU_BYTES_MAX, "{cpu_bytes} bytes for each CPU, at most {CPU_BYTES_MAX}");
    Ok(())
}

/// What a kernel takes when it runs: the same rules, and less text.
#[test]
fn the_fast_archive_obeys_them_too_and_is_smaller() -> Result<()> {
    let features = ["--no-default-features", "--features", "linked,x86"];
    let Some(archive) = archive_of("archive-fast", &features)? else { return Ok(()) };
    let dir = scratch("fast-link")?;
    let named = ["--defsym=tlbkit_k_send_ipi=0", "--defsym=tlbkit_k_send_ipi_to_others=0"];
    let linked = link(&archive, &dir, &[&["-Ttext=0xffffffff80100000"], named.as_slice()].concat())?;
    assert_obeys(&linked)?;
    let text = section_bytes(&run(Command::new("size").arg("-A").arg(&linked))?, ".text");
    println!(".text {text}");
    assert!(text <= FAST_TEXT_BYTES_MAX, "text of {text} bytes, at most {FAST_TEXT_BYTES_MAX}");
    Ok(())
}

/// What no line of a script names becomes a section of its own in what is linked.
#[test]
fn the_linker_script_of_the_guide_places_every_section() -> Result<()> {
    let Some(archive) = archive("x86")? else { return Ok(()) };
    let guide = std::fs::read_to_string(crate_dir().join("../../docs/kernel/reference.md"))?;
    let block = guide.split_once("```ld\n").and_then(|(_, rest)| rest.split_once("```"));
    let dir = scratch("guide-link")?;
    std::fs::write(dir.join("kernel.ld"), block.ok_or("no script in the guide")?.0)?;
    let linked = link(&archive, &dir, &["-T", "kernel.ld", "--no-warn-rwx-segments"])?;
    let sizes = run(Command::new("size").arg("-A").arg(&linked))?;
    let names = sizes.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| name.starts_with('.'));
    assert_eq!(names.collect::<Vec<_>>(), [".text", ".rodata", ".data", ".bss"]);
    Ok(())
}
