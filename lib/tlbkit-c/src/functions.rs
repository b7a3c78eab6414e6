//! The kernel's functions with nothing missing, as the machine keeps them.

use crate::hot::Hot;
use crate::ops::{HardwareOps, LateChoice};
use crate::status::Status;
use crate::storage::SpaceStorage;

/// The table with nothing missing.
pub(crate) struct Ops {
    pub(crate) hot: Hot,
    pub(crate) features: unsafe extern "C" fn(u32) -> u32,
    pub(crate) now_cycles: unsafe extern "C" fn(u32) -> u64,
    pub(crate) late: unsafe extern "C" fn(u32, u32) -> u32,
    pub(crate) last_lazy_reference: Option<unsafe extern "C" fn(u32, *mut SpaceStorage)>,
    #[cfg_attr(not(feature = "checked"), allow(dead_code, reason = "nobody asks"))]
    pub(crate) this_cpu: Option<unsafe extern "C" fn() -> u32>,
    pub(crate) unanswered: Option<unsafe extern "C" fn(u32, u32)>,
    pub(crate) lazy_left: Option<unsafe extern "C" fn(u32, *mut SpaceStorage)>,
    #[cfg(feature = "events")]
    pub(crate) event: Option<unsafe extern "C" fn(u32, u32, u64)>,
    pub(crate) patience_turns: u32,
    pub(crate) patience_rounds: u32,
}

impl Ops {
    pub(crate) const fn tells_of_last_reference(&self) -> bool {
        self.last_lazy_reference.is_some()
    }

    pub(crate) fn new(table: &HardwareOps) -> Result<Self, Status> {
        Ok(Self {
            hot: Hot::new(table)?,
            features: table.features.ok_or(Status::NoFunction)?,
            now_cycles: table.now_cycles.unwrap_or(no_clock),
            late: table.late.unwrap_or(ask_again),
            last_lazy_reference: table.last_lazy_reference,
            this_cpu: table.this_cpu,
            unanswered: table.unanswered,
            lazy_left: table.lazy_left,
            #[cfg(feature = "events")]
            event: table.event,
            patience_turns: or(table.patience_turns, 1 << 14),
            patience_rounds: or(table.patience_rounds, 1 << 15),
        })
    }
}

const extern "C" fn no_clock(_cpu: u32) -> u64 {
    0
}

const extern "C" fn ask_again(_cpu: u32, _missing: u32) -> u32 {
    LateChoice::AskAgain as u32
}

/// `chosen`, or the library's own if the kernel has chosen nothing.
const fn or(chosen: u32, own: u32) -> u32 {
    if chosen == 0 { own } else { chosen }
}
