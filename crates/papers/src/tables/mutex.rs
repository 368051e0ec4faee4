//! Chains behind one mutex: like [`rwlock`](super::rwlock), but readers exclude each other.
//! memcached's default engine did this when the paper was written.
//!
//! *Progress*: blocking; lookups wait for lookups, too.
//!
//! *A lookup costs* an atomic read-modify-write to lock and one to unlock, of a word that all
//! threads share, and a walk of a chain.

use std::ops::{Deref, DerefMut};

use relativist_rcu::contention::Site;

use crate::tables::locks::lock;
use crate::tables::owned::Chains;
use crate::tables::rwlock::{Lock, Locked};

static MUTEX: Site = Site::new("mutex");

/// One table behind one mutex.
pub type Mutexed<H> = Locked<parking_lot::Mutex<Chains>, H>;

impl<T: Send + Sync + 'static> Lock<T> for parking_lot::Mutex<T> {
    const NAME: &'static str = "mutex";

    fn new(content: T) -> Self {
        Self::new(content)
    }

    #[inline(always)]
    fn read(&self) -> impl Deref<Target = T> {
        lock(&MUTEX, self)
    }

    #[inline(always)]
    fn write(&self) -> impl DerefMut<Target = T> {
        lock(&MUTEX, self)
    }
}
