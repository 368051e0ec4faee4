//! `relativist-bench replay` counts how many requests of a trace miss, by policy and size of the
//! cache.

mod generate;
mod list;
mod oracle;
mod ours;
mod reference;
mod trace;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail, ensure};
use clap::{ValueEnum, value_parser};
use indicatif::ProgressBar;
use relativist_store::policy::EvictFor;
use relativist_store::sizing::FACTORS;
use serde::Serialize;

use crate::harness::options::{Output, parse_count, spell};
use crate::harness::report::{Report, table};
use crate::harness::rounds::progress;
use crate::harness::workers::Cpus;
use crate::tools::compare::caches::candidates::Name;
use crate::tools::compare::engines::engine::Ours;
#[cfg(feature = "segcache")]
use crate::tools::compare::engines::engine::Segcache;
use generate::{Kind, generate};
use oracle::Belady;
use ours::{InProcess, Policy, Whole};
use reference::{Cache, Gdsf, Lru, S3Fifo, SegmentedLru, Sieve};
use trace::Trace;

/// Replay a trace of requests against eviction policies, and report the shares of requests and
/// bytes that miss
///
/// The trace is a CSV file, plain or compressed with zstd. It has one request per line, ordered by
/// time, with the columns time, key, size, and possibly more. After a miss the object is stored.
/// Its size is that of its first request. Objects larger than the cache are not stored.
///
/// --generate makes a trace instead: Zipf's distribution (exponent 0.99) over keys and values with
/// the sizes that Facebook published of its ETC pool, alone or with a disturbance.
///
/// "belady" and "belady-size" are oracles, which know all later requests. They need not store every
/// object. The first is made to miss few bytes, the second few requests; with different sizes,
/// neither is optimal.
///
/// "relativistd" is the whole cache of the server. Its memory limit is the size of the cache, and
/// includes headers, table and reserves. "policy" is its eviction policy alone, which counts only
/// the sizes of objects, like the other policies here. Every server also needs some bytes per
/// object; --overhead adds them for these policies. Built with --features segcache, the command
/// also replays with whole Segcaches, whose limit includes their table. Of three sizes of the table
/// that with the fewest misses counts.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// The trace; - reads it from stdin
    #[arg(value_name = "TRACE", required_unless_present = "generate")]
    trace: Option<PathBuf>,

    /// Generate a trace instead of reading one
    #[arg(long, value_enum, value_name = "KIND", conflicts_with = "trace")]
    generate: Option<Kind>,

    /// Requests of a generated trace, such as 65536 or 2^16
    #[arg(long, default_value = "1_000_000", value_parser = parse_requests, conflicts_with = "trace")]
    requests: u64,

    /// Seed of a generated trace
    #[arg(long, default_value_t = 1, conflicts_with = "trace")]
    seed: u64,

    /// Sizes of the cache, in bytes or as a percentage of the bytes of all objects
    #[arg(long, value_delimiter = ',', default_values = ["1%", "10%", "30%"])]
    sizes: Vec<Size>,

    /// Bytes added to the size of each object. Not added for whole caches, which count their own
    /// headers
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = value_parser!(u64).range(..=1 << 20))]
    overhead: u64,

    /// Policies to compare
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Candidate::value_variants().iter().copied())]
    policies: Vec<Candidate>,

    /// Also report what relativistd estimates for a quarter, half, once, twice and four times each
    /// size, as its statistics do (stats sizing)
    #[arg(long)]
    sizing: bool,

    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Candidate {
    /// Evicts the least recently used object
    Lru,
    /// Evicts the object that was stored first
    Fifo,
    /// Segmented LRU with a protected segment of four fifths
    SegmentedLru,
    /// SIEVE
    Sieve,
    /// S3-FIFO
    S3Fifo,
    /// GreedyDual-Size-Frequency
    Gdsf,
    /// The policy of relativistd alone
    Policy,
    /// The same with -o evict_for=bytes
    PolicyBytes,
    /// The whole cache of relativistd
    Relativistd,
    /// The same with -o evict_for=bytes
    RelativistdBytes,
    /// The whole cache of Segcache, which merges segments
    #[cfg(feature = "segcache")]
    SegcacheMerge,
    /// The same with its S3-FIFO of segments
    #[cfg(feature = "segcache")]
    SegcacheS3Fifo,
    /// relativist_cache::Cache, whose entries weigh as much as the objects
    RelativistCache,
    /// The same with moka's cache
    Moka,
    /// The same with that of quick_cache
    QuickCache,
    /// The same with foyer's cache in memory, with S3-FIFO
    #[cfg(feature = "foyer")]
    Foyer,
    /// Oracle: evicts the object whose next request comes last
    Belady,
    /// Oracle: evicts the object with the largest product of size and time until its next request
    BeladySize,
}

