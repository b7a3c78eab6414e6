//! Call sites: the functions of the program that led to a flush, innermost first.

use super::elf::Functions;
use super::mapping::Space;
use crate::names::{Code, Name, Names, StackId};
use rustc_hash::FxHashMap;
use std::path::Path;

/// How many functions name a site.
const FRAMES: usize = 4;
/// The most files whose functions are kept, more than any program maps. If there are more, all are read anew.
const MAX_FILES: usize = 1 << 10;
/// The most sites that are kept. Flushes from further ones have no site.
const MAX_SITES: usize = 1 << 17;

/// The most processes whose sites are kept. If there are more, all are looked up anew.
const MAX_PROCESSES: usize = 1 << 12;

/// How the names of functions begin through which the kernel is entered. The frames further out are the program's.
const ENTRIES: [&str; 4] = ["entry_SYSCALL_64_after_hwframe", "asm_", "ret_from_fork", "entry_SYSCALL_compat"];

/// The number of a site in [`Sites`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Site(u32);

/// The sites of a trace.
#[derive(Default)]
pub(super) struct Sites {
    texts: indexmap::IndexSet<Box<str>>,
    known: FxHashMap<i32, FxHashMap<StackId, Option<Site>>>,
    /// By process and place in code.
    places: FxHashMap<i32, FxHashMap<Code, Option<Site>>>,
    files: FxHashMap<Name, Functions>,
}

impl Sites {
    /// The site of a stack in the process `pid`, whose mappings are `space`. None if the stack has no frames of the
    /// program, or if there are too many sites already.
    pub(super) fn of(&mut self, pid: i32, stack: StackId, space: Option<&Space>, names: &Names) -> Option<Site> {
        if let Some(&site) = self.known.get(&pid).and_then(|known| known.get(&stack)) {
            return site;
        }
        let frames = names.stack(stack);
        let entry = frames.iter().rposition(|&frame| is_entry(frame, names));
        let is_users = |code: &&Code| code.name().is_some() || code.get() < 1 << 47;
        let own = frames[entry.map_or(0, |entry| entry + 1)..].iter();
        // Without an entry among the frames, those with names could be the kernel's.
        let own: Vec<_> = own.filter(is_users).filter(|code| entry.is_some() || code.name().is_none()).collect();
        // If the program has no frame pointers, the frames from some place on are not callers. An address in no mapped
        // memory shows that.
        let is_there =
            |code: &&&Code| code.name().is_some() || space.is_none_or(|space| space.find(code.get()).is_some());
        let inner = own.first().copied();
        let own = inner.into_iter().chain(own.iter().skip(1).take_while(is_there).copied());
        let texts: Vec<_> = own.take(FRAMES).map(|&code| self.function(code, space, names)).collect();
        let site = (!texts.is_empty() && self.texts.len() < MAX_SITES)
            .then(|| Site(self.texts.insert_full(texts.join(" < ").into()).0 as u32));
        if self.known.len() >= MAX_PROCESSES {
            self.known.clear();
        }
        self.known.entry(pid).or_default().insert(stack, site);
        site
    }

    /// The site of one place in code.
    pub(super) fn at(&mut self, pid: i32, code: Code, space: Option<&Space>, names: &Names) -> Option<Site> {
        if let Some(&site) = self.places.get(&pid).and_then(|places| places.get(&code)) {
            return site;
        }
        let text = self.function(code, space, names);
        let site = (self.texts.len() < MAX_SITES).then(|| Site(self.texts.insert_full(text.into_boxed_str()).0 as u32));
        if self.places.len() >= MAX_PROCESSES {
            self.places.clear();
        }
        let places = self.places.entry(pid).or_default();
        if places.len() < MAX_SITES {
            places.insert(code, site);
        }
        site
    }

    /// The process has other memory from now on, or another process has its number.
    pub(super) fn forget(&mut self, pid: i32) {
        self.known.remove(&pid);
        self.places.remove(&pid);
    }

    /// The functions of the site, innermost first.
    pub(super) fn text(&self, site: Site) -> &str {
        self.texts.get_index(site.0 as usize).map_or("?", |text| text)
    }

    /// The name of the function at `code`, or for want of one its offset in its file, or its address.
    fn function(&mut self, code: Code, space: Option<&Space>, names: &Names) -> String {
        if code.name().is_some() {
            return names.code(code);
        }
        let Some((file, offset)) = space.and_then(|space| space.place_in_file(code.get())) else {
            return names.code(code);
        };
        if self.files.len() >= MAX_FILES && !self.files.contains_key(&file) {
            self.files.clear();
        }
        let functions = self.files.entry(file).or_insert_with(|| Functions::of_file(Path::new(names.text(file))));
        let of_file = || {
            let short = names.text(file).rsplit('/').next().unwrap_or("?");
            format!("{short}+{offset:#x}")
        };
        functions.name(offset).unwrap_or_else(of_file)
    }
}

fn is_entry(frame: Code, names: &Names) -> bool {
    frame.name().is_some_and(|name| ENTRIES.iter().any(|start| names.text(name).starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_what_lies_outside_the_kernel() {
        let mut names = Names::default();
        let kernel = ["flush_tlb_mm_range", "entry_SYSCALL_64_after_hwframe"];
        let frames = [kernel[0], kernel[1], "mprotect", "main"].map(|text| Code::symbol(names.add(text)));
        let stack = names.add_stack(&frames).unwrap();
        let inside = names.add_stack(&frames[..1]).unwrap();
        let bare = names.add_stack(&[frames[0], frames[1], Code::address(0x1234)]).unwrap();
        let mut sites = Sites::default();
        let site = sites.of(1, stack, None, &names).unwrap();
        assert_eq!(sites.text(site), "mprotect < main");
        assert_eq!(sites.of(1, inside, None, &names), None);
        let site = sites.of(1, bare, None, &names).unwrap();
        assert_eq!(sites.text(site), "0x1234");
    }
}
