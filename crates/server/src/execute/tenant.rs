//! What the users of a tenant share: the items, and statistics and logs about them.

use super::prefixes::{MAX_PREFIXES, Prefixes};
use super::survey::Surveys;
use super::watch::{MAX_WATCHERS, Watch};
use crate::observability::hot_keys::HotKeys;
use crate::observability::stats::{Registry, Totals};
use crate::options::Options;
use crate::security::auth::TenantLine;
use crate::tenants::{Caches, Plan, empty_cache};
use relativist_store::{Cache, Clock, SweepStats, Usage};
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The delimiter of prefixes if there is no `-D`.
const DEFAULT_DELIMITER: u8 = b':';

/// The number of items among which [`Tenant::longest_idle`] looks. The sample has the items with
/// the lowest hashes, which is as good as a random one.
const AGE_SAMPLE: usize = 1024;

/// What the users of one tenant share, or all users without one.
pub struct Tenant {
    /// The name in the file of users; empty for the users without a tenant.
    pub name: String,
    /// What all keys must begin with.
    pub key_prefix: Box<[u8]>,
    /// The items.
    pub cache: Cache,
    /// The counters of all threads.
    pub counters: Registry,
    /// Clients that receive log lines (`watch`).
    pub watch: Arc<Watch>,
    /// Counts by prefix of the key (`stats detail`).
    pub prefixes: Prefixes,
    /// Surveys of the items.
    pub surveys: Surveys,
    /// The open connections of its users, if they belong to a tenant.
    pub(super) connections: AtomicUsize,
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tenant {
    fn of_line(line: TenantLine, cache: Cache, options: &Options) -> Tenant {
        Tenant::new(line.name, line.prefix.into(), cache, options)
    }

    fn new(name: String, key_prefix: Box<[u8]>, cache: Cache, options: &Options) -> Tenant {
        let is_common = name.is_empty();
        let (watchers, prefixes) =
            if is_common { (MAX_WATCHERS, MAX_PREFIXES) } else { (MAX_WATCHERS / 5, MAX_PREFIXES / 16) };
        let watch = Arc::new(Watch::new(options.extended.watcher_logbuf_size as usize * 1024, watchers));
        // One more for the accepting thread, and one for datagrams.
        let threads = usize::from(options.threads) + 2;
        let has_latencies = is_common && options.admin.is_some();
        let delimiter = options.delimiter.unwrap_or(DEFAULT_DELIMITER);
        Tenant {
            name,
            key_prefix,
            cache: cache.with_observer(Arc::clone(&watch) as _),
            counters: Registry::new(threads, has_latencies, HotKeys::new(options.hot_keys)),
            watch,
            prefixes: Prefixes::new(delimiter, options.delimiter.is_some(), prefixes),
            surveys: Surveys::default(),
            connections: AtomicUsize::new(0),
        }
    }

    /// Whether there are watchers, or prefixes are counted.
    pub(crate) fn is_observed(&self) -> bool {
        self.watch.is_watched() || self.prefixes.is_counting()
    }

    /// Seconds since the last access to the longest unused item of a sample of about 1,024.
    pub(crate) fn longest_idle(&self) -> u32 {
        let (mut age, mut seen, mut cursor) = (0, 0, Some(0));
        while let Some(from) = cursor.filter(|_| seen < AGE_SAMPLE) {
            cursor = self.cache.scan(from, |hit| {
                age = age.max(hit.idle);
                seen += 1;
            });
        }
        age
    }
}

/// All tenants, without the users that have none.
#[derive(Debug, Default)]
pub struct Tenants {
    all: RwLock<Arc<[Arc<Tenant>]>>,
    removed: Mutex<Removed>,
}

/// What is left of removed tenants.
#[derive(Debug, Default)]
struct Removed {
    /// Those that connections may still use.
    leaving: Vec<Arc<Tenant>>,
    /// What they have done: sums since the start must not shrink.
    totals: Totals,
    sweeps: SweepStats,
}

/// A change of the tenants that can be made.
pub(crate) struct Change {
    /// The tenants in the order of the file, and their memory.
    tenants: Vec<(Arc<Tenant>, usize)>,
    /// The memory of the users without a tenant.
    pub(crate) rest: usize,
}

impl Tenants {
    /// The users without a tenant, with the cache that `configure` returns, and the tenants.
    pub(crate) fn new(caches: Caches, options: &Options, configure: impl FnOnce(Cache) -> Cache) -> (Tenant, Tenants) {
        let Caches { common, tenants } = caches;
        let common = Tenant::new(String::new(), Box::default(), configure(common), options);
        let tenants = tenants.into_iter().map(|(line, cache)| Arc::new(Tenant::of_line(line, cache, options)));
        (common, Tenants { all: RwLock::new(tenants.collect()), ..Tenants::default() })
    }

