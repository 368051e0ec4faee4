//! Times insertions into a full cache while all its entries expire at about the same time.
//!
//! ```text
//! export MIMALLOC_PURGE_DELAY=-1 # mimalloc keeps freed memory, instead of giving it back at once
//! cargo run --release -p relativist-bench --example cache_expiry 10000000 12
//! ```
//!
//! The numbers are the entries, and how many seconds they live. There are more of them than this
//! inserts in that time, so most expire before they would be evicted.

use std::time::{Duration, Instant};

use mimalloc::MiMalloc;
use relativist_bench::harness::latency::Latencies;
use relativist_cache::Cache;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let (entries, seconds) = (arguments.next().unwrap_or(1_000_000), arguments.next().unwrap_or(1));
    let lifetime = Duration::from_secs(seconds);
    let cache: Cache<u64, u64> = Cache::builder().capacity(entries).time_to_live(lifetime).build();
    (0..entries).for_each(|key| cache.insert(key, key));

    let mut latencies = Latencies::new();
    let begin = Instant::now();
    let mut key = entries;
    while begin.elapsed() < lifetime + lifetime / 4 {
        latencies.time(|| cache.insert(key, key));
        key += 1;
        // At most some hundred thousand insertions a second.
        let next = Instant::now() + Duration::from_micros(3);
        while Instant::now() < next {}
    }
    assert!(cache.stats().expirations > 0, "entries expire");
    println!("{} insertions, in nanoseconds: {:?}", latencies.count(), latencies.percentiles());
}
