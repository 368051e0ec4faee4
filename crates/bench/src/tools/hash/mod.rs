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

use crate::harness::report::Report;
use crate::harness::workers::Cpus;
use crate::hashing::keys::Keys;
use options::Input;
pub use options::Options;
use section::{Section, Weights};

pub fn run(options: &Options) -> Result<()> {
    let functions = options.functions();
    let mut report = Report::begin("hash", options.json.as_deref(), &Cpus::allowed(), rayon::current_num_threads())?;
    let weights = Weights { hit_rate: options.hit_rate, probe_ns: options.probe_ns };
    let mut sections = Vec::new();
    for Input { title, mut source } in options.inputs()? {
        let mut keys = Keys::default();
        source.fill(&mut keys, options.max_keys()).context(title.clone())?;
        if keys.is_empty() {
            report.warn(format!("{title}: there are no keys"));
            continue;
        }
        let section = Section::new(title, &keys, &functions, &options.sizes, weights);
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
