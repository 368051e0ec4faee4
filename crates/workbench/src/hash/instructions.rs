//! What hashing executes, counted by callgrind.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::cost::HARNESS;
use super::functions::modern::Fold;
use super::functions::{HashFunction, all};
use super::keys::Keys;
use crate::instructions::{callgrind, total};
use crate::options::spell;

/// Hash keys, for callgrind to count.
#[derive(Debug, clap::Args)]
pub struct ChildArgs {
    /// The function; none for the loop alone
    #[arg(long)]
    function: Option<String>,

    #[arg(long, value_enum, value_delimiter = ',')]
    fold: Vec<Fold>,

    #[arg(long)]
    bits: u32,

    /// The keys, as JSON
    keys: PathBuf,
}

/// Where counting begins and ends: callgrind is given this name.
const COUNTED: &str = "relativist_counted_hashes";

/// Instructions per key that each of `functions` executes, without those of the loop over keys.
///
/// # Errors
/// When valgrind is missing or fails.
pub fn count(functions: &[Box<dyn HashFunction>], folds: &[Fold], keys: &Keys, bits: u32) -> Result<Vec<f64>> {
    let file = tempfile_of(keys)?;
    let folds: Vec<String> = folds.iter().map(spell).collect();
    let per_key = |function: Option<&str>| -> Result<f64> {
        let mut arguments = vec!["hash-child".into(), format!("--bits={bits}"), format!("--fold={}", folds.join(","))];
        arguments.extend(function.map(|name| format!("--function={name}")));
        arguments.push(file.display().to_string());
        Ok(total(&callgrind(COUNTED, &[], &arguments)?, "Ir")? / keys.len() as f64)
    };
    let counted = || -> Result<Vec<f64>> {
        let harness = per_key(None)?;
        functions.iter().map(|function| Ok((per_key(Some(&function.name()))? - harness).max(0.0))).collect()
    };
    let counted = counted();
    fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    counted
}

fn tempfile_of(keys: &Keys) -> Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("relativist-keys-{}.json", std::process::id()));
    let write = || -> Result<()> { Ok(serde_json::to_writer(BufWriter::new(File::create(&path)?), keys)?) };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Hashes the keys once.
///
/// # Errors
/// When the keys can't be read or there is no such function.
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

/// What is counted. Has a name that callgrind can be told.
#[unsafe(no_mangle)]
#[inline(never)]
pub(super) fn relativist_counted_hashes(function: &dyn HashFunction, keys: &Keys, bits: u32) -> usize {
    function.exercise(keys, bits)
}
