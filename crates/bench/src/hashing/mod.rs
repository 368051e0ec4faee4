//! Hash functions, sources of keys, and histograms of buckets, which `hash` and `relativist-papers`
//! share.

pub mod functions;
pub mod histogram;
pub mod keys;
