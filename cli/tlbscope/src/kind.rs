//! The kinds of files that this command writes, and that none of another kind may be lost for.

use tlbkit_output::kind::Kind;

/// A recording: ours, or perf's own.
pub(crate) const RECORDING: Kind = Kind { words: "recording", starts: &["tlbtrace", "PERFILE2"] };

/// How a machine file begins that was measured; one that a person wrote does not.
pub(crate) const MACHINE_START: &str = "# Written by tlbscope ";

/// A machine file that was measured.
pub(crate) const MACHINE: Kind = Kind { words: "machine file of tlbscope", starts: &[MACHINE_START] };
