//! Functions that load a value if its key is missing, with one loader per key.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hash};
use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use equivalent::Equivalent;
use relativist_bucket as bucket;
use relativist_rcu::{is_reading, read};

use super::Cache;
use super::core::Core;
use super::expiry::Purpose;
use super::flight::{Flight, Landed, Outcome, PATIENCE, Wait};
use super::key::{Borrowed, KeySource, Owned};
use super::lead::{Lead, Load};
use super::node::Lifespan;
use super::with_core;

/// Functions that load what is missing.
///
/// At most one loader runs for a key at a time, unless the key is inserted or removed meanwhile
/// (see below); others that miss the key wait for it, and get clones of its value. If it fails,
/// they get its error. If it panics or is cancelled, the next one of them calls its own loader, so
/// that no key stays locked. The value is returned even if it is too heavy for the cache.
///
/// If the key is [inserted](Cache::insert) or [removed](Cache::remove) while it is loaded, the
/// loader's value may be out of date. Only the caller of that loader gets the value, and the cache
/// does not keep it. Those that wait look the key up again. If it is missing, one of them calls its
/// own loader, which may run at the same time as the first.
///
/// A loader may load other keys. But loaders that ask for each other's key, on two threads or in
/// two tasks, wait for each other for ever.
///
/// A thread that holds a guard or a handle may load, but never waits for another loader: that
/// loader's thread may wait for readers, and so for this guard. If the key is being loaded, the
/// thread calls its own loader, and the cache does not keep the value. While a loader runs, the
/// guard only delays the reclamation of memory.
///
/// # Refreshing
///
/// If entries are [refreshed](super::Builder::refresh_after) and one is old enough, the first
/// caller that finds it calls its loader, while others get the old value. If the loader fails, its
/// caller gets the old value, too. A value that the caller itself finds
/// [stale](Cache::get_or_try_refresh_with) is never returned in place of an error.
///
/// # Futures that are not polled
///
/// A future of these functions may be dropped at any time. If it is kept and not polled while its
/// loader could go on, as `select!` and streams may do, others wait for it for 100 ms only. Then
/// one of them calls its own loader. (If that is not polled either, the next one does after 200 ms,
/// and so on.)
///
/// # Threads and tasks
///
/// Threads and tasks may wait for each other's loaders. But a task must not call the functions that
/// block: it would keep its thread from running the task for which it waits.
impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns a clone of the value of a key. If the key is missing, calls `load` and inserts its
    /// result.
    ///
    /// Wait-free if the key is present, apart from `clone`. Otherwise blocks while another thread
    /// or task loads the key.
    ///
    /// # Panics
    ///
    /// Panics if `load` asks for the same key by one of the functions that block.
    ///
    /// ```
    /// let squares = relativist_cache::Cache::new(1000);
    /// let square = |n: u64| squares.get_or_insert_with(n, || n * n);
    /// assert_eq!(square(12), 144);
    /// assert_eq!(squares.get(&12), Some(144));
    /// ```
    #[doc(alias = "get_with")]
    pub fn get_or_insert_with(&self, key: K, load: impl FnOnce() -> V) -> V {
        infallible(self.get_or_try_insert_with(key, || Ok::<V, Infallible>(load())))
    }

    /// Like [`Cache::get_or_insert_with`], but `load` may fail. Then nothing is inserted. Threads
    /// and tasks that wait for this loader share its error, if theirs has the same type.
    ///
    /// # Errors
    ///
    /// Returns the error of `load`, or of the loader of the caller for which this one has waited.
    ///
    /// # Panics
    ///
    /// See [`Cache::get_or_insert_with`].
    ///
    /// ```
    /// use relativist_cache::Cache;
    ///
    /// let numbers: Cache<String, u32> = Cache::new(1000);
    /// let number = |text: &str| numbers.get_or_try_insert_with(text.into(), || text.parse());
    /// assert_eq!(number("12"), Ok(12));
    /// assert!(number("dozen").is_err());
    /// assert_eq!(numbers.len(), 1);
    /// ```
    #[doc(alias = "try_get_with")]
    pub fn get_or_try_insert_with<E>(&self, key: K, load: impl FnOnce() -> Result<V, E>) -> Result<V, Arc<E>>
    where
        E: Send + Sync + 'static,
    {
        with_core!(self, core => core.load(Owned(key), |_| false, load))
    }

    /// Like [`Cache::get_or_insert_with`], by reference: converts it to a key only for a load. So a
    /// hit allocates nothing.
    ///
    /// # Panics
    ///
    /// See [`Cache::get_or_insert_with`]. Panics also if the conversion returns another key.
    ///
    /// ```
    /// let lengths = relativist_cache::Cache::<String, usize>::new(1000);
    /// assert_eq!(lengths.get_or_insert_with_ref("seven", || "seven".len()), 5);
    /// assert_eq!(lengths.get_or_insert_with_ref("seven", || unreachable!("it is present")), 5);
    /// ```
    #[doc(alias = "get_with_by_ref")]
    pub fn get_or_insert_with_ref<'q, Q>(&self, key: &'q Q, load: impl FnOnce() -> V) -> V
    where
        Q: Hash + Equivalent<K> + ?Sized,
        K: From<&'q Q>,
    {
        infallible(self.get_or_try_insert_with_ref(key, || Ok::<V, Infallible>(load())))
    }

    /// Like [`Cache::get_or_try_insert_with`], by reference; see
    /// [`Cache::get_or_insert_with_ref`].
    ///
    /// # Errors
    ///
    /// See [`Cache::get_or_try_insert_with`].
    ///
    /// # Panics
    ///
    /// See [`Cache::get_or_insert_with_ref`].
    ///
    /// ```
    /// let numbers = relativist_cache::Cache::<String, u32>::new(1000);
    /// let number = |text: &str| numbers.get_or_try_insert_with_ref(text, || text.parse());
    /// assert_eq!(number("12"), Ok(12));
    /// assert!(number("dozen").is_err());
    /// ```
    #[doc(alias = "try_get_with_by_ref")]
    pub fn get_or_try_insert_with_ref<'q, Q, E>(
        &self,
        key: &'q Q,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, Arc<E>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        K: From<&'q Q>,
        E: Send + Sync + 'static,
    {
        with_core!(self, core => core.load(Borrowed::new(key), |_| false, load))
    }

    /// Like [`Cache::get_or_insert_with`], but also loads if `is_stale` returns true for the value
    /// that is present. One caller loads; others that find the value stale wait for it.
    ///
    /// `is_stale` must not call a function of the cache that waits.
    ///
    /// # Panics
    ///
    /// See [`Cache::get_or_insert_with`].
    ///
    /// ```
    /// use relativist_cache::Cache;
    ///
    /// let versions: Cache<&str, u32> = Cache::new(1000);
    /// let at_least = |least, latest| versions.get_or_refresh_with("schema", |version| *version < least, || latest);
    /// assert_eq!(at_least(1, 1), 1);
    /// assert_eq!(at_least(1, 2), 1);
    /// assert_eq!(at_least(2, 2), 2);
    /// ```
    #[doc(alias = "get_with_if")]
    pub fn get_or_refresh_with(&self, key: K, is_stale: impl Fn(&V) -> bool, load: impl FnOnce() -> V) -> V {
        infallible(self.get_or_try_refresh_with(key, is_stale, || Ok::<V, Infallible>(load())))
    }

    /// Like [`Cache::get_or_refresh_with`], but `load` may fail. Then the cache keeps the stale
    /// value, and [`Cache::peek`] returns it, for example to use it in place of the error. The next
    /// call that finds it stale loads again.
    ///
    /// # Errors
    ///
    /// Returns the error of `load`, or of the loader of the caller for which this one has waited.
    ///
    /// # Panics
    ///
    /// See [`Cache::get_or_insert_with`].
    ///
    /// ```
    /// use relativist_cache::Cache;
    ///
    /// let versions: Cache<&str, u32> = Cache::new(1000);
    /// let at_least = |least, latest| versions.get_or_try_refresh_with("schema", |version| *version < least, || latest);
    /// assert_eq!(at_least(1, Ok(1)), Ok(1));
    /// assert_eq!(*at_least(2, Err("no answer")).unwrap_err(), "no answer");
    /// assert_eq!(versions.peek("schema"), Some(1));
    /// assert_eq!(at_least(2, Ok(2)), Ok(2));
    /// ```
    pub fn get_or_try_refresh_with<E>(
        &self,
        key: K,
        is_stale: impl Fn(&V) -> bool,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, Arc<E>>
    where
        E: Send + Sync + 'static,
    {
        with_core!(self, core => core.load(Owned(key), is_stale, load))
    }

    /// Returns a clone of the value of a key. If the key is missing, inserts the result of the
    /// future that `load` returns.
    ///
    /// Wait-free if the key is present, apart from `clone`. Otherwise waits while another thread or
    /// task loads the key, without blocking the thread. Any executor can run this: it needs no
    /// runtime. If the future is dropped while it loads, one that waits for it calls its own
    /// `load`. Do not ask for the same key in `load`: the task would wait for itself.
    ///
    /// ```
    /// use relativist_cache::Cache;
    /// # async fn fetch(url: &str) -> String { url.into() }
    /// async fn page(pages: &Cache<String, String>, url: &str) -> String {
    ///     pages.get_or_insert_async(url.into(), || fetch(url)).await
    /// }
    /// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # let pages = Cache::new(10);
    /// # assert_eq!(runtime.block_on(runtime.spawn(async move { page(&pages, "/").await })).unwrap(), "/");
    /// ```
    #[doc(alias = "get_with")]
    pub async fn get_or_insert_async<F: Future<Output = V>>(&self, key: K, load: impl FnOnce() -> F) -> V {
        let load = || async { Ok::<V, Infallible>(load().await) };
        infallible(self.get_or_try_insert_async(key, load).await)
    }

    /// Like [`Cache::get_or_insert_async`], but the future may fail. Then nothing is inserted.
    /// Threads and tasks that wait for this loader share its error, if theirs has the same type.
    ///
    /// # Errors
    ///
    /// Returns the error of the future, or of the loader of the caller for which this one has
    /// waited.
    #[doc(alias = "try_get_with")]
    pub async fn get_or_try_insert_async<F, E>(&self, key: K, load: impl FnOnce() -> F) -> Result<V, Arc<E>>
    where
        F: Future<Output = Result<V, E>>,
        E: Send + Sync + 'static,
    {
        with_core!(self, core => core.load_async(Owned(key), |_| false, load).await)
    }

    /// Like [`Cache::get_or_insert_async`], by reference: converts it to a key only for a load. So
    /// a hit allocates nothing.
    ///
    /// # Panics
    ///
    /// Panics if the conversion returns another key.
    ///
    /// ```
    /// use relativist_cache::Cache;
    /// # async fn fetch(url: &str) -> String { url.into() }
    /// async fn page(pages: &Cache<String, String>, url: &str) -> String {
    ///     pages.get_or_insert_async_ref(url, || fetch(url)).await
    /// }
    /// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # let pages = Cache::new(10);
    /// # assert_eq!(runtime.block_on(runtime.spawn(async move { page(&pages, "/").await })).unwrap(), "/");
    /// ```
    #[doc(alias = "get_with_by_ref")]
    pub async fn get_or_insert_async_ref<'q, Q, F>(&self, key: &'q Q, load: impl FnOnce() -> F) -> V
    where
        Q: Hash + Equivalent<K> + ?Sized,
        K: From<&'q Q>,
        F: Future<Output = V>,
    {
        let load = || async { Ok::<V, Infallible>(load().await) };
        infallible(self.get_or_try_insert_async_ref(key, load).await)
    }

    /// Like [`Cache::get_or_try_insert_async`], by reference; see
    /// [`Cache::get_or_insert_async_ref`].
    ///
    /// # Errors
    ///
    /// See [`Cache::get_or_try_insert_async`].
    ///
    /// # Panics
    ///
    /// See [`Cache::get_or_insert_async_ref`].
    #[doc(alias = "try_get_with_by_ref")]
    pub async fn get_or_try_insert_async_ref<'q, Q, F, E>(
        &self,
        key: &'q Q,
        load: impl FnOnce() -> F,
    ) -> Result<V, Arc<E>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        K: From<&'q Q>,
        F: Future<Output = Result<V, E>>,
        E: Send + Sync + 'static,
    {
        with_core!(self, core => core.load_async(Borrowed::new(key), |_| false, load).await)
    }

    /// Like [`Cache::get_or_refresh_with`], for tasks.
    #[doc(alias = "get_with_if")]
    pub async fn get_or_refresh_async<F: Future<Output = V>>(
        &self,
        key: K,
        is_stale: impl Fn(&V) -> bool,
        load: impl FnOnce() -> F,
    ) -> V {
        let load = || async { Ok::<V, Infallible>(load().await) };
        infallible(self.get_or_try_refresh_async(key, is_stale, load).await)
    }

    /// Like [`Cache::get_or_try_refresh_with`], for tasks.
    ///
    /// # Errors
    ///
    /// Returns the error of the future, or of the loader of the caller for which this one has
    /// waited.
    pub async fn get_or_try_refresh_async<F, E>(
        &self,
        key: K,
        is_stale: impl Fn(&V) -> bool,
        load: impl FnOnce() -> F,
    ) -> Result<V, Arc<E>>
    where
        F: Future<Output = Result<V, E>>,
        E: Send + Sync + 'static,
    {
        with_core!(self, core => core.load_async(Owned(key), is_stale, load).await)
    }
}

