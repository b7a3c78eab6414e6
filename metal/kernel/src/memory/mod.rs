//! Memory: its frames, and the kernel's own tables, which every space shares.

pub(crate) mod frames;
mod image;

use spin::Once;
use tlbkit::{Cr3, Pcid, PhysAddr};

use crate::layout::{DIRECT_BYTES, IMAGE, TRIAL_VA};
pub(crate) use frames::{Ram, drop_file_page, has_file_page};
pub(crate) use image::UNCACHED;

static ROOT: Once<PhysAddr> = Once::new();
static IMAGE_TABLES: Once<u64> = Once::new();

/// Frames in use: tables other than the image's own, data.
pub(crate) fn frames_used() -> (u64, u64) {
    let (tables, data) = frames::used();
    (tables - IMAGE_TABLES.wait(), data)
}

/// Hands all memory from the image's end up to `end` to the frames.
pub(crate) fn start(end: u64) {
    unsafe extern "C" {
        static __image_end: u8;
    }
    let first = (&raw const __image_end) as u64 - IMAGE;
    frames::start(first.next_multiple_of(frames::FRAME_BYTES), end.min(DIRECT_BYTES));
}

/// Fills the kernel's own top-level table, which every space will share.
pub(crate) fn map_kernel(root: PhysAddr, isolation: tlbkit::Isolation) {
    let (before, _) = frames::used();
    image::map(root, isolation);
    IMAGE_TABLES.call_once(|| frames::used().0 - before);
    ROOT.call_once(|| root);
}

/// Where the entry of the page for trials stands.
pub(crate) fn trial_entry() -> PhysAddr {
    image::entry(*ROOT.wait(), TRIAL_VA)
}

/// Loads the kernel's own tables on this CPU; on the first, before there are any, it keeps the boot tables.
pub(crate) fn load_kernel_tables() {
    if let Some(root) = ROOT.get() {
        // SAFETY: ring 0; these tables map all that the boot tables map of the upper half, and nothing below is used.
        unsafe { tlbkit_x86::write_cr3(Cr3::flushing(*root, Pcid::KERNEL)) }
    }
}

/// Gives the user half of an isolated root what the kernel must have there: the image, and with it its stacks, gates
/// and the code that loads the other half.
pub(crate) fn share_image_with_user_half(root: PhysAddr) {
    use tlbkit_pmap::Memory;
    let slot = 8 * 511;
    Ram.store(PhysAddr(root.0 + frames::FRAME_BYTES + slot), Ram.load(PhysAddr(root.0 + slot)));
}
