//! Samples, saved as they are taken, so that a run can be interrupted and resumed.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Results;
use relativist_bench::harness::options::spell;

/// A file whose first line has the parameters. Each following line has a sample and its step in the
/// plan.
#[derive(Debug)]
pub struct Store<P, S> {
    file: File,
    samples: Vec<Kept<P, S>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept<P, S> {
    step: P,
    sample: S,
}

impl<P: Clone + PartialEq + Serialize + DeserializeOwned, S: Serialize + DeserializeOwned> Store<P, S> {
    /// Opens a store, and reads the samples of an earlier run with the same parameters.
    pub fn open(path: &Path, parameters: &impl Serialize) -> Result<Self> {
        let text = if path.exists() { fs::read_to_string(path)? } else { String::new() };
        // A truncated line is measured again.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut lines = text[..whole].lines();
        let first = serde_json::to_string(parameters)?;
        let found = lines.next();
        ensure!(
            found.is_none_or(|found| found == first),
            "{} holds samples of other parameters: give another --out, or delete it",
            path.display()
        );
        let samples = lines.map(serde_json::from_str).collect::<Result<Vec<_>, _>>();
        let samples = samples.with_context(|| format!("cannot understand {}", path.display()))?;
        let create = || -> Result<File> {
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            file.set_len(whole as u64)?;
            if found.is_none() {
                writeln!(file, "{first}")?;
            }
            Ok(file)
        };
        let file = create().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { file, samples })
    }

    /// Returns whether a step has been measured.
    pub fn has(&self, step: &P) -> bool {
        self.samples.iter().any(|kept| kept.step == *step)
    }

    pub fn add(&mut self, step: &P, sample: S) -> Result<()> {
        let kept = Kept { step: step.clone(), sample };
        let line = serde_json::to_string(&kept)? + "\n";
        self.file.write_all(line.as_bytes()).context("cannot write the samples")?;
        self.samples.push(kept);
        Ok(())
    }

    pub fn count(&self) -> usize {
        self.samples.len()
    }

    pub fn into_samples(self) -> impl Iterator<Item = (P, S)> {
        self.samples.into_iter().map(|Kept { step, sample }| (step, sample))
    }
}

pub fn write_csv(path: &Path, results: &Results) -> Result<()> {
    let write = || -> Result<()> {
        let mut writer = csv::Writer::from_path(path)?;
        writer.write_record([
            "table",
            "readers",
            "case",
            "keys",
            "run",
            "lookups_per_second",
            "p50_ns",
            "p99_ns",
            "p999_ns",
            "longest_ns",
            "resizes_per_second",
            "first_expand_seconds",
            "first_expand_waits",
            "expand_seconds",
            "expand_waits",
            "shrink_seconds",
            "shrink_waits",
            "peak_bucket_bytes",
        ])?;
        let figures = results.samples.iter().map(|sample| (None, sample));
        for (keys, sample) in figures.chain(results.resizes.iter().map(|(keys, sample)| (Some(*keys), sample))) {
            let latency = sample.latency;
            let mut record = vec![spell(&sample.table), sample.readers.to_string(), sample.case.name()];
            record.extend([keys.map_or(String::new(), |keys| spell(&keys)), sample.run.to_string()]);
            let numbers = [
                sample.lookups_per_second,
                latency.p50,
                latency.p99,
                latency.p999,
                latency.longest,
                sample.resizes_per_second,
                sample.first_expand.seconds,
                sample.first_expand.waits,
                sample.expand.seconds,
                sample.expand.waits,
                sample.shrink.seconds,
                sample.shrink.waits,
                sample.peak_bucket_bytes as f64,
            ];
            record.extend(numbers.map(|number| number.to_string()));
            writer.write_record(record)?;
        }
        Ok(writer.flush()?)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
