//! Decides whether this machine's kernel can name the functions of a recording: only if the recording is of the same
//! boot.

use super::bytes::Bytes;
use super::decode::Decoder;
use crate::symbols::Symbols;
use std::sync::{Arc, OnceLock};

/// Whether it is decided where the names of kernel functions come from.
pub(super) enum SymbolSource {
    /// Not yet: no record has told where the kernel's code lay.
    Undecided,
    /// It is. If the recording is of this boot, the decoder has the symbols of this machine's kernel.
    Decided,
}

impl SymbolSource {
    /// Looks at a record of mapped code. The one of the kernel tells at which address its code lay. If it is where the
    /// code of this machine's kernel lies, `decoder` gets its symbols.
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

/// The symbols of this machine's kernel. They are read once and kept, because that takes 30 ms or more and several
/// files may be read.
fn of_this_kernel() -> &'static Arc<Symbols> {
    static HERE: OnceLock<Arc<Symbols>> = OnceLock::new();
    HERE.get_or_init(|| Arc::new(Symbols::of_this_kernel()))
}
