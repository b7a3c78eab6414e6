//! Whether this machine's kernel can name the recording's functions: only if it is the very same boot.

use super::bytes::Bytes;
use super::decode::Decoder;
use crate::symbols::Symbols;
use std::sync::{Arc, OnceLock};

/// Where names of kernel functions come from.
pub(super) enum SymbolSource {
    /// This machine's kernel, if the recording is of the very same boot.
    SameBoot,
    /// That is settled.
    Decided,
}

impl SymbolSource {
    /// Meets a record of mapped code; that of the kernel tells where it lay.
    pub(super) fn meet(&mut self, mut b: Bytes<'_>, decoder: &mut Decoder) {
        if let Self::Decided = self {
            return;
        }
        let begin = b.take(8).and_then(|_| b.u64());
        let name = b.take(16).and_then(|_| b.text());
        if !name.is_some_and(|name| name.starts_with(b"[kernel.kallsyms]_")) {
            return;
        }
        let here = of_this_kernel();
        if begin == Some(here.text_start()) {
            decoder.set_symbols(Arc::clone(here));
        }
        *self = Self::Decided;
    }
}

/// Asked for once: the kernel takes 30 ms and more to tell, and a file may be read several times.
fn of_this_kernel() -> &'static Arc<Symbols> {
    static HERE: OnceLock<Arc<Symbols>> = OnceLock::new();
    HERE.get_or_init(|| Arc::new(Symbols::of_this_kernel()))
}
