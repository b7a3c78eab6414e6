//! The space on a disk that a recording may take: how much of it is taken, and when the recording must end.

use std::fs;
use std::path::Path;

use anyhow::Result;
use tlbkit_host::recorder::free_bytes;

/// What stays free on a disk: more than perf has still to write when it is asked to end, some 200 ms of events.
const RESERVE_BYTES: u64 = 32_000_000;

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The command ended, or the time was up, or somebody wanted it.
    WithSubject,
    /// There is as much of it as was allowed.
    AtLimit,
    /// The disk is nearly full.
    AtFullDisk,
}

/// A file that grows, and its disk.
pub(super) struct Place<'a> {
    file: &'a Path,
    folder: &'a Path,
    bytes_max: u64,
    reserve_bytes: u64,
}

impl<'a> Place<'a> {
    /// A recording of at most `megabytes_max`, which never takes the last tenth of what is free now. What stays free is
    /// watched too, as other programs may fill the disk as well.
    pub(super) fn new(file: &'a Path, folder: &'a Path, megabytes_max: u64) -> Result<Self> {
        let free = free_bytes(folder)?;
        let bytes_max = (megabytes_max * 1_000_000).min(free / 10 * 9);
        Ok(Self { file, folder, bytes_max, reserve_bytes: RESERVE_BYTES.min(free / 10) })
    }

    /// What has been written.
    pub(super) fn bytes(&self) -> u64 {
        fs::metadata(self.file).map_or(0, |data| data.len())
    }

    /// Why no more may be written; none if it may.
    pub(super) fn is_full(&self) -> Result<Option<End>> {
        if self.bytes() > self.bytes_max {
            return Ok(Some(End::AtLimit));
        }
        Ok((free_bytes(self.folder)? < self.reserve_bytes).then_some(End::AtFullDisk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_at_its_limit_and_a_disk_without_reserve_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grows");
        let mut place = Place::new(&file, folder.path(), 1).unwrap();
        assert_eq!((place.bytes(), place.is_full().unwrap()), (0, None));
        fs::write(&file, vec![0; 1_000_001]).unwrap();
        assert_eq!((place.bytes(), place.is_full().unwrap()), (1_000_001, Some(End::AtLimit)));
        fs::write(&file, "").unwrap();
        place.reserve_bytes = u64::MAX;
        assert_eq!(place.is_full().unwrap(), Some(End::AtFullDisk));
    }
}
