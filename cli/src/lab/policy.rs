//! A policy from its text, and what is wrong with a text in one line.

use anyhow::{Result, anyhow};
use tlbkit::{Policy, TextError};
use tlbkit_sim::FileReads;
use tlbkit_sim::machine::Code;

/// The policy that `text` names: `PRESET[:KEY=VALUE[+KEY=VALUE...]]`.
pub(crate) fn parse(text: &str) -> Result<Policy> {
    Policy::parse(text).map_err(|error| match error {
        TextError::NoPreset(_) => anyhow!("{error}"),
        _ => anyhow!("policy {text}: {error}"),
    })
}

/// Whose instructions a policy is charged with, by the preset that its text names.
pub(crate) fn code(text: &str) -> Code {
    Code::of_preset(text.split(':').next().unwrap_or_default())
}

/// Through what the kernel of the preset that `text` names reads files: NetBSD's map windows, the others read their map
/// of all memory. It is no field of the policy, as the protocol only sees the flushes.
pub(crate) fn file_reads(text: &str) -> FileReads {
    if text.starts_with("netbsd-") { FileReads::Windows } else { FileReads::DirectMap }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_netbsd_s_presets_read_files_through_windows() {
        for preset in tlbkit::PRESETS {
            let expected = if preset.name.contains("netbsd") { FileReads::Windows } else { FileReads::DirectMap };
            assert_eq!(file_reads(&format!("{}:lazy=off", preset.name)), expected, "{}", preset.name);
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (text, part) in [
            ("linux-9", "no policy linux-9: there are tlbkit,"),
            ("xnu:colour=red", "policy xnu:colour=red: no setting colour: there are pcid,"),
            ("xnu:pcid=16", "policy xnu:pcid=16: pcid=16: must be off, or 1 to 15 slots"),
            ("xnu:pcid", "pcid is no KEY=VALUE"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
