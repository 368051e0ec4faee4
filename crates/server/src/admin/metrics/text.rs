//! Metrics as text: the format of Prometheus (0.0.4) and OpenMetrics (1.0).
//!
//! OpenMetrics names families: the samples of a counter end in `_total`, and its family does not.
//! So no other family may have that name. Units are the ends of names.

use std::fmt::{Arguments, Display, Write};

/// A format of metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in super::super) enum Format {
    Prometheus,
    OpenMetrics,
}

/// The media type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text";

/// Units. All metrics with a unit have one of these.
const UNITS: [&str; 2] = ["bytes", "seconds"];

impl Format {
    /// The format that a client wants, by its header `Accept`. A client that does not mention
    /// OpenMetrics gets the format of Prometheus.
    pub(in super::super) fn wanted(accept: &str) -> Format {
        let (mut open, mut plain) = (0.0, 0.0_f64);
        for range in accept.split(',') {
            let (media_type, quality) = media_range(range);
            if media_type.eq_ignore_ascii_case(OPEN_METRICS) {
                open = quality.max(open);
            } else if ["text/plain", "text/*", "*/*"].iter().any(|text| media_type.eq_ignore_ascii_case(text)) {
                plain = quality.max(plain);
            }
        }
        if open > 0.0 && open >= plain { Format::OpenMetrics } else { Format::Prometheus }
    }

    pub(in super::super) fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A media type of `Accept`, and how much it is wanted: from 0 to 1.
fn media_range(range: &str) -> (&str, f64) {
    let mut parts = range.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(1.0, |quality| quality.parse().unwrap_or(0.0));
    (media_type, quality)
}

/// The kind of a family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// A constant whose labels say something.
    Info,
    Gauge,
    Counter,
    Histogram,
}

/// Metrics as text.
pub(super) struct Text {
    out: String,
    format: Format,
}

impl Text {
    pub(super) fn new(format: Format) -> Text {
        Text { out: String::new(), format }
    }

    fn line(&mut self, line: Arguments<'_>) {
        writeln!(self.out, "{line}").expect("writing to a string does not fail");
    }

    /// Begins a family. `name` is that of its samples; for a histogram, the part that all share.
    pub(super) fn head(&mut self, name: &str, kind: Kind, help: &str) {
        let name = format!("relativistd_{name}");
        let (family, kind) = match (self.format, kind) {
            (Format::Prometheus, Kind::Info) => (name.as_str(), "gauge"),
            (Format::OpenMetrics, Kind::Info) => (name.trim_end_matches("_info"), "info"),
            (Format::OpenMetrics, Kind::Counter) => (name.trim_end_matches("_total"), "counter"),
            (Format::Prometheus, Kind::Counter) => (name.as_str(), "counter"),
            (_, Kind::Gauge) => (name.as_str(), "gauge"),
            (_, Kind::Histogram) => (name.as_str(), "histogram"),
        };
        self.line(format_args!("# HELP {family} {help}"));
        self.line(format_args!("# TYPE {family} {kind}"));
        let unit = UNITS.iter().find(|unit| family.ends_with(&format!("_{unit}")));
        if let (Format::OpenMetrics, Some(unit)) = (self.format, unit) {
            self.line(format_args!("# UNIT {family} {unit}"));
        }
    }

    /// Adds a sample to the family. `labels` are empty, or as they are written in braces.
    pub(super) fn sample(&mut self, name: &str, labels: Arguments<'_>, value: impl Display) {
        match labels.as_str() {
            Some("") => self.line(format_args!("relativistd_{name} {value}")),
            _ => self.line(format_args!("relativistd_{name}{{{labels}}} {value}")),
        }
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, Kind::Gauge, help);
        self.sample(name, format_args!(""), value);
    }

    /// A counter, whose `name` ends in `_total`.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, Kind::Counter, help);
        self.sample(name, format_args!(""), value);
    }

    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.line(format_args!("# EOF"));
        }
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_prefer_open_metrics_get_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for accept in [prometheus, "application/openmetrics-text", "text/html, Application/OpenMetrics-Text ; q=0.2"] {
            assert_eq!(Format::wanted(accept), Format::OpenMetrics, "{accept}");
        }
        for accept in ["", "*/*", "text/html,*/*;q=0.8", "application/openmetrics-text;q=0", "text/plain;version=0.0.4"]
        {
            assert_eq!(Format::wanted(accept), Format::Prometheus, "{accept}");
        }
        assert_eq!(Format::wanted("text/plain, application/openmetrics-text;q=0.5"), Format::Prometheus);
    }

    #[test]
    fn the_formats_differ_in_families_and_units() {
        let text = |format| {
            let mut text = Text::new(format);
            text.counter("cpu_seconds_total", "CPU time.", 1.5);
            text.head("info", Kind::Info, "The version.");
            text.sample("info", format_args!("version=\"{}\"", 1), 1);
            text.finish()
        };
        assert_eq!(
            text(Format::Prometheus),
            "# HELP relativistd_cpu_seconds_total CPU time.\n# TYPE relativistd_cpu_seconds_total counter\n\
             relativistd_cpu_seconds_total 1.5\n# HELP relativistd_info The version.\n# TYPE relativistd_info gauge\n\
             relativistd_info{version=\"1\"} 1\n"
        );
        assert_eq!(
            text(Format::OpenMetrics),
            "# HELP relativistd_cpu_seconds CPU time.\n# TYPE relativistd_cpu_seconds counter\n\
             # UNIT relativistd_cpu_seconds seconds\nrelativistd_cpu_seconds_total 1.5\n\
             # HELP relativistd The version.\n# TYPE relativistd info\nrelativistd_info{version=\"1\"} 1\n# EOF\n"
        );
    }
}
