//! The HTML report. It is one file without links to other files, so it can be moved and mailed.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::claims::{Claim, Verdict};
use super::plan::{FIGURES, Figure};
use super::{Parameters, Results};
use crate::lookups::grouped;
use crate::lookups::measure::{Keys, Sample};
use relativist_bench::harness::chart::STYLE;
use relativist_bench::harness::options::spell;
use relativist_bench::harness::report::{Report, significant};

/// A section of the report about servers rather than tables.
#[derive(Debug)]
pub struct Section {
    pub heading: String,
    /// The text above the picture.
    pub text: String,
    pub pictures: Vec<String>,
    /// The paper's claims about this subject.
    pub claims: Vec<Claim>,
    /// The header and rows of a table, if there is one.
    pub table: Option<(Vec<String>, Vec<Vec<String>>)>,
}

/// Makes the page from the figures, as SVG in `pictures`, and further sections.
pub fn page(
    report: &Report,
    parameters: &Parameters,
    results: &Results,
    pictures: &[String],
    sections: &[Section],
) -> String {
    let title = "Resizable, scalable, concurrent hash tables: the paper's figures, measured again";
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                p {
                    "The paper is Triplett, McKenney and Walpole, “Resizable, Scalable, Concurrent Hash Tables via Relativistic "
                    "Programming” (USENIX ATC 2011); its figures 3 to 8 are in section 7. Its machine had two processors with 12 cores "
                    "and 24 hardware threads in all, so that every thread had one. RP is the paper's table as printed, relativist is this "
                    "project's."
                }
                @for warning in report.warnings() { p.warning { (warning) } }
                h2 { "Claims" }
                (claims(results.claims.iter()))
                @for (figure, picture) in FIGURES.iter().zip(pictures) { (section(figure, picture, results)) }
                @for section in sections { (further(section)) }
                h2 { "Duration of resizes" }
                p {
                    "Measured during lookups by " (parameters.readers[0]) " reader(s), with the identity as hash function. Keys inserted "
                    "in ascending order are the worst case for the first unzipping of a chain. They are the best case for all later ones, "
                    "because joining two chains leaves each of them as one run. Shuffled keys are in between. Medians over runs."
                }
                (resizes(&results.resizes))
                h2 { "Latencies and memory" }
                p { "One lookup in 256 was timed, and its latency includes the time to read the clock. Medians over runs, and the longest of all runs." }
                (latencies(&results.samples))
                h2 { "Machine and versions" }
                pre { (report.caption()) }
                p { "All samples are in samples.json and samples.csv; those of servers in memcached.jsonl." }
            }
        }
    };
    page.into_string()
}

fn section(figure: &Figure, picture: &str, results: &Results) -> Markup {
    html! {
        h2 { (figure.number) }
        figure { (PreEscaped(picture)) }
        (claims(results.claims.iter().filter(|claim| figure.number.starts_with(claim.figure))))
    }
}

fn further(section: &Section) -> Markup {
    html! {
        h2 { (section.heading) }
        p { (section.text) }
        @for picture in &section.pictures { figure { (PreEscaped(picture)) } }
        @if !section.claims.is_empty() { (claims(section.claims.iter())) }
        @if let Some((header, rows)) = &section.table {
            table {
                tr { @for cell in header { th { (cell) } } }
                @for row in rows { tr { @for cell in row { td { (cell) } } } }
            }
        }
    }
}

fn claims<'c>(claims: impl Iterator<Item = &'c Claim>) -> Markup {
    html! {
        table {
            tr { th { "" } th { "The paper" } th { "Here" } th { "Holds here" } }
            @for claim in claims {
                tr {
                    td { (claim.figure) }
                    td { (claim.paper) }
                    td { (claim.here) }
                    td class=(class(claim.verdict)) { (claim.verdict.to_string()) }
                }
            }
        }
    }
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::InPart => "in-part",
        Verdict::Fails => "fails",
        Verdict::Unknown => "unknown",
    }
}

fn resizes(resizes: &[(Keys, Sample)]) -> Markup {
    let of = |keys: Keys| resizes.iter().filter(move |(its, _)| *its == keys).map(|(_, sample)| sample.clone());
    html! {
        table {
            tr {
                th { "Table" } th { "Keys" } th.number { "Resizes/s" }
                th.number { "First expand, µs" } th.number { "waits" } th.number { "Expand, µs" } th.number { "waits" } th.number { "Shrink, µs" } th.number { "waits" }
                th.number { "Buckets at most, KiB" }
            }
            @for keys in [Keys::Sequential, Keys::Shuffled] {
                @for (table, group) in grouped(&of(keys).collect::<Vec<_>>(), |sample| sample.table) {
                    tr {
                        td { (table.label()) } td { (spell(&keys)) }
                        (cell(&group, |sample| sample.resizes_per_second))
                        (cell(&group, |sample| sample.first_expand.seconds * 1e6))
                        (cell(&group, |sample| sample.first_expand.waits))
                        (cell(&group, |sample| sample.expand.seconds * 1e6)) (cell(&group, |sample| sample.expand.waits))
                        (cell(&group, |sample| sample.shrink.seconds * 1e6)) (cell(&group, |sample| sample.shrink.waits))
                        (cell(&group, |sample| sample.peak_bucket_bytes as f64 / 1024.0))
                    }
                }
            }
        }
    }
}

fn latencies(samples: &[Sample]) -> Markup {
    html! {
        table {
            tr {
                th { "Table" } th { "Case" } th.number { "Readers" } th.number { "p50, ns" } th.number { "p99" }
                th.number { "p99.9" } th.number { "longest" } th.number { "Entries, KiB" }
            }
            @for ((table, case, readers), group) in grouped(samples, |s| (s.table, s.case.name(), s.readers)) {
                tr {
                    td { (table.label()) } td { (case) } td.number { (readers) }
                    (cell(&group, |sample| sample.latency.p50)) (cell(&group, |sample| sample.latency.p99))
                    (cell(&group, |sample| sample.latency.p999))
                    td.number { (significant(group.iter().map(|sample| sample.latency.longest).fold(0.0, f64::max))) }
                    td.number { (group[0].entry_bytes.map_or("?".into(), |bytes| (bytes >> 10).to_string())) }
                }
            }
        }
    }
}

fn cell(group: &[&Sample], value: fn(&Sample) -> f64) -> Markup {
    let median = relativist_bench::harness::stats::Summary::of(group.iter().map(|sample| value(sample)))
        .map_or(0.0, |summary| summary.median);
    html! { td.number { (significant(median)) } }
}
