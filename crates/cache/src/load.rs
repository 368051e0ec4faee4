//! Functions that load a value if its key is missing, with one loader per key.

use std::convert::Infallible;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::thread;
use std::time::Instant;

use relativist_rcu::is_reading;

use super::Cache;
use super::core::with_core;
use super::flight::{Boarding, Lead};
use relativist_table as table;

/// Functions that load what is missing.
///
/// At most one loader runs for a key at a time, unless the key is inserted or removed meanwhile
/// (see below); others that miss the key wait for it, and get clones of its value. If it fails,
/// panics or is cancelled, the next one of them calls its own loader, so that no key stays locked.
/// The value is returned even if it is too heavy for the cache.
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
    pub fn get_or_insert_with(&self, key: K, load: impl FnOnce() -> V) -> V {
        match self.get_or_try_insert_with(key, || Ok::<V, Infallible>(load())) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// Like [`Cache::get_or_insert_with`], but `load` may fail. Then nothing is inserted, and a
    /// thread that waits for this one calls its own `load`.
    ///
    /// # Errors
    ///
    /// Returns the error of `load`.
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
    pub fn get_or_try_insert_with<E>(&self, key: K, load: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        let hash = self.hash(&key);
        let mut value = self.get_hashed(hash, &key);
        loop {
            if let Some(value) = value {
                // Dropped first: if a destructor panicked later, the value would be leaked.
                drop((key, load));
                return Ok(value);
            }
            match self.flights().board(hash, &key, Some(thread::current().id())) {
                Boarding::Join(wait) if is_reading() => {
                    drop(wait);
                    return self.start_load().finish_alone(key, load());
                }
                Boarding::Join(wait) => value = wait.block().or_else(|| self.peek_hashed(hash, &key)),
                Boarding::Lead(lead) => {
                    value = self.peek_hashed(hash, &key);
                    if value.is_none() {
                        return self.start_load().finish(lead, hash, key, load());
                    }
                }
            }
        }
    }

    /// Returns a clone of the value of a key. If the key is missing, inserts the result of the
    /// future that `load` returns.
    ///
    /// Wait-free if the key is present, apart from `clone`. Otherwise waits while another thread or
    /// task loads the key, without blocking the thread. Any executor can run this: it needs no
    /// runtime. If the future is dropped while it loads, one that waits for it calls its own
    /// `load`. A future that loads must be polled or dropped: while it is kept without being
    /// polled, or if it is leaked, others wait for it until the key is inserted or removed. Do not
    /// ask for the same key in `load`: the task would wait for itself.
    ///
    /// ```
    /// use relativist_cache::Cache;
    /// # async fn fetch(url: &str) -> String { url.into() }
    /// async fn page(pages: &Cache<String, String>, url: &str) -> String {
    ///     pages.get_or_insert_async(url.into(), || fetch(url)).await
    /// }
    /// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # let pages = std::sync::Arc::new(Cache::new(10));
    /// # assert_eq!(runtime.block_on(runtime.spawn(async move { page(&pages, "/").await })).unwrap(), "/");
    /// ```
    pub async fn get_or_insert_async<F: Future<Output = V>>(&self, key: K, load: impl FnOnce() -> F) -> V {
        let load = || async { Ok::<V, Infallible>(load().await) };
        match self.get_or_try_insert_async(key, load).await {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// Like [`Cache::get_or_insert_async`], but the future may fail. Then nothing is inserted, and
    /// one that waits for this one calls its own `load`.
    ///
    /// # Errors
    ///
    /// Returns the error of the future.
    pub async fn get_or_try_insert_async<F, E>(&self, key: K, load: impl FnOnce() -> F) -> Result<V, E>
    where
        F: Future<Output = Result<V, E>>,
    {
        let hash = self.hash(&key);
        let mut value = self.get_hashed(hash, &key);
        loop {
            if let Some(value) = value {
                // Dropped first: if a destructor panicked later, the value would be leaked.
                drop((key, load));
                return Ok(value);
            }
            match self.flights().board(hash, &key, None) {
                Boarding::Join(wait) if is_reading() => {
                    drop(wait);
                    let timed = self.start_load();
                    return timed.finish_alone(key, load().await);
                }
                Boarding::Join(wait) => value = wait.await.or_else(|| self.peek_hashed(hash, &key)),
                Boarding::Lead(lead) => {
                    value = self.peek_hashed(hash, &key);
                    if value.is_none() {
                        let timed = self.start_load();
                        return timed.finish(lead, hash, key, load().await);
                    }
                }
            }
        }
    }

    fn start_load(&self) -> Load<'_, K, V, S> {
        Load { cache: self, start: Instant::now(), succeeded: false }
    }
}

/// A call of a loader. It has failed if it is dropped without a value.
struct Load<'c, K, V, S> {
    cache: &'c Cache<K, V, S>,
    start: Instant,
    succeeded: bool,
}

impl<K, V, S> Load<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Inserts the value, and passes it to those that wait.
    fn finish<E>(mut self, mut lead: Lead<'_, K, V>, hash: table::Hash, key: K, loaded: Result<V, E>) -> Result<V, E> {
        match &loaded {
            Ok(value) => {
                self.succeeded = true;
                if lead.is_cancelled() {
                    drop(key);
                } else {
                    with_core!(self.cache, core => core.insert_loaded(hash, key, value.clone(), &lead));
                }
                lead.succeed(value.clone());
            }
            Err(_) => drop(key),
        }
        drop(lead);
        loaded
    }

    /// Does not keep the value: it comes from no flight, so no removal could have cancelled it.
    fn finish_alone<E>(mut self, key: K, loaded: Result<V, E>) -> Result<V, E> {
        self.succeeded = loaded.is_ok();
        drop(key);
        loaded
    }
}

impl<K, V, S> Drop for Load<'_, K, V, S> {
    fn drop(&mut self) {
        with_core!(self.cache, core => core.loads.record(self.succeeded, self.start.elapsed()));
    }
}
