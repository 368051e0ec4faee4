//! Compares the histograms in Lever's paper with those of the same functions on generated keys of
//! the same kind and number.

use relativist_bench::harness::report::{significant, table};
use relativist_bench::hashing::functions::named;
use relativist_bench::hashing::histogram::Histogram;
use relativist_bench::hashing::keys::patterns::Pattern;
use relativist_bench::hashing::keys::{Keys, Source};

/// A histogram as printed in the paper.
struct Printed {
    place: &'static str,
    function: &'static str,
    bits: u32,
    keys: Pattern,
    empty: u64,
    largest: usize,
    /// The percentage of objects in buckets with more than 15 objects.
    in_large: u64,
    /// The hit rate, and iterations per thousand lookups, if the histogram determines them. (It
    /// does not for the buffer cache, where most lookups find the latest entry at once.)
    iterations: Option<(f64, u64)>,
}

/// The paper has no separate rows for buckets above this size.
const LARGE: usize = 15;

/// The minimum number of cached blocks per group, with the full buffer cache and after the
/// benchmark.
const FULL: u64 = 16;
const AFTER: u64 = 1;

fn histograms() -> [Printed; 5] {
    [
        Printed {
            place: "Histogram 1",
            function: "buffer-one-to-one",
            bits: 14,
            keys: Pattern::blocks(37_256, FULL),
            empty: 12_047,
            largest: 116,
            in_large: 58,
            iterations: None,
        },
        Printed {
            place: "Histogram 2",
            function: "buffer-one-to-one",
            bits: 14,
            keys: Pattern::blocks(2644, AFTER),
            empty: 16_167,
            largest: 80,
            in_large: 85,
            iterations: None,
        },
        Printed {
            place: "Histogram 3",
            function: "buffer-mult-11",
            bits: 14,
            keys: Pattern::blocks(37_261, FULL),
            empty: 2034,
            largest: 11,
            in_large: 0,
            iterations: None,
        },
        Printed {
            place: "Histogram 4",
            function: "buffer-mult-11",
            bits: 14,
            keys: Pattern::blocks(2717, AFTER),
            empty: 14_302,
            largest: 6,
            in_large: 0,
            iterations: None,
        },
        Printed {
            place: "Histogram 5",
            function: "inode-shift-add",
            bits: 8,
            keys: Pattern::inodes(9785),
            empty: 0,
            largest: 54,
            in_large: 100,
            iterations: Some((0.03, 38_978)),
        },
    ]
}

/// The kernels of table 1: function, binary logarithm of the number of buckets, and time for the
/// whole benchmark.
const KERNELS: [(&str, u32, &str); 6] = [
    ("page-shift-add", 11, "50 min 25 s"),
    ("page-shift-add", 13, "49 min 43 s"),
    ("page-shift-add", 14, "49 min 35 s"),
    ("page-shift-add", 15, "49 min 36 s"),
    ("page-offset", 14, "49 min 40 s"),
    ("page-mult", 14, "49 min 29 s"),
];

/// The number of pages in the cache: three quarters of the 128 MB of the machine of table 1.
const PAGES: u64 = 24_576;

/// Generates the keys, hashes them, and compares the results with the paper's. Returns rows of the
/// section or table of the paper, what is measured or counted, the paper's value, and ours.
fn claims() -> Vec<Vec<String>> {
    let mut claims = Vec::new();
    for printed in histograms() {
        let here = histogram(printed.function, printed.bits, printed.keys);
        let name = printed.function;
        let mut claim = |what: String, paper: String, here: String| {
            claims.push(vec![printed.place.into(), format!("{name}: {what}"), paper, here]);
        };
        let size = format!("empty of {} buckets", here.buckets);
        claim(size, printed.empty.to_string(), here.empty().to_string());
        claim("largest bucket".into(), printed.largest.to_string(), here.largest().to_string());
        let large = format!("{} %", (in_large(&here) * 100.0).round());
        claim(format!("objects in buckets with more than {LARGE}"), format!("{} %", printed.in_large), large);
        if let Some((hit_rate, iterations)) = printed.iterations {
            let here = format!("{:.0}", here.probes(hit_rate) * 1000.0);
            claim(
                format!("entries visited by 1000 lookups, {:.0} % of them hits", hit_rate * 100.0),
                iterations.to_string(),
                here,
            );
        }
    }
    for (function, bits, elapsed) in KERNELS {
        let here = histogram(function, bits, Pattern::pages(PAGES));
        let (hit, random) = (here.probes_per_hit(), 1.0 + here.load() / 2.0);
        claims.push(vec![
            "Table 1".into(),
            format!("{function}, {} buckets: time / entries visited by a hit (a random function)", here.buckets),
            elapsed.into(),
            format!("{} ({})", significant(hit), significant(random)),
        ]);
    }
    claims
}

fn histogram(function: &str, bits: u32, pattern: Pattern) -> Histogram {
    let mut keys = Keys::default();
    pattern.source().fill(&mut keys, usize::MAX).expect("patterns don't fail");
    Histogram::of(&*named(function), &keys, bits)
}

/// Returns the share of objects in buckets with more than 15 objects.
fn in_large(histogram: &Histogram) -> f64 {
    let objects: u64 =
        (0..).zip(&histogram.sizes).skip(LARGE + 1).map(|(size, buckets): (u64, _)| size * buckets).sum();
    objects as f64 / histogram.entries as f64
}

