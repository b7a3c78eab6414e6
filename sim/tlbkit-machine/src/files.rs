//! Where machine files come from: some are part of the program, others are read from the disk.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::error::MachineError;
use super::model::Machine;
use super::quantity::Quantity;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each.
        const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../machines/", $name, ".toml")))),*];
    };
}

files![
    "skylake-laptop-kvm",
    "server-2018-48cpu",
    "server-2008-8cpu",
    "skylake-desktop-pti",
    "ivybridge-8thread",
    "ivybridge-4thread",
    "haswell-2019",
    "haswell-4770",
    "sapphire-rapids",
    "sapphire-rapids-96core",
    "skylake-56cpu",
    "milan-36core",
    "cascade-lake-96core",
    "skylake-52core",
    "skylake-104thread",
    "ice-lake-64core",
    "cooper-lake-72core",
    "genoa-192core",
    "turin-384core",
    "guest-64cpu",
    "ivy-bridge-24core",
    "zen4",
    "recent-bare",
    "recent-vm",
    "recent-vm-fractured",
];

/// What messages call the file of a machine that is part of the program, and its text.
pub(super) fn builtin(name: &str) -> Result<(String, &'static str), MachineError> {
    let known = || Machine::names().collect::<Vec<_>>().join(", ");
    let text = Machine::text(name).ok_or_else(|| MachineError::Unknown { name: name.into(), known: known() })?;
    Ok((format!("sim/machines/{name}.toml"), text))
}

/// The largest machine file: ours have some 20 KB. What has no end, such as a device, is no machine file either.
const MOST_BYTES: u64 = 1 << 20;

/// What messages call the file at `path`, and its text.
pub(super) fn read(path: &Path) -> Result<(String, String), MachineError> {
    let failed = |source| MachineError::Read { path: path.into(), source };
    let mut text = String::new();
    File::open(path).map_err(failed)?.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(MachineError::TooLarge { path: path.into(), most_bytes: MOST_BYTES });
    }
    Ok((path.display().to_string(), text))
}

impl Machine {
    /// Names of the machines that are part of the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|&(name, _)| name)
    }

    /// A machine that is part of the program.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn builtin(name: &str) -> Result<Self, MachineError> {
        let (file, text) = builtin(name)?;
        Self::parse(&file, text)
    }

    /// The file of a machine that is part of the program, to be copied and changed; none if there is none of this name.
    #[must_use]
    pub fn text(name: &str) -> Option<&'static str> {
        FILES.iter().find(|&&(known, _)| known == name).map(|&(_, text)| text)
    }

    /// A machine from a file.
    ///
    /// # Errors
    /// If the file cannot be read or says something wrong.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, MachineError> {
        let (file, text) = read(path.as_ref())?;
        Self::parse(&file, &text)
    }

    /// The machine of this name that is part of the program; if there is none, the one of the file at this path.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn named(name: &str) -> Result<Self, MachineError> {
        if Self::text(name).is_some() { Self::builtin(name) } else { Self::load(name) }
    }

    /// Every number with its dotted name, in the order of the file: for reports that say what a figure rests on.
    #[must_use]
    pub fn quantities(&self) -> Vec<(String, &Quantity)> {
        let mut all = Vec::new();
        self.visit(&mut |name, quantity, _| all.push((name, quantity)));
        all
    }
}
