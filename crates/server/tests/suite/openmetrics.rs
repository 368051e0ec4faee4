//! A strict parser of OpenMetrics 1.0, for those of its types that the server uses.

use std::collections::{BTreeMap, HashSet};

/// The endings of sample names that the format reserves.
const ENDINGS: [&str; 7] = ["_total", "_created", "_bucket", "_count", "_sum", "_info", "_gcount"];

/// A family of metrics.
#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    pub unit: Option<String>,
    help: Option<String>,
    pub samples: Vec<Sample>,
}

/// A sample. The labels are in the order of the text.
#[derive(Debug)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

/// Parses a whole exposition.
///
/// # Panics
/// If it violates the specification.
pub fn parse(text: &str) -> BTreeMap<String, Family> {
    let body = text.strip_suffix("# EOF\n").expect("the text ends with EOF");
    let mut families = BTreeMap::<String, Family>::new();
    let mut current = String::new();
    for line in body.lines() {
        assert!(!line.is_empty() && line.trim() == line && !line.contains("  "), "{line:?}");
        match line.strip_prefix("# ") {
            Some(metadata) => {
                let (keyword, rest) = metadata.split_once(' ').expect(line);
                let (name, value) = rest.split_once(' ').expect(line);
                assert!(is_name(name, ":"), "{line}");
                if name != current {
                    assert!(families.insert(name.into(), Family::default()).is_none(), "in two places: {line}");
                    current = name.into();
                }
                families.get_mut(name).unwrap().describe(keyword, value, line);
            }
            None => families.get_mut(&current).expect(line).samples.push(sample(line)),
        }
    }
    for (name, family) in &families {
        family.check(name);
        let clash = ENDINGS.iter().find(|ending| families.contains_key(&format!("{name}{ending}")));
        assert_eq!(clash, None, "{name}");
    }
    let identities = families.values().flat_map(|family| &family.samples).map(Sample::identity);
    let mut seen = HashSet::new();
    identities.for_each(|identity| assert!(seen.insert(identity.clone()), "twice: {identity}"));
    families
}

impl Family {
    fn describe(&mut self, keyword: &str, value: &str, line: &str) {
        assert!(self.samples.is_empty(), "after a sample: {line}");
        let former = match keyword {
            "TYPE" => std::mem::replace(&mut self.kind, value.into()),
            "UNIT" => self.unit.replace(value.into()).unwrap_or_default(),
            "HELP" => {
                assert!(!value.contains(['\\', '"']), "has to be escaped: {line}");
                self.help.replace(value.into()).unwrap_or_default()
            }
            _ => panic!("{line}"),
        };
        assert_eq!(former, "", "twice: {line}");
    }

    fn check(&self, name: &str) {
        assert!(self.help.as_ref().is_some_and(|help| help.ends_with('.')), "{name}: {:?}", self.help);
        assert!(self.unit.iter().all(|unit| name.ends_with(&format!("_{unit}"))), "{name}: {:?}", self.unit);
        assert!(ENDINGS.iter().all(|ending| !name.ends_with(ending)), "{name} has an ending of samples");
        let endings: &[&str] = match self.kind.as_str() {
            "info" => &["_info"],
            "gauge" => &[""],
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            kind => panic!("{name} has the type {kind:?}"),
        };
        for sample in &self.samples {
            let ending = sample.name.strip_prefix(name).unwrap_or("of another family");
            assert!(endings.contains(&ending), "{name}: {sample:?}");
            let is_valid = match self.kind.as_str() {
                "info" => sample.value == 1.0,
                "gauge" => sample.value.is_finite(),
                _ => sample.value.is_finite() && sample.value >= 0.0,
            };
            assert!(is_valid, "{sample:?}");
        }
        if self.kind == "histogram" {
            self.check_histograms(name);
        }
    }

    /// Checks each histogram of the family: buckets in order, and then the sum and the count.
    fn check_histograms(&self, name: &str) {
        let mut histograms = BTreeMap::<String, Vec<&Sample>>::new();
        for sample in &self.samples {
            histograms.entry(sample.labels_but("le")).or_default().push(sample);
        }
        for (labels, samples) in histograms {
            let (buckets, rest) = samples.split_at(samples.len() - 2);
            let bounds: Vec<f64> = buckets.iter().map(|bucket| bucket.bound()).collect();
            assert!(bounds.is_sorted_by(|one, other| one < other), "{name} {labels}: {bounds:?}");
            assert_eq!(bounds.last(), Some(&f64::INFINITY), "{name} {labels}");
            assert!(buckets.is_sorted_by_key(|bucket| bucket.value), "{name} {labels}");
            assert_eq!(rest[0].name, format!("{name}_sum"));
            assert_eq!((&rest[1].name, rest[1].value), (&format!("{name}_count"), buckets.last().unwrap().value));
        }
    }
}

impl Sample {
    fn labels_but(&self, left_out: &str) -> String {
        let labels = self.labels.iter().filter(|(name, _)| name != left_out);
        labels.map(|(name, value)| format!("{name}={value:?},")).collect()
    }

    /// The name with the labels.
    pub fn identity(&self) -> String {
        format!("{}{{{}}}", self.name, self.labels_but(""))
    }

    fn bound(&self) -> f64 {
        let (_, bound) = self.labels.iter().find(|(name, _)| name == "le").expect("a bucket has a bound");
        number(bound)
    }
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).expect(line);
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, quoted) = rest.split_once("=\"").expect(line);
            // No value of this server needs an escape.
            let (value, after) = quoted.split_once('"').expect(line);
            assert!(is_name(label, "") && !value.contains(['\\', '\n']), "{line}");
            assert!(labels.iter().all(|(other, _)| other != label), "twice: {line}");
            labels.push((label.to_owned(), value.to_owned()));
            rest = after;
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').expect(line);
    }
    assert!(is_name(name, ":"), "{line}");
    Sample { name: name.into(), labels, value: number(rest.strip_prefix(' ').expect(line)) }
}

fn number(text: &str) -> f64 {
    assert!(text == "+Inf" || text.chars().all(|c| c.is_ascii_digit() || "+-.e".contains(c)), "{text}");
    text.parse().expect(text)
}

fn is_name(name: &str, further: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_' || further.contains(first))
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || further.contains(c))
}

#[test]
#[should_panic(expected = "Some(inf)")]
fn a_histogram_needs_all_buckets() {
    parse("# HELP a A.\n# TYPE a histogram\na_bucket{le=\"1\"} 1\na_sum 1\na_count 1\n# EOF\n");
}

#[test]
#[should_panic(expected = "_total")]
fn families_do_not_clash() {
    parse("# HELP a A.\n# TYPE a counter\na_total 1\n# HELP a_total A.\n# TYPE a_total gauge\na_total 1\n# EOF\n");
}
