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

use crossbeam_utils::CachePadded;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use relativist_rcu::contention::Site;

use crate::tables::owned::Chains;
use crate::tables::resizer::Resizer;
use crate::tables::{Costs, Resize, Table, TableHasher};

static READ: Site = Site::new("rwlock_read");
static WRITE: Site = Site::new("rwlock_write");

/// One table behind one lock: the paper's baseline.
#[derive(Debug)]
pub struct RwLocked<H> {
    chains: CachePadded<RwLock<Chains>>,
    hasher: H,
    resizer: CachePadded<Resizer>,
}

impl<H> RwLocked<H> {
    #[inline(always)]
    fn read(&self) -> RwLockReadGuard<'_, Chains> {
        READ.acquire(|| self.chains.try_read(), || self.chains.read())
    }

    #[inline(always)]
    fn write(&self) -> RwLockWriteGuard<'_, Chains> {
        WRITE.acquire(|| self.chains.try_write(), || self.chains.write())
    }
}

impl<H: TableHasher> Table for RwLocked<H> {
    const NAME: &'static str = "parking_lot RwLock";

    fn with_buckets(buckets: usize) -> Self {
        let chains = Chains::new(buckets);
        let resizer = Resizer::with_bytes(chains.bytes()).into();
        Self { chains: RwLock::new(chains).into(), hasher: H::default(), resizer }
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        let hash = self.hasher.hash_one(key);
        self.read().get(hash, key)
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        let hash = self.hasher.hash_one(key);
        self.write().insert(hash, key, value)
    }

    fn remove(&self, key: u64) -> Option<u64> {
        let hash = self.hasher.hash_one(key);
        self.write().remove(hash, key)
    }
}

impl<H: TableHasher> Resize for RwLocked<H> {
    fn resize_to(&self, buckets: usize) {
        let _resizing = self.resizer.lock();
        let mut chains = self.write();
        let before = chains.bytes();
        if chains.buckets() != buckets {
            chains.resize(buckets);
            self.resizer.add_bytes(chains.bytes());
            self.resizer.subtract_bytes(before);
        }
    }

    fn buckets(&self) -> usize {
        self.read().buckets()
    }

    fn costs(&self) -> Costs {
        self.resizer.costs()
    }
}