impl Candidate {
    /// Returns whether the limit includes everything that the cache needs.
    fn is_whole(self) -> bool {
        match self {
            Self::Relativistd | Self::RelativistdBytes => true,
            #[cfg(feature = "segcache")]
            Self::SegcacheMerge | Self::SegcacheS3Fifo => true,
            _ => false,
        }
    }

    /// Returns the number of settings of the cache, of which that with the fewest misses counts.
    fn settings(self) -> u32 {
        match self {
            #[cfg(feature = "segcache")]
            Self::SegcacheMerge | Self::SegcacheS3Fifo => 3,
            _ => 1,
        }
    }

    /// Makes an empty cache for objects of these sizes, which may include an overhead. Segcache's
    /// table is doubled `setting` times.
    fn cache<'t>(self, trace: &Trace, sizes: &'t [u64], capacity: u64, setting: u32) -> Result<Box<dyn Cache + 't>> {
        #[cfg(feature = "segcache")]
        let segcache = |policy| {
            Whole::new(sizes, capacity, |plan| Segcache::with_power(plan, policy, Segcache::power(plan) + setting))
        };
        debug_assert!(setting < self.settings());
        Ok(match self {
            Self::Lru => Box::new(Lru::new(sizes, capacity, true)),
            Self::Fifo => Box::new(Lru::new(sizes, capacity, false)),
            Self::SegmentedLru => Box::new(SegmentedLru::new(sizes, capacity)),
            Self::Sieve => Box::new(Sieve::new(sizes, capacity)),
            Self::S3Fifo => Box::new(S3Fifo::new(sizes, capacity)),
            Self::Gdsf => Box::new(Gdsf::new(sizes, capacity)),
            Self::Policy => Box::new(Policy::new(sizes, capacity, EvictFor::Requests)),
            Self::PolicyBytes => Box::new(Policy::new(sizes, capacity, EvictFor::Bytes)),
            Self::Relativistd => Box::new(Whole::new(sizes, capacity, |plan| Ours::new(plan).map(Ours::with_sizing))?),
            Self::RelativistdBytes => Box::new(Whole::new(sizes, capacity, Ours::for_bytes)?),
            #[cfg(feature = "segcache")]
            Self::SegcacheMerge => Box::new(segcache(Segcache::MERGE)?),
            #[cfg(feature = "segcache")]
            Self::SegcacheS3Fifo => Box::new(segcache(Segcache::S3_FIFO)?),
            Self::RelativistCache => Box::new(InProcess::new(sizes, capacity, Name::Relativist)),
            Self::Moka => Box::new(InProcess::new(sizes, capacity, Name::Moka)),
            Self::QuickCache => Box::new(InProcess::new(sizes, capacity, Name::QuickCache)),
            #[cfg(feature = "foyer")]
            Self::Foyer => Box::new(InProcess::new(sizes, capacity, Name::Foyer)),
            Self::Belady => Box::new(Belady::new(trace, sizes, capacity, false)?),
            Self::BeladySize => Box::new(Belady::new(trace, sizes, capacity, true)?),
        })
    }
}

/// A requested size of the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Size {
    Bytes(u64),
    Percent(f64),
}

