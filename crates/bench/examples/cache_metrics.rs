//! Exports the statistics of a cache to Prometheus.
//!
//! `cargo run -p relativist-bench --example cache_metrics`

use std::error::Error;

use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::PrometheusBuilder;
use relativist_cache::Cache;

/// Describes the metrics, once per process.
fn describe() {
    describe_counter!("cache_hits_total", "Lookups that found their key.");
    describe_counter!("cache_misses_total", "Lookups that did not find their key.");
    describe_counter!("cache_evictions_total", "Entries removed to make room.");
    describe_counter!("cache_expirations_total", "Entries removed because they had expired.");
    describe_counter!("cache_loads_total", "Calls of loaders that returned a value.");
    describe_counter!("cache_failed_loads_total", "Calls of loaders that failed.");
    describe_counter!("cache_waits_total", "Calls that waited for another caller's loader.");
    describe_counter!("cache_stalls_total", "Updates that waited for readers.");
    describe_gauge!("cache_load_seconds", "Time that all loaders took.");
    describe_gauge!("cache_entries", "Entries, including expired ones that were not freed yet.");
    describe_gauge!("cache_weight", "Sum of the weights of all entries.");
    describe_gauge!("cache_capacity", "Maximum of the weight.");
}

/// Updates the metrics of a cache. The cache does the counting, so call this for each scrape.
fn update<K, V, S>(name: &'static str, cache: &Cache<K, V, S>) {
    let stats = cache.stats();
    counter!("cache_hits_total", "cache" => name).absolute(stats.hits);
    counter!("cache_misses_total", "cache" => name).absolute(stats.misses);
    counter!("cache_evictions_total", "cache" => name).absolute(stats.evictions);
    counter!("cache_expirations_total", "cache" => name).absolute(stats.expirations);
    counter!("cache_loads_total", "cache" => name).absolute(stats.loads);
    counter!("cache_failed_loads_total", "cache" => name).absolute(stats.failed_loads);
    counter!("cache_waits_total", "cache" => name).absolute(stats.waits);
    counter!("cache_stalls_total", "cache" => name).absolute(stats.stalls);
    // A gauge, because counters of this crate are integers.
    gauge!("cache_load_seconds", "cache" => name).set(stats.load_time.as_secs_f64());
    gauge!("cache_entries", "cache" => name).set(cache.len() as f64);
    gauge!("cache_weight", "cache" => name).set(cache.weight() as f64);
    gauge!("cache_capacity", "cache" => name).set(cache.capacity() as f64);
}

fn main() -> Result<(), Box<dyn Error>> {
    let metrics = PrometheusBuilder::new().install_recorder()?;
    describe();
    let squares: Cache<u64, u64> = Cache::builder().capacity(2).record_stats().build();
    for n in [1, 2, 1, 3] {
        squares.get_or_insert_with(n, || n * n);
    }
    // In a service, the handler of `/metrics` does this, and returns the text.
    update("squares", &squares);
    let text = metrics.render();
    print!("{text}");
    assert!(text.contains("# TYPE cache_hits_total counter\ncache_hits_total{cache=\"squares\"} 1\n"));
    assert!(text.contains("# TYPE cache_entries gauge\ncache_entries{cache=\"squares\"} 2\n"));
    Ok(())
}
