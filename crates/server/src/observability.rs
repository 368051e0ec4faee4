//! What operators see: the log, statistics, latencies, and the HTTP server with metrics.

pub(crate) mod admin;
pub mod hot_keys;
pub mod latency;
pub mod log;
pub mod stats;
