//! Loads that are in progress, at most one per key. The first thread or task that misses a key
//! *leads* a flight; others that miss it meanwhile *join*, and wait for its outcome.
//!
//! A flight is in [`Flights`] from the moment at which it has a leader until it *lands*. The leader
//! has a [`Lead`], which lands when it is dropped: with a value if the loader returned one, without
//! if it failed, panicked, or if the future was dropped. Then all that have joined wake up. They
//! take the value, or look their key up again, and one of them leads the next flight.
//!
//! The leader of a new flight looks its key up once more, because the previous flight may have
//! landed between its miss and its lead. A flight puts its value into the cache before it leaves
//! the table. So while a key is loaded or in the cache, no second loader runs, unless a removal has
//! come in between.
//!
//! If the leader finds a value, it returns the value, but the flight lands without. A removal that
//! has looked for flights before this one began may remove the entry after the leader has found it.
//! Whoever joins after the removal must not get what was removed. So a flight passes on only what
//! its loader has returned, and the loader began after the removal had looked for flights.
//!
//! An insertion or a removal *cancels* the flight of its key: it lands the flight without a value,
//! because the value may be out of date. Only the caller of the loader gets the value, and it is
//! not put into the cache. All that have joined wake up, and look their key up again, so they do
//! not depend on the leader any more. One of them may lead another flight, and its loader may run
//! at the same time as that of the cancelled one. An insertion or a removal that comes while the
//! value is being inserted waits for that, and then replaces or removes it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash};
use std::pin::Pin;
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, ThreadId};

use relativist_core::unwind::contain;
use relativist_rcu::{Guard, read};

use crate::nodes::Nodes;
use relativist_core::sync::{Acquire, AtomicIsize, Mutex, MutexGuard, Relaxed, Release, local};
use relativist_table::node::Node;
use relativist_table::{self as table, Entry};

local! {
    /// Whether this thread holds a [`Permit`].
    static INSERTS: Cell<bool> = Cell::new(false);
}

/// All flights of a cache.
pub(super) struct Flights<K, V> {
    /// By key. The keys are always hashed by the cache, never by this map.
    by_key: Nodes<K, Arc<Flight<V>>, BuildHasherDefault<DefaultHasher>>,
    /// At least the number of flights in the map, so that an insertion or a removal need not look
    /// its key up if there are none.
    count: AtomicIsize,
}

struct Flight<V> {
    /// Set when the flight lands or is cancelled, whichever comes first: to the value, or to none.
    outcome: OnceLock<Option<V>>,
    joined: Mutex<Joined>,
    /// Locked while the value is inserted, and to cancel the flight.
    inserting: Mutex<()>,
    /// The thread that called the loader, if that is a function and not a future.
    thread: Option<ThreadId>,
}

#[derive(Default)]
struct Joined {
    /// The wakers of those that wait, by their numbers. A waiter that gives up takes its own out.
    wakers: BTreeMap<u64, Waker>,
    next: u64,
}

impl<V> Flight<V> {
    fn new(thread: Option<ThreadId>) -> Self {
        Self { outcome: OnceLock::new(), joined: Mutex::default(), inserting: Mutex::new(()), thread }
    }

