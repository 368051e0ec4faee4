//! Makes the report, a self-contained HTML page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::draw::Picture;
use super::output::{LEGEND, cells, header, histogram};
use super::section::{Row, Section};
use crate::harness::chart::STYLE;
use crate::harness::report::{Report, count};

/// Makes the page, with the pictures of each section.
pub fn page(report: &Report, sections: &[(&Section, Vec<Picture>)]) -> String {
    let title = "Hash functions and table sizes for given keys";
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) "body { max-width: 76rem; }" }
            }
            body {
                h1 { (title) }
                @for warning in report.warnings() { p.warning { (warning) } }
                @for (section, pictures) in sections { (whole(section, pictures)) }
                h2 { "What the columns mean" }
                p { (LEGEND) }
                h2 { "Machine and versions" }
                pre { (report.caption()) }
            }
        }
    };
    page.into_string()
}

fn whole(section: &Section, pictures: &[Picture]) -> Markup {
    html! {
        h2 { (section.title) }
        @if let Some(advice) = &section.advice {
            p { b { (advice.sentence) } }
            @if let Some(caution) = &advice.caution { p { (caution) } }
        }
        p {
            (section.keys) " keys; " (format!("{:.0}", section.hit_rate * 100.0)) " % of lookups hit; an access to an entry takes "
            (format!("{:.1}", section.probe_ns)) " ns."
        }
        @for picture in pictures { figure { (PreEscaped(&picture.svg)) } }
        @for rows in section.sizes() {
            h3 { (count(1 << rows[0].bits)) " buckets" }
            (size_table(rows))
            details {
                summary { "Histograms" }
                @for row in rows { pre { (histogram(row)) } }
            }
        }
    }
}

fn size_table(rows: &[Row]) -> Markup {
    let header = header(rows);
    html! {
        table {
            tr {
                th { (header[0]) }
                @for name in &header[1..] { th.number { (name) } }
            }
            @for row in rows {
                tr {
                    @let cells = cells(row);
                    td title=(row.source) { (cells[0]) }
                    @for cell in &cells[1..] { td.number { (cell) } }
                }
            }
        }
    }
}
