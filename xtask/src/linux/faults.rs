//! The value checks on kernels with a fault in the port: each must be seen.

use anyhow::{Result, bail};
use std::fs;
use std::path::Path;

use super::boot::Boot;
use super::build::{self, Kernel};
use super::guest::Guest;
use super::source;

/// A change of one of our files in Linux, which takes something out.
struct Fault {
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "other CPUs are not told",
        file: "tlb_flush.c",
        from: "\tif (unlikely(irqs_disabled()))\n\t\ttlb_must(flush_alone(cpu, mm, span), __func__);\n",
        to: "\tif (true)\n\t\ttlb_not_refused(flush_alone(cpu, mm, span));\n",
    },
    Fault { name: "no page is dropped", file: "tlb_hardware.c", from: "\tinvlpg(va);\n", to: "" },
    Fault {
        name: "who was lazy does not look",
        file: "tlb.c",
        from: "\tif (!this_cpu_read(cpu_tlbstate_shared.is_lazy))\n",
        to: "\tif (true)\n",
    },
];

/// Builds and boots each; false if one was not seen, or if the kernel without a fault does not pass.
pub(super) fn run(root: &Path, guest: &Guest) -> Result<bool> {
    let tree = source::replaced(root, &build::object(root)?)?;
    let folder = build::folder(root, Kernel::Tlbkit);
    let mut is_fine = true;
    for fault in FAULTS {
        let path = root.join("metal/linux").join(fault.file);
        let text = fs::read_to_string(&path)?;
        if text.matches(fault.from).count() != 1 {
            bail!("{}: no such text, or not once: {}", path.display(), fault.from.trim());
        }
        source::put(text.replace(fault.from, fault.to).as_bytes(), &tree.join("arch/x86/mm").join(fault.file))?;
        let ended =
            build::compile(&tree, &folder).and_then(|image| Boot::at_once(4, "", "check 10").run(&image, guest));
        source::put(text.as_bytes(), &tree.join("arch/x86/mm").join(fault.file))?;
        let ended = ended?;
        let what =
            ended.lines("failure").first().map_or("no answer in time".to_owned(), |line| line["what"].to_string());
        println!("linux: faults: {}: {}", fault.name, if ended.is_well() { "NOT SEEN" } else { &what });
        is_fine &= !ended.is_well();
    }
    let whole = Boot::at_once(4, "", "check 10").run(&build::compile(&tree, &folder)?, guest)?;
    println!("linux: faults: none: {}", if whole.is_well() { "passed" } else { "FAILED" });
    Ok(is_fine && whole.is_well())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup;

    #[test]
    fn each_fault_is_in_the_text_once() -> Result<()> {
        for fault in FAULTS {
            let text = fs::read_to_string(setup::root()?.join("metal/linux").join(fault.file))?;
            assert_eq!(text.matches(fault.from).count(), 1, "{}", fault.name);
        }
        Ok(())
    }
}
