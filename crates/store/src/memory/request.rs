//! Requests for memory: the situation of the thread, and the answer that there is none.

/// There is no room: the limit is reached, or the system has no memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutOfMemory {
    /// The bytes requested.
    pub requested: usize,
}

/// The situation of the thread that allocates.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AllocContext {
    /// A store that holds no lock.
    NoLock,
    /// A store that holds a bucket's lock. It gives no memory back to the system, because that may
    /// take long. It does so when it makes room, without the lock.
    UnderBucketLock,
    /// A sweep that moves an item with this many visits to its credit. It may use the last free
    /// blocks.
    Relocation { visits: u8 },
}

impl AllocContext {
    pub(crate) fn is_relocation(self) -> bool {
        matches!(self, AllocContext::Relocation { .. })
    }

    /// The visits to the credit of the item.
    pub(crate) fn visits(self) -> u8 {
        match self {
            AllocContext::Relocation { visits } => visits,
            AllocContext::NoLock | AllocContext::UnderBucketLock => 0,
        }
    }
}
