//! The recommendation: a function, a size, and the reason.

use serde::Serialize;

use super::section::Row;
use crate::harness::report::{count, significant};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    pub function: String,
    /// The binary logarithm of the number of buckets.
    pub bits: u32,
    pub sentence: String,
    /// A caveat, if there is one.
    pub caution: Option<String>,
}

/// Lookup times within this factor count as equal, because measured costs are not more accurate.
const ALIKE: f64 = 1.05;

/// Recommends the function and size with the fastest lookups, and among equally fast ones the
/// smallest table.
pub fn advise(rows: &[Row]) -> Option<Advice> {
    let best = best(rows.iter())?;
    let random = best.histogram.load();
    let buckets = count(1 << best.bits);
    let mut sentence = format!(
        "Take {} with {buckets} buckets: a lookup takes {} ns, including {} ns for hashing. A miss visits {} entries (a random \
         function: {}) and the largest bucket has {}",
        best.function,
        significant(best.lookup_ns),
        significant(best.hash_ns),
        significant(best.probes_per_miss),
        significant(random),
        best.largest,
    );
    let worst = rows
        .iter()
        .filter(|row| row.bits == best.bits)
        .max_by(|one, other| one.probes_per_miss.total_cmp(&other.probes_per_miss))
        .filter(|worst| worst.probes_per_miss > 2.0 * random.max(best.probes_per_miss) && worst.largest > best.largest);
    if let Some(worst) = worst {
        sentence += &format!(
            "; with {}, the largest bucket has {}, and {:.0} % of the buckets are empty",
            worst.function,
            worst.largest,
            100.0 * worst.empty as f64 / worst.histogram.buckets as f64
        );
    }
    sentence.push('.');
    let caution = (!best.is_robust()).then(|| caution(rows, best));
    Some(Advice { function: best.function.clone(), bits: best.bits, sentence, caution })
}

fn best<'r>(rows: impl Iterator<Item = &'r Row> + Clone) -> Option<&'r Row> {
    let least = rows.clone().map(|row| row.lookup_ns).min_by(f64::total_cmp)?;
    rows.filter(|row| row.lookup_ns <= least * ALIKE)
        .min_by(|one, other| one.bits.cmp(&other.bits).then(one.lookup_ns.total_cmp(&other.lookup_ns)))
}

fn caution(rows: &[Row], best: &Row) -> String {
    let mut text =
        format!("{} profits from the pattern of these keys, and may be worse for other keys.", best.function);
    if let Some(robust) = self::best(rows.iter().filter(|row| row.bits == best.bits && row.is_robust())) {
        text += &format!(
            " Of the functions that suit any keys, {} is the fastest: {} ns per lookup.",
            robust.function,
            significant(robust.lookup_ns)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashing::histogram::Histogram;

    fn row(function: &str, bits: u32, sizes: &[u64], lookup_ns: f64) -> Row {
        let histogram = Histogram::from_sizes(sizes.to_vec());
        Row {
            function: function.into(),
            bits,
            empty: histogram.empty(),
            largest: histogram.largest(),
            probes_per_hit: histogram.probes_per_hit(),
            probes_per_miss: histogram.probes_per_miss(),
            probes_per_thousand: 0.0,
            dispersion: histogram.dispersion(),
            fit: None,
            hash_ns: 1.0,
            lookup_ns,
            histogram,
        }
    }

    #[test]
    fn the_fastest_lookup_wins_and_the_reason_is_reported() {
        let rows = [
            row("good", 4, &[6, 6, 3, 1], 10.0),
            row("poor", 4, &[14, 0, 0, 0, 0, 0, 0, 1, 1], 30.0),
            row("large", 5, &[20, 10, 2], 9.8),
        ];
        let advice = advise(&rows).unwrap();
        // The larger table is only 2 % faster.
        assert_eq!((advice.function.as_str(), advice.bits, &advice.caution), ("good", 4, &None));
        for part in [
            "Take good with 16 buckets",
            "10.0 ns",
            "largest bucket has 3",
            "with poor, the largest bucket has 8",
            "88 %",
        ] {
            assert!(advice.sentence.contains(part), "{part}: {}", advice.sentence);
        }
    }

    #[test]
    fn a_function_that_profits_from_a_pattern_is_recommended_with_caution() {
        let rows = [row("lucky", 10, &[0, 1024], 5.0), row("steady", 10, &[377, 377, 188, 63, 19], 10.0)];
        let advice = advise(&rows).unwrap();
        assert_eq!(advice.function, "lucky");
        let caution = advice.caution.unwrap();
        assert!(caution.contains("lucky profits") && caution.contains("steady is the fastest: 10.0 ns"), "{caution}");
    }

    #[test]
    fn nothing_is_recommended_of_nothing() {
        assert_eq!(advise(&[]), None);
    }
}
