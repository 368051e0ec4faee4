//! What the table of a lock map holds.

use std::hash::{BuildHasher, Hash};
use std::ptr::NonNull;

use relativist_bucket::{Boxed, Hash as Mixed, Holds, Inline, Keys, Relocatable};

use super::lockable::Lockable;
use crate::entry::Hashing;

/// A key, and its value with a lock.
#[doc(hidden)]
pub struct Locked<K, V> {
    pub(super) key: K,
    pub(super) value: Lockable<V>,
}

// SAFETY: the key is. The value and its lock change only while it is locked or being closed. The
// table closes an entry before it copies it, and opens the copy (`HAVE_LOCKS`). An entry that is
// removed is copied while it is locked and has no value, and only its key is used then.
unsafe impl<K: Relocatable, V: Send + 'static> Relocatable for Locked<K, V> {}

/// A form of the lock map that can store these keys and values. Insertions need it.
///
/// * [`LockMap`](crate::LockMap) stores keys that are `Send + Sync + 'static`, because removed
///   ones are dropped later, on any thread.
/// * [`FlatLockMap`](crate::FlatLockMap) stores keys that are [`Relocatable`].
///
/// Values are `Send + 'static`.
pub trait Stores<K, V>: Holds<Locked<K, V>> + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for Boxed {}
impl sealed::Sealed for Inline {}

impl<K: Send + Sync + 'static, V: Send + 'static> Stores<K, V> for Boxed {}
impl<K: Relocatable, V: Send + 'static> Stores<K, V> for Inline {}

impl<K: Hash + Eq, V, S: BuildHasher> Keys<Locked<K, V>> for Hashing<S> {
    const HAVE_LOCKS: bool = true;

    fn hash(&self, entry: &Locked<K, V>) -> Mixed {
        self.of(&entry.key)
    }

    #[inline(always)]
    fn same(&self, one: &Locked<K, V>, other: &Locked<K, V>) -> bool {
        one.key == other.key
    }

    fn close(&self, entry: &Locked<K, V>) -> bool {
        entry.value.close_to_move()
    }

    fn reopen(&self, entry: &Locked<K, V>) {
        entry.value.reopen();
    }

    unsafe fn open_copy(&self, copy: NonNull<Locked<K, V>>) {
        // SAFETY: guaranteed by the caller.
        unsafe { Lockable::open_copy(&raw mut (*copy.as_ptr()).value) };
    }
}
