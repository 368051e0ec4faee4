//! Keys with their hashes.

use relativist::raw::Hash;

/// A key, and its hash in the cache's table.
#[derive(Clone, Copy)]
pub(crate) struct HashedKey<'k> {
    pub(crate) bytes: &'k [u8],
    pub(crate) hash: Hash,
}
