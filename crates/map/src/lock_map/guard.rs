//! The guard of a locked entry.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::Locked;
use super::lockable::Lockable;

/// A locked entry of a [`Map`](super::Map): a reference to its value, which may be changed.
/// Dropping it unlocks the entry.
///
/// It may be sent to another thread.
pub struct RefMut<'m, K, V> {
    node: NonNull<Locked<K, V>>,
    /// It is invariant in `V`, like `&mut V`, and shares the key.
    _of: PhantomData<(&'m K, &'m mut V)>,
}

// SAFETY: it is like a mutable reference to the value and a shared one to the key. Any thread may
// unlock the entry.
unsafe impl<K: Sync, V: Send> Send for RefMut<'_, K, V> {}
// SAFETY: as above.
unsafe impl<K: Sync, V: Sync> Sync for RefMut<'_, K, V> {}

/// The error of [`Map::try_lock`](super::Map::try_lock): another guard holds the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WouldBlock(pub(super) ());

impl fmt::Display for WouldBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the entry is locked by another guard")
    }
}

impl std::error::Error for WouldBlock {}

impl<'m, K, V> RefMut<'m, K, V> {
    /// # Safety
    ///
    /// The entry is in a map that lives for `'m`, has a value, and is locked for this guard alone.
    #[inline(always)]
    pub(super) unsafe fn new(node: NonNull<Locked<K, V>>) -> Self {
        Self { node, _of: PhantomData }
    }

    #[inline(always)]
    pub(super) fn node(&self) -> &Locked<K, V> {
        // SAFETY: an entry that is locked is in the map.
        unsafe { self.node.as_ref() }
    }

    /// Returns the entry, and leaves it locked.
    pub(super) fn into_raw(self) -> NonNull<Locked<K, V>> {
        ManuallyDrop::new(self).node
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.node().key
    }

    /// Returns the value.
    #[inline(always)]
    pub fn value(&self) -> &V {
        // SAFETY: the lock is held as long as the guard lives.
        unsafe { &*self.node().value.get() }
    }

    /// Returns the value, which may be changed.
    #[inline(always)]
    pub fn value_mut(&mut self) -> &mut V {
        // SAFETY: as above, and the guard is borrowed mutably.
        unsafe { &mut *self.node().value.get() }
    }

    /// Returns the key and the value.
    pub fn pair(&self) -> (&K, &V) {
        (self.key(), self.value())
    }

    /// Returns the key, and the value, which may be changed.
    pub fn pair_mut(&mut self) -> (&K, &mut V) {
        let node = self.node();
        // SAFETY: as in `value_mut`. The key is apart from the value.
        (&node.key, unsafe { &mut *node.value.get() })
    }
}

impl<K, V> Deref for RefMut<'_, K, V> {
    type Target = V;

    #[inline(always)]
    fn deref(&self) -> &V {
        self.value()
    }
}

impl<K, V> DerefMut for RefMut<'_, K, V> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut V {
        self.value_mut()
    }
}

impl<K, V> Drop for RefMut<'_, K, V> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the guard holds the lock, and is not used any more.
        unsafe { Lockable::unlock(&raw const (*self.node.as_ptr()).value) };
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for RefMut<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefMut").field("key", self.key()).field("value", self.value()).finish()
    }
}

impl<K, V: fmt::Display> fmt::Display for RefMut<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}
