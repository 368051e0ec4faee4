//! Chains behind one reader-writer lock (USENIX ATC 2011, section 5: "the best-known method based
//! on mutual exclusion").
//!
//! Lookups hold the lock for reading, updates and resizes for writing. A resizer allocates the new
//! array, moves all nodes, and frees the old array, all under the lock.
//!
//! *Progress*: blocking. Lookups wait for updates and for whole resizes.
//!
//! *A lookup costs* two atomic read-modify-writes of one word that all readers share, so that
//! readers on different processors take turns; and a walk of a chain.

use std::ops::{Deref, DerefMut};

use crossbeam_utils::CachePadded;
use relativist_rcu::contention::Site;

use crate::tables::owned::Chains;
use crate::tables::resizer::Resizer;
use crate::tables::{Costs, Resize, Table, TableHasher};

static READ: Site = Site::new("rwlock_read");
static WRITE: Site = Site::new("rwlock_write");

/// A lock that may admit several readers at a time.
pub trait Lock<T>: Send + Sync + 'static {
    /// The name of the table behind it in reports.
    const NAME: &'static str;

    /// Creates a lock around `content`.
    fn new(content: T) -> Self;

    /// Locks it for reading.
    fn read(&self) -> impl Deref<Target = T>;

    /// Locks it for writing.
    fn write(&self) -> impl DerefMut<Target = T>;
}

impl<T: Send + Sync + 'static> Lock<T> for parking_lot::RwLock<T> {
    const NAME: &'static str = "parking_lot RwLock";

    fn new(content: T) -> Self {
        Self::new(content)
    }

    #[inline(always)]
    fn read(&self) -> impl Deref<Target = T> {
        READ.acquire(|| self.try_read(), || self.read())
    }

    #[inline(always)]
    fn write(&self) -> impl DerefMut<Target = T> {
        WRITE.acquire(|| self.try_write(), || self.write())
    }
}

/// One table behind one lock.
#[derive(Debug)]
pub struct Locked<L, H> {
    chains: CachePadded<L>,
    hasher: H,
    resizer: CachePadded<Resizer>,
}

/// The paper's baseline.
pub type RwLocked<H> = Locked<parking_lot::RwLock<Chains>, H>;

impl<L: Lock<Chains>, H: TableHasher> Table for Locked<L, H> {
    const NAME: &'static str = L::NAME;

    fn with_buckets(buckets: usize) -> Self {
        let chains = Chains::new(buckets);
        let resizer = Resizer::with_bytes(chains.bytes()).into();
        Self { chains: L::new(chains).into(), hasher: H::default(), resizer }
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        let hash = self.hasher.hash_one(key);
        self.chains.read().get(hash, key)
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        let hash = self.hasher.hash_one(key);
        self.chains.write().insert(hash, key, value)
    }

    fn remove(&self, key: u64) -> Option<u64> {
        let hash = self.hasher.hash_one(key);
        self.chains.write().remove(hash, key)
    }
}

impl<L: Lock<Chains>, H: TableHasher> Resize for Locked<L, H> {
    fn resize_to(&self, buckets: usize) {
        let _resizing = self.resizer.lock();
        let mut chains = self.chains.write();
        let before = chains.bytes();
        if chains.buckets() != buckets {
            chains.resize(buckets);
            self.resizer.add_bytes(chains.bytes());
            self.resizer.subtract_bytes(before);
        }
    }

    fn buckets(&self) -> usize {
        self.chains.read().buckets()
    }

    fn costs(&self) -> Costs {
        self.resizer.costs()
    }
}
