//! The value of `-m`: a number of MiB, or `auto`.

use crate::process::memory::{Bound, lowest_bound};
use std::str::FromStr;

/// Bytes in a MiB.
pub(super) const MEBIBYTE: usize = 1 << 20;

/// What `auto` leaves at least, in MiB: for buffers of connections (64 unless `-o
/// read_buf_mem_limit` changes that), threads, and the program itself.
const MIN_REST: u64 = 96;

/// The largest limit, in MiB.
pub(crate) const MAX_MEBIBYTES: u32 = (relativist_store::MAX_LIMIT / MEBIBYTE) as u32;

/// The limit on the memory for items and table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemoryLimit {
    mebibytes: u32,
    bound: Option<Bound>,
}

impl MemoryLimit {
    /// The limit in bytes.
    pub(super) fn bytes(&self) -> usize {
        (self.mebibytes as usize).saturating_mul(MEBIBYTE)
    }

    /// If the limit is a share of what the process may use: what the log says about it.
    pub(crate) fn explanation(&self) -> Option<String> {
        let Bound { bytes, file } = self.bound.as_ref()?;
        let (share, all, file) = (self.mebibytes, bytes / MEBIBYTE as u64, file.display());
        Some(format!("-m auto: {share} MiB for items and table, of {all} MiB ({file})"))
    }

    /// Three quarters of the bound, or less if otherwise less than [`MIN_REST`] would be left, and
    /// at most [`MAX_MEBIBYTES`].
    fn share(bound: Bound) -> Result<MemoryLimit, String> {
        let all = bound.bytes / MEBIBYTE as u64;
        match all.saturating_sub((all / 4).max(MIN_REST)) {
            0 => {
                Err(format!("{all} MiB ({}) are too few: the server needs {MIN_REST} besides -m", bound.file.display()))
            }
            share => Ok(MemoryLimit { mebibytes: share.min(MAX_MEBIBYTES.into()) as u32, bound: Some(bound) }),
        }
    }
}

impl FromStr for MemoryLimit {
    type Err = String;

    /// Parses a value of `-m`. `auto` reads what the process may use.
    fn from_str(text: &str) -> Result<MemoryLimit, String> {
        match text {
            "auto" => MemoryLimit::share(lowest_bound().ok_or("cannot find out how much memory there is")?.clone()),
            _ => match text.parse() {
                Ok(mebibytes @ 1..=MAX_MEBIBYTES) => Ok(MemoryLimit { mebibytes, bound: None }),
                _ => Err(format!("neither `auto` nor a number of MiB from 1 to {MAX_MEBIBYTES}")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_takes_three_quarters_but_leaves_room_for_the_rest() {
        let share = |mebibytes: u64| {
            let bytes = mebibytes * MEBIBYTE as u64 + 1;
            MemoryLimit::share(Bound { bytes, file: "/limit".into() }).map(|limit| limit.mebibytes)
        };
        for (all, part) in [(97, 1), (256, 160), (384, 288), (1024, 768), (8192, 6144), (u64::MAX >> 21, MAX_MEBIBYTES)]
        {
            assert_eq!(share(all), Ok(part), "{all}");
        }
        for too_few in [0, 64, 96] {
            let problem = format!("{too_few} MiB (/limit) are too few: the server needs 96 besides -m");
            assert_eq!(share(too_few), Err(problem));
        }
    }

    #[test]
    fn a_number_of_mebibytes_is_taken_as_it_is() {
        let limit: MemoryLimit = "131072".parse().unwrap();
        assert_eq!(limit.bytes(), 128 << 30);
        assert!(limit.explanation().is_none());
        for wrong in ["", "0", "-1", "131073", "1.5", "1g", "Auto"] {
            assert!(wrong.parse::<MemoryLimit>().is_err(), "{wrong:?}");
        }
    }
}
