//! A lock per stripe: 64 tables, each behind its own mutex (Herlihy and Shavit, "The Art of
//! Multiprocessor Programming", section 13.2.2, but with a table per lock, like `dashmap`).
//!
//! The low bits of the hash determine the stripe of an entry, and the next ones its bucket. A
//! resizer goes from stripe to stripe.
//!
//! *Progress*: operations on a stripe block each other.
//!
//! *A lookup costs* an atomic read-modify-write to lock and one to unlock, of a word that all users
//! of the stripe share, and a walk of a chain.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use relativist_rcu::contention::Site;

use crate::tables::locks::lock;
use crate::tables::owned::Chains;
use crate::tables::resizer::Resizer;
use crate::tables::{Costs, Resize, Table, TableHasher};

static STRIPE: Site = Site::new("stripe");

/// The maximum number of stripes.
const STRIPES: usize = 64;

/// One table for each stripe.
#[derive(Debug)]
pub struct Striped<H> {
    stripes: Box<[CachePadded<Mutex<Chains>>]>,
    hasher: H,
    buckets: AtomicUsize,
    resizer: CachePadded<Resizer>,
}

impl<H: TableHasher> Striped<H> {
    /// Returns the stripe, and the hash within it.
    #[inline(always)]
    fn stripe(&self, key: u64) -> (&Mutex<Chains>, u64) {
        let hash = self.hasher.hash_one(key);
        let count = self.stripes.len();
        (&self.stripes[hash as usize & (count - 1)], hash >> count.ilog2())
    }
}

impl<H: TableHasher> Table for Striped<H> {
    const NAME: &'static str = "striped";

    fn with_buckets(buckets: usize) -> Self {
        let count = buckets.min(STRIPES);
        let stripe = |_| CachePadded::new(Mutex::new(Chains::new(buckets / count)));
        let stripes: Box<[_]> = (0..count).map(stripe).collect();
        let bytes = stripes.iter().map(|stripe| stripe.lock().bytes()).sum();
        Self { stripes, hasher: H::default(), buckets: buckets.into(), resizer: Resizer::with_bytes(bytes).into() }
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        let (stripe, hash) = self.stripe(key);
        lock(&STRIPE, stripe).get(hash, key)
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        let (stripe, hash) = self.stripe(key);
        lock(&STRIPE, stripe).insert(hash, key, value)
    }

    fn remove(&self, key: u64) -> Option<u64> {
        let (stripe, hash) = self.stripe(key);
        lock(&STRIPE, stripe).remove(hash, key)
    }
}

impl<H: TableHasher> Resize for Striped<H> {
    fn resize_to(&self, buckets: usize) {
        assert!(buckets >= self.stripes.len(), "the table was made with more buckets than {buckets}");
        let _resizing = self.resizer.lock();
        if buckets == self.buckets() {
            return;
        }
        for stripe in &self.stripes {
            let mut chains = lock(&STRIPE, stripe);
            let before = chains.bytes();
            chains.resize(buckets / self.stripes.len());
            self.resizer.add_bytes(chains.bytes());
            self.resizer.subtract_bytes(before);
        }
        // Relaxed: a statistic; each stripe has its own number.
        self.buckets.store(buckets, Relaxed);
    }

    fn buckets(&self) -> usize {
        self.buckets.load(Relaxed)
    }

    fn costs(&self) -> Costs {
        self.resizer.costs()
    }
}
