//! Why entries leave a cache.

/// Why an entry has left the cache; see [`Builder::on_removal`](super::Builder::on_removal).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemovalCause {
    /// It had expired.
    Expired,
    /// The program has removed it.
    Explicit,
    /// Another value has replaced it.
    Replaced,
    /// It was evicted to make room.
    Size,
}

impl RemovalCause {
    /// Returns whether the cache has removed the entry by itself: it had expired, or was evicted.
    pub fn was_evicted(self) -> bool {
        matches!(self, Self::Expired | Self::Size)
    }
}
