//! Counts the instructions of hashing with callgrind.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::cost::HARNESS;
use crate::harness::callgrind::{callgrind, total};
use crate::harness::options::spell;
use crate::hashing::functions::modern::Fold;
use crate::hashing::functions::{HashFunction, all};
use crate::hashing::keys::Keys;

/// Hash keys, for callgrind to count.
#[derive(Debug, clap::Args)]
pub struct ChildArgs {
    /// The function; if not given, the loop alone
    #[arg(long)]
    function: Option<String>,

    #[arg(long, value_enum, value_delimiter = ',')]
    fold: Vec<Fold>,

    #[arg(long)]
    bits: u32,

    /// The keys, as JSON
    keys: PathBuf,
}

/// The function in which callgrind counts.
const COUNTED: &str = "relativist_counted_hashes";

/// The instructions that a function executes, without those of the loop over keys.
#[derive(Clone, Copy, Debug)]
pub struct Executed {
    pub instructions: f64,
    /// Bytes of executed code, including called functions. This is what the function occupies in
    /// the instruction cache.
    pub code_bytes: u64,
}

/// Counts the instructions of each of `functions`.
pub fn count(functions: &[Box<dyn HashFunction>], folds: &[Fold], keys: &Keys, bits: u32) -> Result<Vec<Executed>> {
    let file = tempfile_of(keys)?;
    let folds: Vec<String> = folds.iter().map(spell).collect();
    let executed = |function: Option<&str>| -> Result<Executed> {
        let mut arguments = vec!["hash-child".into(), format!("--bits={bits}"), format!("--fold={}", folds.join(","))];
        arguments.extend(function.map(|name| format!("--function={name}")));
        arguments.push(file.display().to_string());
        let text = callgrind(COUNTED, &["--dump-instr=yes", "--compress-pos=no"], &arguments)?;
        Ok(Executed { instructions: total(&text, "Ir")? / keys.len() as f64, code_bytes: code_bytes(&text) })
    };
    let counted = || -> Result<Vec<Executed>> {
        let harness = executed(None)?;
        let alone = |all: Executed| Executed {
            instructions: (all.instructions - harness.instructions).max(0.0),
            code_bytes: all.code_bytes.saturating_sub(harness.code_bytes),
        };
        functions.iter().map(|function| executed(Some(&function.name())).map(alone)).collect()
    };
    let counted = counted();
    fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    counted
}

/// Returns the bytes of the instructions in callgrind's output. The length of an instruction is the
/// distance to the next one. If that is not adjacent, a typical length is assumed.
fn code_bytes(text: &str) -> u64 {
    const USUAL: u64 = 4;
    const MAX_LENGTH: u64 = 15;
    let address = |line: &str| u64::from_str_radix(line.strip_prefix("0x")?.split(' ').next()?, 16).ok();
    let addresses: BTreeSet<u64> = text.lines().filter_map(address).collect();
    let lengths = addresses.iter().zip(addresses.iter().skip(1)).map(|(one, next)| next - one);
    lengths.map(|length| if length <= MAX_LENGTH { length } else { USUAL }).sum::<u64>() + USUAL
}

fn tempfile_of(keys: &Keys) -> Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("relativist-keys-{}.json", std::process::id()));
    let write = || -> Result<()> { Ok(serde_json::to_writer(BufWriter::new(File::create(&path)?), keys)?) };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

pub fn run_child(args: &ChildArgs) -> Result<()> {
    let keys: Keys = serde_json::from_reader(File::open(&args.keys)?)?;
    let functions = all(&args.fold);
    let named = |name: &String| functions.iter().find(|function| function.name() == *name).map(Box::as_ref);
    let function = match &args.function {
        Some(name) => named(name).with_context(|| format!("no function {name}"))?,
        None => &HARNESS,
    };
    ensure!(!keys.is_empty(), "no keys");
    std::hint::black_box(relativist_counted_hashes(function, &keys, args.bits));
    Ok(())
}

/// Hashes the keys; callgrind counts this function. Its name is not mangled, so that callgrind can
/// find it.
#[unsafe(no_mangle)]
#[inline(never)]
fn relativist_counted_hashes(function: &dyn HashFunction, keys: &Keys, bits: u32) -> usize {
    function.exercise(keys, bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_counted_once_however_often_it_is_executed() {
        let text =
            "events: Ir\nfn=(1) one\n0x100 0 7\n0x103 0 7\ncalls=7 0x200 0\n0x103 0 14\nfn=(2)\n0x200 0 7\n0x20f 0 7\n";
        // The lengths are 3, unknown, 15, and unknown for the last instruction.
        assert_eq!(code_bytes(text), 3 + 4 + 15 + 4);
    }
}
