//! `relativist hash`: which hash function and table size suit given keys.

pub mod functions;
pub mod histogram;
pub mod keys;
