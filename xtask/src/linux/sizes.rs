//! What each kernel takes of memory, read from its files.

use anyhow::{Context, Result};
use std::path::Path;

use super::build::{self, Kernel};
use super::symbols::{self, Symbol};

/// The objects of the TLB code; a kernel may lack some.
pub(super) const OBJECTS: [&str; 4] =
    ["arch/x86/mm/tlb.o", "arch/x86/mm/tlb_hardware.o", "arch/x86/mm/tlb_flush.o", "arch/x86/mm/tlbkit.o"];

/// Each size by its name, in bytes.
pub(super) fn of(root: &Path, kernel: Kernel) -> Result<Vec<(&'static str, u64)>> {
    let folder = build::folder(root, kernel);
    let all = symbols::read(&folder.join("vmlinux"))?;
    let mut tlb_code = 0;
    for object in OBJECTS.iter().map(|name| folder.join(name)).filter(|file| file.is_file()) {
        tlb_code +=
            symbols::read(&object)?.iter().filter(|one| one.is_code).map(|one| one.end - one.begin).sum::<u64>();
    }
    let of_init = find(&all, "init_mm")?;
    Ok(vec![
        ("an address space (`mm_struct`)", of_init.end - of_init.begin),
        ("for each CPU (the kernel's section)", between(&all, "__per_cpu_start", "__per_cpu_end")?),
        ("code of the kernel", between(&all, "_stext", "_etext")?),
        ("code of the TLB objects", tlb_code),
    ])
}

fn between(all: &[Symbol], begin: &str, end: &str) -> Result<u64> {
    Ok(find(all, end)?.begin - find(all, begin)?.begin)
}

fn find<'a>(all: &'a [Symbol], name: &str) -> Result<&'a Symbol> {
    all.iter().find(|one| one.name == name).with_context(|| format!("the kernel has no symbol {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_what_lies_between_its_marks() -> Result<()> {
        let all: Vec<Symbol> = ["10 D begin", "50 D end"].into_iter().filter_map(symbols::symbol).collect();
        assert_eq!(between(&all, "begin", "end")?, 0x40);
        assert!(find(&all, "middle").is_err());
        Ok(())
    }
}
