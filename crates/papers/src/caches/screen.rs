//! Tables of our results and the paper's.

use super::events::{CACHES, Cache};
use super::kernel::Kernel;
use super::replay::Outcome;
use super::{Measured, Results};
use relativist_bench::harness::report::{count, significant, table};
use relativist_bench::harness::stats::Mean;

/// Formats all tables.
pub fn describe(results: &Results) -> String {
    let mut text = "Here: millions of lookups per second in all four caches together, with standard deviation over runs. The paper: \
                    scripts per hour of SPEC SDM. Both are also divided by those of the first kernel (x).\n"
        .to_owned();
    for measured in &results.tables {
        text += &format!("\n{}\n\n{}", title(measured), comparison(measured));
    }
    if let Some(last) = results.tables.last() {
        text += &format!("\nThe caches of {}\n\n{}", title(last), caches(last));
    }
    text + "\nBuckets at start-up by memory: Linux 2.2.5, and 2.2.16; our table's if all of it were for such objects and their \
            buckets.\n\n"
        + &sizing()
}

fn title(measured: &Measured) -> String {
    format!("Table {}: {}", measured.number, measured.title)
}

const COMPARISON: [&str; 13] =
    ["kernel", "scripts", "buckets", "probes", "largest", "here", "s", "x", "elapsed", "paper", "s", "x", "elapsed"];

fn comparison(measured: &Measured) -> String {
    let mut rows = Vec::new();
    for (index, outcomes) in measured.outcomes.iter().enumerate() {
        for (row, outcome) in outcomes.iter().enumerate() {
            let here = Mean::of(&measured.kept(outcome));
            let reference = Mean::of(&measured.kept(&outcomes[0]));
            let mut cells =
                vec![outcome.kernel.name.to_owned(), measured.scripts[index].to_string(), buckets(measured, outcome)];
            cells.extend(quality(measured, outcome));
            cells.extend([here.mean, here.deviation].map(|lookups| significant(lookups / 1e6)));
            cells.extend([format!("{:.3}", here.mean / reference.mean), format!("{:.2} s", outcome.seconds)]);
            cells.extend(printed(measured, row, index));
            rows.push(cells);
        }
    }
    table(&COMPARISON, rows)
}

/// Formats the paper's values for a kernel with one number of scripts, and the ratio to the first
/// kernel.
fn printed(measured: &Measured, row: usize, index: usize) -> [String; 4] {
    let throughput = |row: usize| measured.printed.get(row).and_then(|(throughputs, _)| throughputs.get(index));
    match (throughput(row), throughput(0)) {
        (Some((mean, deviation)), Some((reference, _))) => {
            // The paper gives one time for all numbers of scripts together.
            let elapsed = if index == 0 { measured.printed[row].1 } else { "" };
            let ratio = format!("{:.3}", mean / reference);
            [format!("{mean:.1}"), format!("{deviation:.2}"), ratio, elapsed.to_owned()]
        }
        _ => Default::default(),
    }
}

fn buckets(measured: &Measured, outcome: &Outcome) -> String {
    let of = |cache| count(outcome.kernel.choice(cache).buckets);
    measured.cache.map_or_else(|| CACHES.map(of).join(" "), of)
}

/// Formats probes per lookup and the largest bucket: of the compared cache, or the maximum over all
/// caches.
fn quality(measured: &Measured, outcome: &Outcome) -> [String; 2] {
    let caches = outcome.caches.iter().filter(|outcome| measured.cache.is_none_or(|cache| outcome.cache == cache));
    let (probes, largest) = caches.fold((0.0_f64, 0), |(probes, largest), cache| {
        (probes.max(cache.met.probes()), largest.max(cache.full.largest()))
    });
    [significant(probes), largest.to_string()]
}

fn caches(measured: &Measured) -> String {
    let mut rows = Vec::new();
    for outcome in measured.outcomes.iter().flatten() {
        for cache in &outcome.caches {
            let choice = outcome.kernel.choice(cache.cache);
            rows.push(vec![
                format!("{} {:?}", outcome.kernel.name, cache.cache).to_lowercase(),
                choice.function.to_owned(),
                count(choice.buckets),
                cache.met.lookups().to_string(),
                format!("{:.0} %", cache.met.hit_rate() * 100.0),
                format!("{:.0}", cache.met.probes() * 1000.0),
                cache.full.entries.to_string(),
                cache.full.empty().to_string(),
                cache.full.largest().to_string(),
                cache.after.entries.to_string(),
                cache.after.largest().to_string(),
            ]);
        }
    }
    let header = [
        "kernel and cache",
        "function",
        "buckets",
        "lookups",
        "hits",
        "probes / 1000",
        "full: objects",
        "empty",
        "largest",
        "after: objects",
        "largest",
    ];
    table(&header, rows)
}

fn sizing() -> String {
    /// The bytes of a bucket and of a link of our table.
    const BUCKET: usize = 8;
    const LINK: usize = 16;
    /// Returns the number of buckets of our table when objects of `bytes` bytes fill the memory,
    /// each with a key of 16 bytes and a link: the largest power of two that leaves enough memory
    /// for half an object per bucket.
    fn ours(bytes: usize, memory: usize) -> String {
        count(1 << (memory / (BUCKET + (LINK + 16 + bytes) / 2)).ilog2())
    }
    let rows = [32_usize, 64, 128, 256, 512].map(|megabytes| {
        let memory = megabytes << 20;
        let (fixed, sized) = (Kernel::reference(), Kernel::sized(memory as u64));
        let ours = [4096, 1024, 128, 392].map(|bytes| ours(bytes, memory));
        let cell = |(cache, ours): (Cache, String)| {
            format!("{}, {}; {ours}", count(fixed.choice(cache).buckets), count(sized.choice(cache).buckets))
        };
        [format!("{megabytes} MiB")].into_iter().chain(CACHES.into_iter().zip(ours).map(cell)).collect()
    });
    table(&["memory", "page", "buffer", "dentry", "inode"], rows)
}
