//! How things are measured: candidates in turns, threads that run batches, samples, reports.
//!
//! This module does not depend on tables, servers or commands.

pub mod callgrind;
pub mod chart;
pub mod comparison;
pub mod hashers;
pub mod keys;
pub mod latency;
pub mod machine;
pub mod options;
pub mod report;
pub mod rounds;
pub mod sampling;
pub mod stats;
pub mod workers;