/// Prints the paper's values next to ours.
pub fn run() {
    print!("{}", table(&["", "", "the paper", "here"], claims()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(place: &str) -> (Printed, Histogram) {
        let printed = histograms().into_iter().find(|printed| printed.place == place).unwrap();
        let histogram = histogram(printed.function, printed.bits, printed.keys);
        (printed, histogram)
    }

    /// Computes the sums and rounded percentages of histograms 3 and 4 from their columns of
    /// buckets, and compares them with the paper.
    #[test]
    fn histograms_are_printed_as_in_the_paper() {
        let third = Histogram::from_sizes(vec![2034, 3317, 4034, 3833, 2082, 712, 222, 78, 46, 19, 5, 2]);
        assert_eq!((third.buckets, third.entries, third.largest()), (16_384, 37_261, 11));
        let fourth = Histogram::from_sizes(vec![14_302, 1555, 442, 73, 5, 3, 4]);
        assert_eq!((fourth.buckets, fourth.entries, fourth.largest()), (16_384, 2717, 6));
        let rows = |histogram: &Histogram| -> Vec<Vec<String>> {
            histogram.to_string().lines().map(|line| line.split_whitespace().map(Into::into).collect()).collect()
        };
        let percent = |histogram| rows(histogram)[1..].iter().map(|row| row[3].clone()).collect::<Vec<_>>().join(" ");
        assert_eq!(percent(&third), "0 8 30 61 83 93 96 98 99 99 99 100 100 100 100 100 100");
        assert_eq!(percent(&fourth), "0 57 89 97 98 99 100 100 100 100 100 100 100 100 100 100 100");
        assert_eq!(rows(&third)[0], ["size", "buckets", "objects", "sum-pct"]);
        assert_eq!(rows(&third)[4], ["3", "3833", "11499", "61"]);
        assert_eq!(rows(&fourth)[17], [">15", "0", "0", "100"]);
    }

    #[test]
    fn the_old_buffer_cache_leaves_most_buckets_empty_histogram_1() {
        let (printed, here) = here("Histogram 1");
        assert_eq!((here.buckets, here.entries), (16_384, 37_256));
        // In the paper, 74 % are empty.
        assert!((0.6..0.9).contains(&(here.empty() as f64 / 16_384.0)), "{} empty", here.empty());
        // The paper: "almost two orders of magnitude" above a mean of 2.3.
        assert!(here.largest() as f64 > 30.0 * here.load(), "largest {}", here.largest());
        assert!(here.largest() > printed.largest / 2 && here.largest() < printed.largest * 3, "{}", here.largest());
        assert!(in_large(&here) > 0.5, "{}", in_large(&here));
    }

    #[test]
    fn what_is_left_in_the_old_buffer_cache_is_in_large_buckets_histogram_2() {
        let (printed, here) = here("Histogram 2");
        assert!(here.empty() > 15_700, "{} empty", here.empty());
        assert!(here.largest() > printed.largest / 2, "largest {}", here.largest());
        assert!(in_large(&here) > 0.4, "{}", in_large(&here));
    }

    #[test]
    fn multiplication_spreads_the_same_keys_histograms_3_and_4() {
        let (printed, full) = here("Histogram 3");
        // 10 % are empty in Poisson's distribution, and 12 % in the paper.
        assert!((1000..2600).contains(&full.empty()), "{} empty", full.empty());
        assert!(full.largest() <= printed.largest + 3, "largest {}", full.largest());
        let (_, old) = here("Histogram 1");
        assert!(full.probes_per_miss() * 5.0 < old.probes_per_miss(), "an order of magnitude, says the paper");
        let (printed, after) = here("Histogram 4");
        assert!((after.empty() as f64 / printed.empty as f64 - 1.0).abs() < 0.03, "{} empty", after.empty());
        assert!(after.largest() <= printed.largest + 2, "largest {}", after.largest());
    }

    #[test]
    fn an_undersized_inode_cache_walks_its_whole_chains_histogram_5() {
        let (printed, here) = here("Histogram 5");
        assert_eq!((here.buckets, here.entries, here.empty()), (256, 9785, 0));
        assert_eq!(in_large(&here), 1.0);
        assert!((38..80).contains(&here.largest()), "largest {}", here.largest());
        let (hit_rate, iterations) = printed.iterations.unwrap();
        let met = here.probes(hit_rate) * 1000.0;
        assert!((met / iterations as f64 - 1.0).abs() < 0.1, "{met}");
        // Nearly all lookups miss, and visit a whole chain, n / m entries on average.
        assert!((here.probes_per_miss() / here.load() - 1.0).abs() < 0.1, "{}", here.probes_per_miss());
    }

    /// Section 3.1: bucket sizes remain acceptable for tables of 2^11 to 2^16 buckets; table 1 has
    /// 2^11 to 2^15.
    #[test]
    fn the_page_caches_functions_do_for_11_to_16_bits_table_1() {
        let met = |function, bits| {
            let here = histogram(function, bits, Pattern::pages(PAGES));
            assert!(here.probes_per_miss() < 1.2 * here.load(), "2^{bits}: {}", here.probes_per_miss());
            here.probes_per_hit()
        };
        let met_by_bits: Vec<f64> = (11..=16).map(|bits| met("page-shift-add", bits)).collect();
        assert!(met_by_bits.is_sorted_by(|smaller, larger| smaller > larger), "{met_by_bits:?}");
        // In the paper, none of the three functions with 2^14 buckets is much faster than the
        // others: the size of the table matters.
        let shift_add = met_by_bits[14 - 11];
        for function in ["page-offset", "page-mult"] {
            assert!((met(function, 14) / shift_add - 1.0).abs() < 0.1, "{function}");
        }
    }
}