    /// All tenants, in the order of the file.
    pub(crate) fn all(&self) -> Arc<[Arc<Tenant>]> {
        Arc::clone(&self.all.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The tenant with this name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<Tenant>> {
        self.all().iter().find(|tenant| tenant.name == name).cloned()
    }

    /// Whether there are no tenants.
    pub(crate) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Prepares the change to `plan`: makes the caches of new tenants.
    ///
    /// # Errors
    /// When there is no memory for a new tenant, or the prefix of one would change: its items have
    /// keys with the old one.
    pub(crate) fn prepare(&self, plan: Plan, clock: &Arc<Clock>, options: &Options) -> Result<Change, String> {
        let tenants = plan.tenants.into_iter().map(|(line, bytes)| {
            let tenant = match self.named(&line.name) {
                Some(tenant) if *tenant.key_prefix == *line.prefix => tenant,
                Some(tenant) => {
                    return Err(format!("the prefix of tenant {} cannot change without a restart", tenant.name));
                }
                None => {
                    let cache = empty_cache(clock, options, bytes)
                        .map_err(|_| format!("there is no memory for tenant {}", line.name))?;
                    Arc::new(Tenant::of_line(line, cache, options))
                }
            };
            Ok((tenant, bytes))
        });
        Ok(Change { tenants: tenants.collect::<Result<_, _>>()?, rest: plan.rest })
    }

    /// Changes the tenants. Those that are not in the change any more are removed, and their items
    /// are freed. Returns what has changed, for the log.
    pub(crate) fn change(&self, change: Change) -> Vec<String> {
        let mut log = Vec::new();
        let before = self.all();
        for (tenant, bytes) in &change.tenants {
            let (name, old) = (&tenant.name, tenant.cache.usage().limit);
            if !before.iter().any(|other| Arc::ptr_eq(other, tenant)) {
                log.push(format!("tenant {name} was added with {bytes} bytes"));
            } else if old != *bytes {
                tenant.cache.set_limit(*bytes);
                log.push(format!("tenant {name} had {old} bytes, and now has {bytes}"));
            }
        }
        let after: Arc<[_]> = change.tenants.into_iter().map(|(tenant, _)| tenant).collect();
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&after);
        for tenant in before.iter().filter(|tenant| !after.iter().any(|other| Arc::ptr_eq(other, tenant))) {
            // The memory is free for others before the last connection is closed.
            tenant.cache.flush(0);
            tenant.cache.set_limit(0);
            let mut removed = self.removed();
            removed.totals.add(&tenant.counters.since_start());
            removed.sweeps += tenant.cache.usage().sweeps;
            removed.leaving.push(Arc::clone(tenant));
            log.push(format!("tenant {} was removed", tenant.name));
        }
        log
    }

    /// Maintains the caches. Call it about once a second.
    pub(crate) fn maintain(&self) {
        self.all().iter().for_each(|tenant| tenant.cache.maintain());
        let mut leaving = std::mem::take(&mut self.removed().leaving);
        leaving.iter().for_each(|tenant| tenant.cache.maintain());
        // The last owner frees the items, which may take long. So it is this thread and not one
        // that serves clients.
        leaving.retain(|tenant| Arc::strong_count(tenant) > 1);
        self.removed().leaving.append(&mut leaving);
    }

    /// Watchers, lines sent to them and lines skipped, added to those of the `common` users.
    pub(crate) fn watchers(&self, common: (usize, u64, u64)) -> (usize, u64, u64) {
        self.all().iter().map(|tenant| tenant.watch.counts()).fold(common, |(watchers, sent, skipped), counts| {
            (watchers + counts.0, sent + counts.1, skipped + counts.2)
        })
    }

    fn removed(&self) -> MutexGuard<'_, Removed> {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters of all tenants since the start, of the removed ones too.
    pub(crate) fn since_start(&self) -> Totals {
        let mut totals = self.removed().totals;
        self.all().iter().for_each(|tenant| totals.add(&tenant.counters.since_start()));
        totals
    }

    /// Adds the memory in use and the sweeps of all tenants to those of the `common` cache.
    pub(crate) fn usage(&self, common: Usage) -> Usage {
        let mut sum = common;
        sum.sweeps += self.removed().sweeps;
        for usage in self.all().iter().map(|tenant| tenant.cache.usage()) {
            sum.items += usage.items;
            sum.item_bytes += usage.item_bytes;
            sum.buckets += usage.buckets;
            sum.table_bytes += usage.table_bytes;
            sum.is_resizing |= usage.is_resizing;
            sum.mapped_bytes += usage.mapped_bytes;
            sum.pinned_bytes += usage.pinned_bytes;
            sum.limit += usage.limit;
            sum.sweeps += usage.sweeps;
        }
        sum
    }
}
