//! What the loader passes to the kernel: through PVH or, on a disk image, in words that the builder of the image wrote
//! there.

use core::ffi::{CStr, c_char};

use crate::layout::{IMAGE_PHYS, direct};

/// First word of PVH's structure.
const MAGIC: u32 = 0x336e_c578;
/// The amount of memory that is assumed if the loader does not say.
const UNTOLD_MEMORY: u64 = 256 << 20;
const RAM: u32 = 1;

#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_entries: u32,
}

#[repr(C)]
struct MemoryEntry {
    at: u64,
    bytes: u64,
    kind: u32,
    _reserved: u32,
}

/// What the kernel needs to know from its loader.
pub(super) struct Start {
    pub(super) command_line: &'static str,
    pub(super) memory_end: u64,
}

/// Reads PVH's structure at physical address `at`; without one, takes what the image itself says.
pub(super) fn read(at: u32) -> Start {
    unsafe extern "C" {
        static boot_command_line: c_char;
    }
    // SAFETY: the loader's pointers, or null, in the first GiB, which is mapped; the image's own line ends in zero.
    unsafe {
        let info = &*(direct(u64::from(at)) as *const StartInfo);
        if at == 0 || info.magic != MAGIC {
            // Linked where it is loaded, which stays mapped in the direct map alone.
            let own = direct((&raw const boot_command_line) as u64) as *const c_char;
            return Start { command_line: text(own), memory_end: UNTOLD_MEMORY };
        }
        let command_line = if info.command_line == 0 { "" } else { text(direct(info.command_line) as *const c_char) };
        Start { command_line, memory_end: memory_end(info) }
    }
}

/// # Safety
/// A string that ends in zero and lives for ever.
unsafe fn text(at: *const c_char) -> &'static str {
    // SAFETY: by the caller's contract.
    unsafe { CStr::from_ptr(at) }.to_str().unwrap_or("?=the command line is not UTF-8")
}

/// The end of the memory that the image lies in.
///
/// # Safety
/// A structure of the loader.
unsafe fn memory_end(info: &StartInfo) -> u64 {
    if info.version == 0 || info.memory_map == 0 {
        return UNTOLD_MEMORY;
    }
    let first = direct(info.memory_map) as *const MemoryEntry;
    // SAFETY: the loader's table, as long as it says.
    let entries = unsafe { core::slice::from_raw_parts(first, info.memory_entries as usize) };
    let home = entries.iter().find(|one| one.kind == RAM && (one.at..one.at + one.bytes).contains(&IMAGE_PHYS));
    home.map_or(UNTOLD_MEMORY, |one| one.at + one.bytes)
}
