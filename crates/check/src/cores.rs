//! Sets of CPUs to which servers and clients are pinned.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Serialize, Serializer};

/// A list of CPUs. If it is empty, threads and processes are not pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores(Vec<usize>);

impl Cores {
    /// Returns the first `count` CPUs that this process may use, or all if there are fewer.
    pub fn allowed(count: usize) -> Result<Self> {
        let set = sched_getaffinity(None).context("cannot get the CPUs of this thread")?;
        Ok(Self((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).take(count).collect()))
    }

    /// Returns one CPU for servers and another for clients, if there are two; otherwise both share
    /// one.
    pub fn apart(self) -> [Self; 2] {
        match self.0[..] {
            [first, second, ..] => [first, second].map(|cpu| Self(vec![cpu])),
            _ => [self.clone(), self],
        }
    }

    /// Pins the calling thread, the `index`-th of those that share these CPUs, to one of them.
    pub fn pin_one(&self, index: usize) -> Result<()> {
        match self.0.len() {
            0 => Ok(()),
            count => Self(vec![self.0[index % count]]).pin(),
        }
    }

    /// Calls `start` while this thread is confined to these CPUs. Processes that it starts inherit
    /// this.
    pub fn confine<T>(&self, start: impl FnOnce() -> T) -> Result<T> {
        if self.0.is_empty() {
            return Ok(start());
        }
        let before = sched_getaffinity(None).context("cannot get the CPUs of this thread")?;
        self.pin()?;
        let started = start();
        sched_setaffinity(None, &before).context("cannot give this thread its CPUs back")?;
        Ok(started)
    }

    fn pin(&self) -> Result<()> {
        let mut set = CpuSet::new();
        self.0.iter().for_each(|&cpu| set.set(cpu));
        sched_setaffinity(None, &set).with_context(|| format!("cannot run on CPU {self}"))
    }
}

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.parse::<usize>(), last.parse::<usize>()) {
                (Ok(first), Ok(last)) if first <= last && last < CpuSet::MAX_CPU => cpus.extend(first..=last),
                _ => return Err("expected CPUs such as 0 or 0,2-3".into()),
            }
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&cpus.join(","))
    }
}

impl Serialize for Cores {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_numbers_and_ranges() {
        assert_eq!("0,2-4".parse(), Ok(Cores(vec![0, 2, 3, 4])));
        for text in ["", "a", "3-2", "1,,2", "1048576"] {
            assert!(text.parse::<Cores>().is_err(), "{text}");
        }
    }

    #[test]
    fn servers_and_clients_are_apart_if_they_can_be() {
        let [servers, clients] = Cores(vec![3, 5, 7]).apart();
        assert_eq!((servers, clients), (Cores(vec![3]), Cores(vec![5])));
        assert_eq!(Cores(vec![3]).apart(), [Cores(vec![3]), Cores(vec![3])]);
        let allowed = sched_getaffinity(None).unwrap();
        let first = Cores::allowed(2).unwrap();
        assert_eq!(first.0.len(), 2.min(allowed.count() as usize));
        assert!(first.0.iter().all(|&cpu| allowed.is_set(cpu)));
    }

    #[test]
    fn a_confined_thread_gets_all_cpus_back() {
        let before = sched_getaffinity(None).unwrap();
        let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)).unwrap();
        let during = Cores(vec![cpu]).confine(|| sched_getaffinity(None).unwrap()).unwrap();
        assert_eq!(during.count(), 1);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
