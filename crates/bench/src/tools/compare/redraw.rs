//! `relativist-bench plot` draws results of `compare` from several machines together.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::harness::chart::prepare;
use crate::harness::comparison::Comparison;
use crate::harness::machine::Machine;
use crate::tables::entries::Kind;
use crate::tools::compare::setting::Setting;
use crate::tools::compare::{plot, ratios};

/// Draw the results of `compare` on several machines together
///
/// Reads files that `compare --json` wrote. Draws an SVG for each workload and type of entries,
/// with a panel for each cell, and in each panel a bar for each table, processor and number of
/// threads. Draws flat.svg, too: how many times as fast FlatMap is as HashMap. If files contain the
/// same measurement of the same processor, the first one counts.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files that `compare --json` wrote
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Folder for the pictures
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// The part of a report that is drawn. Names are borrowed from the text of the file.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
struct Document {
    layout: u32,
    command: String,
    machine: Machine,
    results: Results,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
struct Results {
    #[serde(rename = "contests")]
    comparisons: Vec<Comparison<Setting>>,
}

pub fn run(args: &Args) -> Result<()> {
    prepare(&args.out)?;
    let documents = args.files.iter().map(|file| read(file)).collect::<Result<Vec<_>>>()?;
    let mut machines: Vec<String> = documents.iter().map(|document| document.machine.to_string()).collect();
    machines.sort_unstable();
    machines.dedup();
    let mut comparisons: Vec<_> = documents.into_iter().flat_map(named).collect();
    // The sort is stable, so the first of several measurements stays the first.
    comparisons.sort_by_key(|Comparison { setting, .. }| {
        (setting.distribution.map(|distribution| distribution as u8), setting.updates_percent, setting.entries)
    });
    let caption = format!("relativist-bench compare, drawn by relativist-bench plot\n{}", machines.join("\n"));
    plot::draw(&args.out, &comparisons, &caption)?;
    ratios::draw(&args.out, &comparisons)
}

fn read(file: &Path) -> Result<Document> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    // The names in comparisons have no other owner. This happens once per file, and the program
    // ends afterwards.
    let text: &'static str = text.leak();
    let not_ours = || format!("{} is no result of compare", file.display());
    let document: Document = serde_json::from_str(text).with_context(not_ours)?;
    ensure!(document.command == "compare", not_ours());
    let strings = document.results.comparisons.iter().any(|comparison| comparison.setting.kind == Kind::Strings);
    ensure!(
        !strings || document.layout >= 4,
        "{} has results of other strings than those of this version",
        file.display()
    );
    Ok(document)
}

/// Returns the comparisons, with the name of the processor.
fn named(document: Document) -> impl Iterator<Item = Comparison<Setting>> {
    let processor = document.machine.processor();
    document.results.comparisons.into_iter().map(move |mut comparison| {
        comparison.setting.processor = Some(processor.clone());
        comparison
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::comparison::{Measured, compare};
    use crate::harness::workers::Cpus;
    use crate::tools::compare::setting::Workload;
    use indicatif::ProgressBar;

    fn write(file: &Path, command: &str, layout: u32, kind: Kind) {
        let setting = Setting::new(Workload::Hit, kind, 1 << 16);
        let names = ["relativist", "relativist flat"];
        let one = |candidate: usize, _| Ok(Measured::single(10.0 / (candidate + 1) as f64));
        let comparison = compare(setting, &names, 3, &ProgressBar::hidden(), one).unwrap();
        let results = serde_json::json!({ "contests": [comparison] });
        let machine = Machine::here(&Cpus::allowed());
        let document =
            serde_json::json!({ "layout": layout, "command": command, "machine": machine, "results": results });
        fs::write(file, document.to_string()).unwrap();
    }

    #[test]
    fn results_are_drawn_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hit.json");
        write(&file, "compare", 4, Kind::Strings);
        run(&Args { files: vec![file.clone()], out: folder.path().to_owned() }).unwrap();
        let read_picture = |name| fs::read_to_string(folder.path().join(name)).unwrap();
        let processor = read(&file).unwrap().machine.processor();
        assert!(read_picture("hit-strings.svg").contains(&format!("{processor}, 1 thread")));
        let ratios = read_picture("flat.svg");
        assert!(ratios.contains("2.00") && ratios.contains("hits, strings, 2^16"), "{ratios}");
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("other.json");
        write(&file, "resize", 4, Kind::U64);
        assert!(read(&file).is_err());
        write(&file, "compare", 3, Kind::Strings);
        assert!(read(&file).is_err());
        write(&file, "compare", 3, Kind::U64);
        assert!(read(&file).is_ok());
    }
}
