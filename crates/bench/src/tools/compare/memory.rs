//! The workload that measures the resident set. Each candidate runs in its own process, which is
//! this program, started again as `relativist-bench compare-child`. The memory of that process
//! before the candidate is made is the same for all, and is subtracted.

use std::env::current_exe;
#[cfg(target_os = "linux")]
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Serialize;
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System, get_current_pid};

use super::job::{Context, Job, Setting, titles};
use super::{Subject, caches::Caches, maps::Maps};
use crate::harness::comparison::Measured;
use crate::harness::options::{parse_count, spell};
use crate::tables::entries::Kind;

/// The arguments of the child process, which does one measurement.
#[derive(Clone, Debug, clap::Args, Serialize)]
pub struct ChildArgs {
    subject: String,
    candidate: String,
    #[arg(value_parser = parse_count)]
    pub entries: u64,
    #[arg(value_enum)]
    pub kind: Option<Kind>,
}

/// Plans the measurement of bytes per entry.
pub fn memory<'a, S: Subject>(context: Context<'a, S>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    let candidates = context.candidates(setting);
    let (names, rounds) = (titles(&candidates), context.options.rounds.min(3));
    let values = vec![(setting.clone(), "bytes per entry")];
    let setting = setting.clone();
    let measure = move |candidate: usize, _| {
        let bytes = measure_in_child(&setting, candidates[candidate].name)?;
        Ok(vec![Measured::single(bytes)])
    };
    Ok(vec![Job::several(values, names, rounds, measure)])
}

fn measure_in_child(setting: &Setting, candidate: &str) -> Result<f64> {
    let mut command = Command::new(current_exe().context("cannot find this program to start it again")?);
    command.args(["compare-child", setting.subject, candidate, &setting.entries.to_string()]);
    command.args(setting.kind.map(|kind| spell(&kind)));
    #[cfg(target_os = "linux")]
    {
        relativist_check::supervisor::tie(&mut command);
        // A huge page that the allocator has begun counts 2 MiB, which is more than a small cache
        // needs.
        let disable = || Ok(rustix::thread::disable_transparent_huge_pages(true)?);
        // SAFETY: between fork and exec, the closure makes one system call that is allowed there,
        // and allocates nothing.
        unsafe { command.pre_exec(disable) };
    }
    let output = command.stderr(Stdio::inherit()).output().context("cannot start this program again")?;
    ensure!(output.status.success(), "the measuring process failed: {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    text.trim().parse().context("cannot parse the output of the measuring process")
}

/// Measures in the child process, and prints the bytes per entry.
pub fn run_child(args: &ChildArgs) -> Result<()> {
    let bytes = match args.subject.as_str() {
        Maps::NAME => resident::<Maps>(args),
        Caches::NAME => resident::<Caches>(args),
        other => bail!("{other} has no entries"),
    };
    println!("{}", bytes?);
    Ok(())
}

fn resident<S: Subject>(args: &ChildArgs) -> Result<f64> {
    let candidate = S::CANDIDATES.iter().find(|entry| entry.name == args.candidate);
    S::resident(&candidate.with_context(|| format!("no such candidate: {}", args.candidate))?.what, args)
}

/// The resident set of this process.
pub struct Memory {
    system: System,
    before: u64,
}

impl Memory {
    pub fn now() -> Result<Self> {
        let mut memory = Self { system: System::new()?, before: 0 };
        // Measured twice, because the first measurement allocates.
        memory.before = memory.resident()?;
        memory.before = memory.resident()?;
        Ok(memory)
    }

    /// Returns by how many bytes the resident set has grown since the beginning.
    pub fn grown(&mut self) -> Result<u64> {
        Ok(self.resident()?.saturating_sub(self.before))
    }

    fn resident(&mut self) -> Result<u64> {
        let process = get_current_pid().map_err(anyhow::Error::msg)?;
        let only_memory = ProcessRefreshKind::nothing().with_memory();
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&[process]), false, only_memory);
        Ok(self.system.process(process).context("the system does not report the resident set")?.memory())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_used_is_seen() {
        let mut memory = Memory::now().unwrap();
        let before = memory.grown().unwrap();
        let block = vec![1u8; 256 << 20];
        let grown = memory.grown().unwrap() - before;
        // Other tests of this process allocate and free at the same time.
        assert!(grown > 128 << 20, "{grown}");
        drop(block);
    }
}
