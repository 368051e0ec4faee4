//! What operators see: the log, statistics, latencies, and the most used keys.

pub mod counter;
pub mod hot_keys;
pub mod latency;
pub mod log;
pub mod stats;
