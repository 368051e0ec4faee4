//! Pointers that readers follow while a resizer replaces them.
//!
//! Unlike with `relativist_rcu::Published`, the resizer decides when the old value is freed,
//! because it still uses it.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

use relativist_rcu::{Guard, defer_raw};

/// A pointer to a value, or null, that is read under a guard.
#[derive(Debug)]
pub(crate) struct Rcu<T>(AtomicPtr<T>);

impl<T> Rcu<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(AtomicPtr::new(Box::into_raw(Box::new(value))))
    }

    pub(crate) fn none() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// Returns the value.
    ///
    /// # Safety
    ///
    /// The pointer is never null.
    #[inline(always)]
    pub(crate) unsafe fn get<'g>(&'g self, _guard: &'g Guard) -> &'g T {
        // SAFETY: the caller guarantees that it is not null; otherwise as in `try_get`.
        unsafe { &*self.0.load(Acquire) }
    }

    /// Returns the value, if there is one.
    #[inline(always)]
    pub(crate) fn try_get<'g>(&'g self, _guard: &'g Guard) -> Option<&'g T> {
        // Acquire: pairs with the Release in `set`: the reader sees the value as it was published.
        // SAFETY: a value is freed only a grace period after it was replaced, as the caller of
        // `set` promised.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    /// Returns the pointer itself. The caller ensures that no other thread sets it.
    pub(crate) fn pointer(&self) -> *mut T {
        self.0.load(Acquire)
    }

    /// Publishes another value, or null, and leaves the old one as it is.
    ///
    /// # Safety
    ///
    /// `value` comes from a box, or is null. The old one is not freed before a grace period has
    /// passed. No other thread sets the pointer.
    pub(crate) unsafe fn set(&self, value: *mut T) {
        // Release: pairs with the Acquire of readers.
        self.0.store(value, Release);
    }

    /// Frees a value after a grace period.
    ///
    /// # Safety
    ///
    /// It came from a box, no new reader can find it, and it is retired once.
    pub(crate) unsafe fn retire(value: *mut T)
    where
        T: Send + 'static,
    {
        unsafe fn free<T>(value: NonNull<()>) {
            // SAFETY: from a box, as the caller of `retire` promised, and all readers have left.
            drop(unsafe { Box::from_raw(value.cast::<T>().as_ptr()) });
        }
        let value = NonNull::new(value).expect("a value");
        // SAFETY: no new reader finds it, and `T: Send + 'static` may be dropped on any thread.
        unsafe { defer_raw(value.cast(), size_of::<T>(), free::<T>) };
    }

    /// Returns the value, if there is one. No other thread uses it.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: from a box, and no other thread uses it.
        unsafe { self.0.get_mut().as_mut() }
    }
}

impl<T> Drop for Rcu<T> {
    fn drop(&mut self) {
        if let Some(value) = self.get_mut() {
            // SAFETY: it came from a box, and readers' references borrow `self`.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}