impl Size {
    fn bytes(self, unique: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (unique as f64 * percent / 100.0) as u64,
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected bytes, such as 1000000, or a percentage, such as 10%".to_owned();
        let Some(percent) = text.strip_suffix('%') else {
            return text.replace('_', "").parse().ok().filter(|&bytes| bytes > 0).map(Self::Bytes).ok_or_else(expected);
        };
        let percent = percent.parse().ok().filter(|percent| (f64::MIN_POSITIVE..=1000.0).contains(percent));
        percent.map(Self::Percent).ok_or_else(expected)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Parses a number of requests. More would not fit into memory.
fn parse_requests(text: &str) -> Result<u64, String> {
    const MAX: u64 = 1 << 30;
    let requests = parse_count(text)?;
    if requests > MAX { Err("expected at most 2^30 requests".into()) } else { Ok(requests) }
}

impl Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[derive(Debug, Serialize)]
struct Results {
    requests: usize,
    objects: usize,
    unique_bytes: u64,
    outcomes: Vec<Outcome>,
}

/// The misses of one policy with one size of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Outcome {
    policy: Candidate,
    size: Size,
    bytes: u64,
    request_miss_ratio: f64,
    byte_miss_ratio: f64,
    /// The request miss ratios that the cache estimates for a quarter, half, once, twice and four
    /// times its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimates: Option<[f64; FACTORS.len()]>,
}

pub fn run(args: &Args) -> Result<()> {
    let cpus = Cpus::allowed();
    let report = Report::begin("replay", args.output.json.as_deref(), &cpus, 1)?;
    let trace = match (&args.trace, args.generate) {
        (Some(path), _) => Trace::read(path)?,
        (None, Some(kind)) => generate(kind, args.requests, args.seed),
        (None, None) => bail!("there is no trace"),
    };
    let bar = progress(args.policies.len() * args.sizes.len());
    let mut outcomes = Vec::new();
    for &policy in &args.policies {
        for &size in &args.sizes {
            outcomes.push(replay(&trace, policy, size, args.overhead)?);
            bar.inc(1);
        }
    }
    finish(&bar);
    let (requests, objects) = (trace.requests.len(), trace.sizes.len());
    let results = Results { requests, objects, unique_bytes: trace.unique_bytes, outcomes };
    let text = overview(args, &results);
    report.finish(args, &results, &text)
}

fn finish(bar: &ProgressBar) {
    bar.finish_and_clear();
}

/// Replays the trace with each setting of the policy. Returns the outcome with the fewest misses.
fn replay(trace: &Trace, policy: Candidate, size: Size, overhead: u64) -> Result<Outcome> {
    let bytes = size.bytes(trace.unique_bytes);
    ensure!(bytes > 0, "a cache of {size} has no bytes");
    let overhead = if policy.is_whole() { 0 } else { overhead };
    let sizes: Vec<u64> = trace.sizes.iter().map(|size| size + overhead).collect();
    let mut best: Option<Outcome> = None;
    let mut refusal = None;
    for setting in 0..policy.settings() {
        match policy.cache(trace, &sizes, bytes, setting) {
            Ok(cache) => {
                let Misses { requests, bytes: missed_bytes, estimates } = misses_of(trace, cache);
                if best.is_none_or(|best| requests < best.request_miss_ratio) {
                    let (request_miss_ratio, byte_miss_ratio) = (requests, missed_bytes);
                    best = Some(Outcome { policy, size, bytes, request_miss_ratio, byte_miss_ratio, estimates });
                }
            }
            Err(error) => refusal = Some(error),
        }
    }
    match (best, refusal) {
        (Some(best), _) => Ok(best),
        (None, Some(error)) => Err(error),
        (None, None) => bail!("{policy:?} has no settings"),
    }
}

/// The shares of requests and of bytes that miss, and those of requests that a cache of another
/// size would miss.
struct Misses {
    requests: f64,
    bytes: f64,
    estimates: Option<[f64; FACTORS.len()]>,
}

fn misses_of(trace: &Trace, mut cache: Box<dyn Cache + '_>) -> Misses {
    let (mut misses, mut missed_bytes, mut all_bytes) = (0_u64, 0, 0);
    for &object in &trace.requests {
        let size = trace.sizes[object as usize];
        all_bytes += size;
        if !cache.request(object) {
            misses += 1;
            missed_bytes += size;
        }
    }
    let requests = trace.requests.len() as f64;
    let estimates = cache.estimated_misses().map(|estimates| estimates.map(|misses| misses / requests));
    Misses { requests: misses as f64 / requests, bytes: missed_bytes as f64 / all_bytes.max(1) as f64, estimates }
}

fn overview(args: &Args, results: &Results) -> String {
    let heads = args.sizes.iter().map(|size| format!("{size}: {} bytes", size.bytes(results.unique_bytes)));
    let header: Vec<String> = ["misses of requests / bytes".to_owned()].into_iter().chain(heads).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let rows = results.outcomes.chunks(args.sizes.len()).map(|outcomes| {
        let cell = |outcome: &Outcome| format!("{:.4} / {:.4}", outcome.request_miss_ratio, outcome.byte_miss_ratio);
        [spell(&outcomes[0].policy)].into_iter().chain(outcomes.iter().map(cell)).collect()
    });
    let Results { requests, objects, unique_bytes, .. } = results;
    let misses = table(&header, rows);
    let estimates = if args.sizing { estimates(results) } else { String::new() };
    format!("{requests} requests for {objects} objects of {unique_bytes} bytes\n\n{misses}{estimates}")
}

/// What the caches estimate for other sizes.
fn estimates(results: &Results) -> String {
    let header: Vec<String> = FACTORS.iter().map(|factor| format!("times {factor}")).collect();
    let header: Vec<&str> =
        ["estimated misses of requests"].into_iter().chain(header.iter().map(String::as_str)).collect();
    let rows = results.outcomes.iter().filter_map(|outcome| {
        let cells = outcome.estimates?.map(|ratio| format!("{ratio:.4}"));
        Some([format!("{}, {}", spell(&outcome.policy), outcome.size)].into_iter().chain(cells).collect())
    });
    format!("\n{}", table(&header, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(requests: &[(u32, u64)]) -> Trace {
        let mut trace = Trace::default();
        for &(object, size) in requests {
            if object as usize == trace.sizes.len() {
                trace.sizes.push(size);
                trace.unique_bytes += size;
            }
            trace.requests.push(object);
        }
        trace
    }

    fn misses(trace: &Trace, policy: Candidate, bytes: u64) -> f64 {
        misses_with_overhead(trace, policy, bytes, 0)
    }

    fn misses_with_overhead(trace: &Trace, policy: Candidate, bytes: u64, overhead: u64) -> f64 {
        let outcome = replay(trace, policy, Size::Bytes(bytes), overhead).unwrap();
        outcome.request_miss_ratio * trace.requests.len() as f64
    }

    /// Two of three objects fit. They are requested in turns, so the requested one has always been
    /// evicted.
    #[test]
    fn overhead_takes_room() {
        let trace = trace(&[(0, 10), (1, 10), (2, 10), (0, 10), (1, 10), (2, 10)]);
        let misses = |overhead| misses_with_overhead(&trace, Candidate::Lru, 30, overhead);
        assert_eq!([0, 1, 5].map(misses), [3.0, 6.0, 6.0]);
        let whole = |overhead| misses_with_overhead(&trace, Candidate::Relativistd, 1 << 20, overhead);
        assert_eq!([0, 1 << 19].map(whole), [3.0, 3.0], "it has its own");
    }

    #[test]
    fn sizes_are_bytes_or_per_cent() {
        assert_eq!("1_000".parse(), Ok(Size::Bytes(1000)));
        assert_eq!("2.5%".parse::<Size>().unwrap().bytes(1000), 25);
        for text in ["", "0", "%", "0%", "-1%", "nan%", "10 MB", "1e9%"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    /// The first of three objects is used again, and then a fourth arrives. Policies differ in
    /// which object they evict.
    #[test]
    fn policies_evict_the_right_object() {
        let start = [(0, 10), (1, 10), (2, 10), (0, 10), (3, 10)];
        let misses_of = |policy, object: u32| {
            let requests: Vec<_> = start.iter().copied().chain([(object, 10)]).collect();
            misses(&trace(&requests), policy, 30) - 4.0
        };
        use Candidate::{Fifo, Gdsf, Lru, SegmentedLru, Sieve};
        assert_eq!([0, 1, 2, 3].map(|object| misses_of(Fifo, object)), [1.0, 0.0, 0.0, 0.0]);
        for policy in [Lru, SegmentedLru, Sieve, Gdsf] {
            assert_eq!([0, 1, 2, 3].map(|object| misses_of(policy, object)), [0.0, 1.0, 0.0, 0.0], "{policy:?}");
        }
    }

    /// A large object that is never requested again displaces small ones, except with policies that
    /// consider sizes.
    #[test]
    fn size_aware_policies_let_the_large_go_first() {
        let small = || (0..16).map(|object| (object, 64));
        let requests: Vec<_> = small().chain([(16, 2048), (17, 1024)]).chain(small()).collect();
        let trace = trace(&requests);
        let full = 16 * 64 + 2048;
        assert_eq!(misses(&trace, Candidate::Gdsf, full), 18.0);
        assert_eq!(misses(&trace, Candidate::Policy, full), 18.0);
        assert_eq!(misses(&trace, Candidate::Lru, full), 34.0);
    }

    /// If everything fits, only first requests miss, with every policy.
    #[test]
    fn everything_hits_when_everything_fits() {
        let requests: Vec<_> =
            (0..3).flat_map(|_| (0..500).map(|object| (object, 20 + u64::from(object) * 7 % 300))).collect();
        let trace = trace(&requests);
        for &policy in Candidate::value_variants() {
            assert_eq!(misses(&trace, policy, 1 << 20), 500.0, "{policy:?}");
            let tight = misses(&trace, policy, 1 << 16);
            assert!((500.0..=1500.0).contains(&tight), "{policy:?}: {tight}");
        }
    }

    /// A golden replay: whatever changes these numbers changes the published results, too. (The
    /// whole cache is not here. Its hash function has a random seed.)
    #[test]
    fn generated_traces_have_known_results() {
        use Candidate::{Belady, BeladySize, Fifo, Gdsf, Lru, Policy, PolicyBytes, S3Fifo, SegmentedLru, Sieve};
        let policies = [Lru, Fifo, SegmentedLru, Sieve, S3Fifo, Gdsf, Policy, PolicyBytes, Belady, BeladySize];
        let expected = [
            [16311, 18116, 13635, 13529, 13575, 11596, 11629, 14416, 10229, 8223],
            [20632, 21773, 19139, 19149, 19187, 18120, 17995, 19973, 16687, 14068],
            [27622, 28656, 26442, 26442, 26635, 25800, 25733, 26837, 24456, 24456],
            [16250, 17486, 17320, 17655, 16993, 13638, 13832, 17001, 11358, 9431],
        ];
        for (&kind, expected) in Kind::value_variants().iter().zip(expected) {
            let trace = generate(kind, 40_000, 1);
            let of = |policy| replay(&trace, policy, Size::Percent(10.0), 0).unwrap().request_miss_ratio;
            assert_eq!(policies.map(|policy| (of(policy) * 40_000.0).round() as u32), expected, "{kind:?}");
        }
    }

    /// The cache's estimates for its own size and for other sizes are near to replays.
    #[test]
    fn the_cache_estimates_other_sizes() {
        let trace = generate(Kind::Etc, 40_000, 1);
        let replay = |policy, bytes| replay(&trace, policy, Size::Bytes(bytes), 0).unwrap();
        let estimates = replay(Candidate::Relativistd, 8 << 20).estimates.expect("it estimates");
        for (estimated, bytes) in estimates.into_iter().zip([2 << 20, 4 << 20, 8 << 20]) {
            let real = replay(Candidate::Relativistd, bytes).request_miss_ratio;
            assert!((estimated - real).abs() < 0.03, "{bytes} bytes: {estimated}, really {real}");
        }
        assert!(estimates.is_sorted_by(|one, other| one >= other), "{estimates:?}");
        assert_eq!(replay(Candidate::Lru, 8 << 20).estimates, None);
    }

    /// Knowing the later requests is better than not knowing them: by requests if sizes are
    /// weighed, by bytes if not.
    #[test]
    fn oracles_miss_least() {
        for &kind in Kind::value_variants() {
            let trace = generate(kind, 20_000, 2);
            for percent in [1.0, 10.0, 30.0] {
                let of = |policy| replay(&trace, policy, Size::Percent(percent), 0).unwrap();
                let (requests, bytes) = (of(Candidate::BeladySize), of(Candidate::Belady));
                for policy in Candidate::value_variants().iter().copied().filter(|policy| !policy.is_whole()) {
                    let outcome = of(policy);
                    let context = format!("{kind:?}, {percent} %, {policy:?}");
                    assert!(requests.request_miss_ratio <= outcome.request_miss_ratio, "{context}");
                    assert!(bytes.byte_miss_ratio <= outcome.byte_miss_ratio + 0.002, "{context}");
                }
            }
        }
    }
}
