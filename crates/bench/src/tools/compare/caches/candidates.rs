//! The caches that are compared, each behind the same interface, in the configuration in which it
//! is fastest. All use the same hash function.

use crate::harness::hashers::Foldhash;

/// Operations of a batch.
pub const BATCH: u64 = 256;

/// A cache of 64-bit keys and values, for several threads.
pub trait Cache: Send + Sync {
    fn get(&self, key: u64) -> Option<u64>;

    /// Inserts an entry. If it is too heavy for the cache, it is dropped.
    fn insert(&self, key: u64, value: u64);

    /// Does what the cache has deferred.
    fn settle(&self) {}

    /// Looks up a batch of keys. Returns the number of those that do not have their value.
    fn misses(&self, keys: &[u64; BATCH as usize]) -> u64 {
        keys.iter().filter(|&&key| self.get(key) != Some(key)).count() as u64
    }

    /// Looks up a batch of keys, and inserts those that are absent.
    fn get_or_insert_all(&self, keys: &[u64; BATCH as usize]) {
        keys.iter().filter(|&&key| self.get(key).is_none()).for_each(|&key| self.insert(key, key));
    }

    /// Inserts a batch of entries whose value is the key.
    fn insert_all(&self, keys: &[u64; BATCH as usize]) {
        keys.iter().for_each(|&key| self.insert(key, key));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    Relativist,
    Moka,
    QuickCache,
    #[cfg(feature = "foyer")]
    Foyer,
    #[cfg(feature = "mini-moka")]
    MiniMoka,
}

impl Name {
    /// Makes a cache for this number of entries.
    pub fn of_entries(self, entries: u64) -> Box<dyn Cache> {
        match self {
            Self::Relativist => Box::new(ours(entries, entries).build()),
            Self::Moka => Box::new(moka(entries, entries).build_with_hasher(Foldhash::default())),
            Self::QuickCache => Box::new(quick(entries, entries, quick_cache::UnitWeighter)),
            #[cfg(feature = "foyer")]
            Self::Foyer => Box::new(foyer(entries, entries).build::<foyer_memory::CacheProperties>()),
            #[cfg(feature = "mini-moka")]
            Self::MiniMoka => Box::new(mini_moka(entries, entries).build_with_hasher(Foldhash::default())),
        }
    }

    /// Makes a cache in which the weight of an entry is its value.
    pub fn of_weight(self, capacity: u64, entries: u64) -> Box<dyn Cache> {
        match self {
            Self::Relativist => Box::new(ours(capacity, entries).weigher(|_, &value| value).build()),
            Self::Moka => {
                let weigher = |_: &u64, &value: &u64| u32::try_from(value).unwrap_or(u32::MAX);
                Box::new(moka(capacity, entries).weigher(weigher).build_with_hasher(Foldhash::default()))
            }
            Self::QuickCache => Box::new(quick(capacity, entries, ByValue)),
            #[cfg(feature = "foyer")]
            Self::Foyer => {
                let foyer = foyer(capacity, entries).with_weighter(|_, &value| value as usize);
                // It would keep an entry that is heavier than its shard.
                let share = capacity / foyer_shards(entries);
                let foyer = foyer.with_filter(move |_, &value| value <= share);
                Box::new(foyer.build::<foyer_memory::CacheProperties>())
            }
            #[cfg(feature = "mini-moka")]
            Self::MiniMoka => {
                let weigh = |_: &u64, &value: &u64| u32::try_from(value).unwrap_or(u32::MAX);
                Box::new(mini_moka(capacity, entries).weigher(weigh).build_with_hasher(Foldhash::default()))
            }
        }
    }
}

fn ours(capacity: u64, entries: u64) -> relativist_cache::Builder<u64, u64, Foldhash> {
    relativist_cache::Cache::builder().capacity(capacity).estimated_entries(entries).hasher(Foldhash::default())
}

impl Cache for relativist_cache::Cache<u64, u64, Foldhash> {
    fn get(&self, key: u64) -> Option<u64> {
        self.get(&key)
    }

    fn insert(&self, key: u64, value: u64) {
        self.insert(key, value);
    }
}

type Moka<S> = moka::sync::Cache<u64, u64, S>;

fn moka(capacity: u64, entries: u64) -> moka::sync::CacheBuilder<u64, u64, Moka<std::hash::RandomState>> {
    moka::sync::Cache::builder().max_capacity(capacity).initial_capacity(entries as usize)
}

impl Cache for Moka<Foldhash> {
    fn get(&self, key: u64) -> Option<u64> {
        self.get(&key)
    }

    fn insert(&self, key: u64, value: u64) {
        self.insert(key, value);
    }

    fn settle(&self) {
        self.run_pending_tasks();
    }
}

/// Weighs an entry by its value.
#[derive(Clone)]
struct ByValue;

impl quick_cache::Weighter<u64, u64> for ByValue {
    fn weight(&self, _: &u64, value: &u64) -> u64 {
        *value
    }
}

type Quick<W> = quick_cache::sync::Cache<u64, u64, W, Foldhash>;

fn quick<W: quick_cache::Weighter<u64, u64> + Clone>(capacity: u64, entries: u64, weighter: W) -> Quick<W> {
    let lifecycle = quick_cache::sync::DefaultLifecycle::default();
    Quick::with(entries as usize, capacity, weighter, Foldhash::default(), lifecycle)
}

impl<W: quick_cache::Weighter<u64, u64> + Clone + Send + Sync> Cache for Quick<W> {
    fn get(&self, key: u64) -> Option<u64> {
        self.get(&key)
    }

    fn insert(&self, key: u64, value: u64) {
        self.insert(key, value);
    }
}

#[cfg(feature = "foyer")]
type Foyer = foyer_memory::Cache<u64, u64, Foldhash>;

/// Returns the number of shards: many, so that two threads rarely need the same one.
#[cfg(feature = "foyer")]
fn foyer_shards(entries: u64) -> u64 {
    (entries / 1024).clamp(1, 64)
}

/// S3-FIFO, because a hit then takes the lock of its shard as a reader, and foyer's other policies
/// for which this is so (FIFO and SIEVE) do not resist scans.
#[cfg(feature = "foyer")]
fn foyer(capacity: u64, entries: u64) -> foyer_memory::CacheBuilder<u64, u64, Foldhash> {
    foyer_memory::CacheBuilder::new(capacity as usize)
        .with_shards(foyer_shards(entries) as usize)
        .with_eviction_config(foyer_memory::S3FifoConfig::default())
        .with_hash_builder(Foldhash::default())
}

#[cfg(feature = "foyer")]
impl Cache for Foyer {
    fn get(&self, key: u64) -> Option<u64> {
        self.get(&key).map(|entry| *entry.value())
    }

    fn insert(&self, key: u64, value: u64) {
        self.insert(key, value);
    }
}

#[cfg(feature = "mini-moka")]
type MiniMoka<S> = mini_moka::sync::Cache<u64, u64, S>;

#[cfg(feature = "mini-moka")]
fn mini_moka(capacity: u64, entries: u64) -> mini_moka::sync::CacheBuilder<u64, u64, MiniMoka<std::hash::RandomState>> {
    mini_moka::sync::Cache::builder().max_capacity(capacity).initial_capacity(entries as usize)
}

#[cfg(feature = "mini-moka")]
impl Cache for MiniMoka<Foldhash> {
    fn get(&self, key: u64) -> Option<u64> {
        self.get(&key)
    }

    fn insert(&self, key: u64, value: u64) {
        self.insert(key, value);
    }

    fn settle(&self) {
        mini_moka::sync::ConcurrentCacheExt::sync(self);
    }
}
