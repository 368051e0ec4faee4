//! `relativist-bench hash` finds the hash function and table size that suit given keys.
//!
//! The method is that of Lever, "Linux Kernel Hash Table Behavior: Analysis and Improvements" (ALS
//! 2000): take real keys, count the sizes of buckets and the entries that a lookup visits, and
//! measure the cost of the function.
//!
//! | Module | Holds |
//! |---|---|
//! | [`options`] | the command line |
//! | [`avalanche`], [`cost`], [`instructions`] | measurements of a function |
//! | [`section`], [`advice`] | the results for one set of keys, and the recommendation |
//! | [`output`], [`draw`], [`page`] | text, CSV, pictures and HTML |

pub mod advice;
pub mod avalanche;
pub mod cost;
pub mod draw;
pub mod instructions;
pub mod options;
pub mod output;
pub mod page;
pub mod section;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use crate::harness::report::Report;
use crate::harness::workers::Cpus;
use crate::hashing::study;
use options::Input;
pub use options::Options;
use section::{Section, Weights};

pub fn run(options: &Options) -> Result<()> {
    let functions = options.functions()?;
    let mut report = Report::begin("hash", options.json.as_deref(), &Cpus::allowed(), rayon::current_num_threads())?;
    if let Some(folder) = &options.out {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let weights = Weights { hit_rate: options.hit_rate, probe_ns: options.probe_ns };
    let mut sections = Vec::new();
    for Input { title, source, functions: its } in options.inputs()? {
        let functions = its.as_ref().unwrap_or(&functions);
        let mut source = options.limited(source);
        let bar = progress(&title);
        let Some(studied) = study::study(source.as_mut(), functions, &options.sizes, &bar).context(title.clone())?
        else {
            report.warn(format!("{title}: there are no keys"));
            continue;
        };
        let bits = studied.tables.first().map_or(1, |table| table.bits);
        let executed = if options.instructions {
            bar.set_message("counting instructions");
            instructions::count(functions, &options.fold, &studied.sample, bits)?
        } else {
            Vec::new()
        };
        let section = Section::new(title, &studied, functions, &executed, weights, &bar);
        bar.finish_and_clear();
        if section.has_repeated_keys() {
            report.warn(format!(
                "{}: about {} of {} keys are distinct; repeated keys count as separate entries that always share a bucket: \
                 give each key once (sort -u)",
                section.title, section.distinct, section.keys
            ));
        }
        sections.push(section);
    }
    ensure!(!sections.is_empty(), "there are no keys");
    if let Some(path) = &options.csv {
        output::write_csv(path, &sections)?;
    }
    if let Some(folder) = &options.out {
        write_folder(folder, &report, &sections)?;
    }
    let mut text: String = sections.iter().map(|section| output::text(section, options.histograms)).collect();
    text += output::LEGEND;
    text.push('\n');
    report.finish(options, &sections, &text)
}

fn progress(title: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {bar:30} [{elapsed} elapsed, {eta} left] {msg}");
    let bar = ProgressBar::new(1000).with_style(style.expect("the template is a constant"));
    bar.with_prefix(title.to_owned())
}

/// Writes the pictures, and the page that contains them.
fn write_folder(folder: &Path, report: &Report, sections: &[Section]) -> Result<()> {
    let mut drawn = Vec::new();
    for (number, section) in sections.iter().enumerate() {
        let pictures = draw::pictures(section)?;
        for picture in &pictures {
            write(&folder.join(format!("{}-{}.svg", number + 1, picture.name)), &picture.svg)?;
        }
        drawn.push((section, pictures));
    }
    write(&folder.join("index.html"), &page::page(report, &drawn))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