    /// Locks the list of those that wait. No code of the user runs under this lock.
    fn joined(&self) -> MutexGuard<'_, Joined> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inserting(&self) -> MutexGuard<'_, ()> {
        self.inserting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those that wait. The outcome is set, and a waiter that adds itself later finds it.
    fn wake(&self) {
        let wakers = std::mem::take(&mut self.joined().wakers);
        // A waker is code of the executor: a panic must not prevent others from waking up.
        wakers.into_values().for_each(|waker| _ = contain(|| waker.wake()));
    }
}

/// What a thread or task does about a key that it has missed.
pub(super) enum Boarding<'c, K: Send + 'static, V: Send + Sync + 'static> {
    Lead(Lead<'c, K, V>),
    Join(Wait<V>),
}

impl<K, V> Flights<K, V> {
    pub(super) fn new() -> Self {
        Self { by_key: Nodes::new(0, BuildHasherDefault::default()), count: AtomicIsize::new(0) }
    }
}

impl<K: Hash + Eq + Send + Sync + 'static, V: Send + Sync + 'static> Flights<K, V> {
    /// Joins the flight of a key, or leads a new one. `thread` is the calling thread if it will
    /// block until the flight lands.
    ///
    /// # Panics
    ///
    /// Panics if the thread would wait for itself.
    pub(super) fn board(&self, hash: table::Hash, key: &K, thread: Option<ThreadId>) -> Boarding<'_, K, V>
    where
        K: Clone,
    {
        let mut new = None;
        loop {
            let guard = read();
            let current = match self.by_key.find_hashed(hash, key, &guard) {
                Some(current) => current,
                None => {
                    let flight = new.get_or_insert_with(|| Arc::new(Flight::new(thread)));
                    let counted = Counted::new(&self.count);
                    match self.by_key.put_new(hash, (key.clone(), Arc::clone(flight)), &guard) {
                        Ok(_) => {
                            return Boarding::Lead(Lead {
                                flights: self,
                                hash,
                                flight: Arc::clone(flight),
                                value: None,
                                _counted: counted,
                            });
                        }
                        Err((current, _)) => current,
                    }
                }
            };
            let flight = &current.value;
            if flight.outcome.get().is_some() {
                // It was cancelled, or its thread has panicked, and it is not removed yet.
                self.by_key.remove_exactly(current, &guard);
                continue;
            }
            assert!(
                thread.is_none() || flight.thread != thread,
                "the loader of a key asks for the same key: this thread would wait for itself"
            );
            return Boarding::Join(Wait { flight: Arc::clone(flight), number: None });
        }
    }

    /// Returns whether there may be a flight.
    #[inline]
    pub(super) fn may_be_any(&self) -> bool {
        // A flight is counted before it is in the map. What makes it visible there to this thread
        // makes its count visible too, so this misses no flight that a lookup would find.
        // Acquire: pairs with the Release in `Counted::drop`: a removal that sees no flight sees
        // the entry that it has inserted.
        // litmus: flight-landed, flight-begun
        self.count.load(Acquire) > 0
    }

    /// Cancels the flight of a key, if there is one. Waits while its leader inserts the value, so
    /// the thread must hold no lock of the cache's map.
    ///
    /// # Panics
    ///
    /// Panics if this thread is inserting a loaded value.
    #[cold]
    pub(super) fn cancel<Q>(&self, hash: table::Hash, key: &Q, guard: &Guard)
    where
        Q: equivalent::Equivalent<K> + ?Sized,
    {
        if let Some(node) = self.by_key.find_hashed(hash, key, guard) {
            self.cancel_found(node, guard);
        }
    }

    fn cancel_found(&self, node: &Node<K, Arc<Flight<V>>>, guard: &Guard) {
        // A thread that inserts a loaded value could wait for itself here, or for a thread that
        // waits for it.
        assert!(!INSERTS.with(Cell::get), "`Eq` of a key must not update a cache that loads the key");
        let inserting = node.value.inserting();
        // Fails if the flight has just landed.
        let _ = node.value.outcome.set(None);
        drop(inserting);
        self.by_key.remove_exactly(node, guard);
        node.value.wake();
    }

    /// Cancels all flights, as [`Flights::cancel`] does.
    pub(super) fn cancel_all(&self) {
        let guard = read();
        for node in self.by_key.iter(&guard) {
            self.cancel_found(node, &guard);
        }
    }
}

impl<K: Send + 'static, V: Send + Sync + 'static> Flights<K, V> {
    /// Removes a flight, unless it was cancelled. Compares no keys.
    fn remove(&self, hash: table::Hash, flight: &Arc<Flight<V>>) {
        let guard = read();
        // SAFETY: the table calls this with links of its own, in a read section or under their
        // lock.
        let is_this = |link| Arc::ptr_eq(unsafe { &self.by_key.node(link).value }, flight);
        if let Entry::Occupied(entry) = self.by_key.table.entry(hash, is_this, &guard) {
            // SAFETY: this thread has just unlinked it.
            unsafe { self.by_key.retire(entry.remove(), &guard) };
        }
    }
}

/// The right to load a key, and the duty to land its flight.
pub(super) struct Lead<'c, K: Send + 'static, V: Send + Sync + 'static> {
    flights: &'c Flights<K, V>,
    hash: table::Hash,
    flight: Arc<Flight<V>>,
    value: Option<V>,
    /// Dropped after the flight was removed.
    _counted: Counted<'c>,
}

