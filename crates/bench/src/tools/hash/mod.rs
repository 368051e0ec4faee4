//! `relativist-bench hash` finds the hash function and table size that suit given keys.
//!
//! The method is that of Lever, "Linux Kernel Hash Table Behavior: Analysis and Improvements" (ALS
//! 2000): take real keys, count the sizes of buckets and the entries that a lookup visits, and
//! measure the cost of the function.
//!
//! | Module | Holds |
//! |---|---|
//! | [`options`] | the command line |
//! | [`cost`] | the time of hashing, and of accessing memory |
//! | [`section`], [`advice`] | the results for one set of keys, and the recommendation |
//! | [`output`] | the printed tables and histograms |

pub mod advice;
pub mod cost;
pub mod options;
pub mod output;
pub mod section;

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
        let section = Section::new(title, &studied, functions, weights, &bar);
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
    let text: String = sections.iter().map(output::text).collect();
    let text = format!("{text}{}\n", output::LEGEND);
    report.finish(options, &sections, &text)
}

fn progress(title: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {bar:30} [{elapsed} elapsed, {eta} left] {msg}");
    let bar = ProgressBar::new(1000).with_style(style.expect("the template is a constant"));
    bar.with_prefix(title.to_owned())
}