fn infallible<V>(result: Result<V, Arc<Infallible>>) -> V {
    match result {
        Ok(value) => value,
        Err(never) => match *never {},
    }
}

/// What a caller that looks a key up finds.
enum Found<V> {
    Fresh(V),
    /// The caller should refresh it, if no other one does.
    Old(V),
    Nothing,
}

/// Who loads.
struct Caller {
    /// The calling thread, if it will block until a load has ended.
    thread: Option<ThreadId>,
    /// With a leader that is not polled.
    patience: Duration,
}

/// What a caller does about a key.
enum Step<'c, K, V, S, L: Lifespan> {
    Return(V),
    /// It calls its loader. The value is that which it refreshes.
    Load(Lead<'c, K, V, S, L>, Option<V>),
    /// It calls its loader, and the cache does not keep the value.
    LoadAlone,
    Wait(Wait<K, V>),
}

/// What a caller does about a key that it has missed.
enum Boarding<'c, K, V, S, L: Lifespan> {
    Lead(Lead<'c, K, V, S, L>),
    Join(Wait<K, V>),
}

impl<K, V, S, L> Core<K, V, S, L>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
    L: Lifespan,
{
    fn load<E: Send + Sync + 'static>(
        &self,
        mut key: impl KeySource<K>,
        is_stale: impl Fn(&V) -> bool,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, Arc<E>> {
        let hash = self.hash(key.query());
        let mut found = self.look(hash, key.query(), &is_stale, true);
        let mut caller = Caller { thread: Some(thread::current().id()), patience: PATIENCE };
        let result = loop {
            match self.step(found, hash, &mut key, &is_stale, &caller) {
                Step::Return(value) => break Ok(value),
                Step::Load(lead, old) => return Load::new(self).finish(lead, key.take(), load(), old),
                Step::LoadAlone => return Load::new(self).finish_alone(key.take(), load()),
                Step::Wait(mut wait) => {
                    let landed = wait.block();
                    caller.patience = landed.patience_after(wait.flight.patience);
                    match self.landed(landed, &wait, key.query(), &is_stale) {
                        Ok(next) => found = next,
                        Err(error) => break Err(error),
                    }
                }
            }
        };
        // Dropped first: if a destructor panicked later, the result would be leaked.
        drop((key, load));
        result
    }

    async fn load_async<F, E>(
        &self,
        mut key: impl KeySource<K>,
        is_stale: impl Fn(&V) -> bool,
        load: impl FnOnce() -> F,
    ) -> Result<V, Arc<E>>
    where
        F: Future<Output = Result<V, E>>,
        E: Send + Sync + 'static,
    {
        let hash = self.hash(key.query());
        let mut found = self.look(hash, key.query(), &is_stale, true);
        let mut caller = Caller { thread: None, patience: PATIENCE };
        let result = loop {
            match self.step(found, hash, &mut key, &is_stale, &caller) {
                Step::Return(value) => break Ok(value),
                Step::Load(lead, old) => {
                    let timed = Load::new(self);
                    let loaded = {
                        let mut loader = pin!(load());
                        poll_fn(|context| lead.flight.poll(loader.as_mut(), context)).await
                    };
                    return timed.finish(lead, key.take(), loaded, old);
                }
                Step::LoadAlone => {
                    let timed = Load::new(self);
                    return timed.finish_alone(key.take(), load().await);
                }
                Step::Wait(mut wait) => {
                    let landed = poll_fn(|context| wait.poll(context)).await;
                    caller.patience = landed.patience_after(wait.flight.patience);
                    match self.landed(landed, &wait, key.query(), &is_stale) {
                        Ok(next) => found = next,
                        Err(error) => break Err(error),
                    }
                }
            }
        };
        // As above.
        drop((key, load));
        result
    }

    /// Returns what a caller does who has found this.
    fn step(
        &self,
        found: Found<V>,
        hash: bucket::Hash,
        key: &mut impl KeySource<K>,
        is_stale: impl Fn(&V) -> bool,
        caller: &Caller,
    ) -> Step<'_, K, V, S, L> {
        let old = match found {
            Found::Fresh(value) => return Step::Return(value),
            Found::Old(value) => Some(value),
            Found::Nothing => None,
        };
        match (self.board(hash, key, caller), old) {
            (Boarding::Join(_), Some(old)) => Step::Return(old),
            (Boarding::Join(_), None) if is_reading() => Step::LoadAlone,
            (Boarding::Join(wait), None) => {
                self.loads.record_wait();
                Step::Wait(wait)
            }
            (Boarding::Lead(lead), Some(old)) => Step::Load(lead, Some(old)),
            // Another load may have landed since.
            (Boarding::Lead(lead), None) => match self.look(hash, key.query(), is_stale, false) {
                Found::Fresh(value) | Found::Old(value) => Step::Return(value),
                Found::Nothing => Step::Load(lead, None),
            },
        }
    }

    /// Looks a key up. `counts` says whether this is a lookup of the program.
    fn look<Q: Equivalent<K> + ?Sized>(
        &self,
        hash: bucket::Hash,
        key: &Q,
        is_stale: impl Fn(&V) -> bool,
        counts: bool,
    ) -> Found<V> {
        let guard = read();
        let purpose = if counts { Purpose::Hit } else { Purpose::Peek };
        let node = self.find(hash, key, purpose, &guard).filter(|node| !is_stale(&node.value));
        if let Some(recorder) = self.recorder.as_ref().filter(|_| counts) {
            recorder.record(node.is_some(), &guard);
        }
        let Some(node) = node else { return Found::Nothing };
        let value = node.value.clone();
        if counts {
            node.visit();
        }
        match &self.expiry {
            Some(expiry) if counts && expiry.claim_refresh(node) => Found::Old(value),
            _ => Found::Fresh(value),
        }
    }

    /// Joins the load of a key, or leads a new one.
    ///
    /// # Panics
    ///
    /// Panics if the thread would wait for itself.
    fn board(&self, hash: bucket::Hash, key: &mut impl KeySource<K>, caller: &Caller) -> Boarding<'_, K, V, S, L> {
        let new = Flight::new(hash, key.copy(), caller.thread, caller.patience);
        let index = self.shard_of(hash);
        // Loads of other keys with this hash.
        let mut different: Vec<Arc<Flight<K, V>>> = Vec::new();
        loop {
            let same_hash = {
                let mut locked = self.lock(index);
                let mut flights = locked.flights(hash);
                flights.retain(|flight| !different.iter().any(|other| Arc::ptr_eq(other, flight)));
                if flights.is_empty() {
                    locked.add_flight(Arc::clone(&new));
                }
                locked.unlock();
                flights
            };
            if same_hash.is_empty() {
                return Boarding::Lead(Lead::new(self, new));
            }
            // Keys are compared outside of the lock.
            for flight in same_hash {
                if !key.query().equivalent(&flight.key) {
                    different.push(flight);
                    continue;
                }
                assert!(
                    !flight.is_led_by(caller.thread),
                    "the loader of a key asks for the same key: this thread would wait for itself"
                );
                return Boarding::Join(Wait::new(flight));
            }
        }
    }

    /// Returns what one has found who has waited for a load, or its error. If the leader is
    /// forgotten, cancels the load.
    fn landed<Q, E>(
        &self,
        landed: Landed<V>,
        wait: &Wait<K, V>,
        key: &Q,
        is_stale: impl Fn(&V) -> bool,
    ) -> Result<Found<V>, Arc<E>>
    where
        Q: Equivalent<K> + ?Sized,
        E: Send + Sync + 'static,
    {
        match landed {
            Landed::With(Outcome::Value(value)) if !is_stale(&value) => return Ok(Found::Fresh(value)),
            Landed::With(Outcome::Failed(error)) => {
                if let Ok(error) = error.downcast() {
                    return Err(error);
                }
            }
            Landed::With(_) => {}
            Landed::IsForgotten => {
                let mut locked = self.lock(self.shard_of(wait.flight.hash));
                locked.remove_flight(&wait.flight);
                locked.unlock();
                wait.flight.land(Outcome::Nothing);
            }
        }
        Ok(self.look(wait.flight.hash, key, is_stale, false))
    }
}