/// Counts a flight that is in the map, or about to be.
struct Counted<'c>(&'c AtomicIsize);

impl<'c> Counted<'c> {
    fn new(count: &'c AtomicIsize) -> Self {
        // Relaxed: see `Flights::may_be_any`.
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `Flights::may_be_any`.
        // litmus: flight-landed
        self.0.fetch_add(-1, Release);
    }
}

impl<K: Send + 'static, V: Send + Sync + 'static> Lead<'_, K, V> {
    /// Sets the value for those that have joined, if the flight is not cancelled.
    pub(super) fn succeed(&mut self, value: V) {
        self.value = Some(value);
    }

    /// Returns whether the flight was cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        self.flight.outcome.get().is_some()
    }

    /// Returns a permit to insert the value, unless the flight was cancelled. An insertion or a
    /// removal of the key that comes later waits until the permit is dropped, and so finds the
    /// value.
    pub(super) fn permit(&self) -> Option<Permit<'_>> {
        let inserting = self.flight.inserting();
        (!self.is_cancelled())
            .then(|| Permit { _inserting: inserting, outer: INSERTS.with(|inserts| inserts.replace(true)) })
    }
}

impl<K: Send + 'static, V: Send + Sync + 'static> Drop for Lead<'_, K, V> {
    fn drop(&mut self) {
        // Lands even if the removal panics.
        let _landing = Landing { flight: &self.flight, value: self.value.take() };
        self.flights.remove(self.hash, &self.flight);
    }
}

/// See [`Lead::permit`].
pub(super) struct Permit<'f> {
    _inserting: MutexGuard<'f, ()>,
    /// Whether this thread holds another permit.
    outer: bool,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        INSERTS.with(|inserts| inserts.set(self.outer));
    }
}

struct Landing<'f, V> {
    flight: &'f Flight<V>,
    value: Option<V>,
}

impl<V> Drop for Landing<'_, V> {
    fn drop(&mut self) {
        let unused = self.flight.outcome.set(self.value.take());
        self.flight.wake();
        // The flight was cancelled. The destructor is code of the user, and this may run while a
        // panic unwinds.
        contain(|| drop(unused));
    }
}

/// Waits until a flight lands. Returns the value, or `None` if there is none.
pub(super) struct Wait<V> {
    flight: Arc<Flight<V>>,
    number: Option<u64>,
}

impl<V: Clone> Wait<V> {
    /// Blocks the thread.
    pub(super) fn block(mut self) -> Option<V> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(value) => return value,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}

impl<V: Clone> Future for Wait<V> {
    type Output = Option<V>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<V>> {
        if let Some(outcome) = self.flight.outcome.get() {
            return Poll::Ready(outcome.clone());
        }
        // The code of wakers runs outside of the lock.
        let mut waker = Some(context.waker().clone());
        let replaced = self.add(&mut waker);
        drop((waker, replaced));
        match self.flight.outcome.get() {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => Poll::Pending,
        }
    }
}

impl<V> Wait<V> {
    /// Adds the waker to those of the flight, unless it has landed. Returns the waker that it
    /// replaces.
    fn add(&mut self, waker: &mut Option<Waker>) -> Option<Waker> {
        let Self { flight, number } = self;
        let mut joined = flight.joined();
        if flight.outcome.get().is_some() {
            return None;
        }
        let number = *number.get_or_insert(joined.next);
        joined.next = joined.next.max(number + 1);
        waker.take().and_then(|waker| joined.wakers.insert(number, waker))
    }
}

impl<V> Drop for Wait<V> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let waker = self.flight.joined().wakers.remove(&number);
        drop(waker);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
