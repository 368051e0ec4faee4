//! A pointer that readers follow while writers replace what it points to.

use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::defer::defer_free;
use crate::guard::Guard;
use relativist_core::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire},
};

/// A shared value that can be replaced while readers use it. A reader sees either the old version
/// or the new one, completely. These are the *publish* and *read* primitives of the papers (ATC
/// 2011, section 3).
///
/// Use it for values that are read far more often than replaced, such as configurations and routing
/// tables. Writers that compute a new value from the current one need a lock around both steps.
///
/// ```
/// use relativist_rcu::{Published, read};
///
/// let routes = Published::new(vec!["a"]);
/// routes.publish(vec!["a", "b"]);
/// assert_eq!(routes.read(&read()).len(), 2);
/// ```
///
/// A reference borrows the pointer, too:
///
/// ```compile_fail,E0505
/// use relativist_rcu::{Published, read};
/// let guard = read();
/// let value = Published::new(1);
/// let one = value.read(&guard);
/// drop(value); // error: borrowed
/// assert_eq!(*one, 1);
/// ```
///
/// ```
/// # use relativist_rcu::{Published, read};
/// let guard = read();
/// let value = Published::new(1);
/// let one = value.read(&guard);
/// assert_eq!(*one, 1);
/// drop(value);
/// ```
///
/// A new version is published through a shared reference, so `Published<T>` is *invariant* in `T`,
/// as is `Mutex<T>`:
///
/// ```compile_fail,E0308
/// use relativist_rcu::Published;
/// type TakesAny = for<'a> fn(&'a str);
/// type TakesStatic = fn(&'static str);
///
/// fn narrow(value: &Published<TakesAny>) -> &Published<TakesStatic> {
///     value // error: mismatched types
/// }
/// ```
///
/// ```
/// use relativist_rcu::{Published, read};
/// type TakesAny = for<'a> fn(&'a str);
/// type TakesStatic = fn(&'static str);
///
/// fn narrow(value: &Published<TakesAny>) -> TakesStatic {
///     *value.read(&read()) // what is read may be converted
/// }
/// ```
pub struct Published<T> {
    value: AtomicPtr<T>,
    _owns: PhantomData<Box<T>>,
}

impl<T> Published<T> {
    /// Creates the pointer and allocates the first version.
    pub fn new(value: T) -> Self {
        Self { value: AtomicPtr::new(Box::into_raw(Box::new(value))), _owns: PhantomData }
    }

    /// Returns the current version, which is valid as long as the guard lives. Wait-free: one load.
    #[inline]
    pub fn read<'g>(&'g self, _guard: &'g Guard) -> &'g T {
        // Acquire: pairs with the Release in `publish`: the reader sees the version as it was
        // published.
        // litmus: published
        let value = self.value.load(Acquire);
        // SAFETY: never null. A version is dropped a grace period after it was replaced, or with
        // `self`: the guard prevents the first, the borrow of `self` the second.
        unsafe { &*value }
    }

    /// Replaces the value. Readers can continue to use the old version; it is dropped after a grace
    /// period. Does not block, except by the bound on deferred work (see
    /// [`defer`](crate::defer())).
    pub fn publish(&self, value: T)
    where
        T: Send + Sync + 'static,
    {
        let new = Box::into_raw(Box::new(value));
        // AcqRel: Release pairs with the Acquire in `read`. Acquire pairs with the Release of the
        // swap that published the old version, so that this thread, which may drop it, sees it
        // complete.
        // litmus: published, published-replaced
        let old = self.value.swap(new, AcqRel);
        // SAFETY: never null.
        let old = unsafe { NonNull::new_unchecked(old) };
        // SAFETY: it came from a box, after the swap only this thread frees it, and no new reader
        // finds it; `T: Send + 'static`.
        unsafe { defer_free(old) };
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        // Acquire: as in `publish`.
        // litmus: published
        let value = self.value.load(Acquire);
        // SAFETY: it came from a box, and references from `read` borrow `self`, so none is left.
        drop(unsafe { Box::from_raw(value) });
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Published").field(self.read(&crate::read())).finish()
    }
}
