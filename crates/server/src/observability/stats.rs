//! Counters of the server, without a cache line that two threads write.
//!
//! Every worker has a [`Counters`] of its own. A reader adds them up, which is rare and may be
//! slow. `stats reset` must not write counters of other threads either: it remembers the current
//! sums, and `stats` reports the difference to them. Metrics are never reset: they are sums since
//! the start, as Prometheus expects.

use crate::observability::counter::Counter;
use crate::observability::hot_keys::{self, HotKeys, ThreadKeys};
use crate::observability::latency::{Distribution, Kind, Latencies};
use crate::observability::log::Log;
use crossbeam_utils::CachePadded;
use relativist_store::SweepStats;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// The counters of one thread.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: Counter,)*
            /// The most [work](relativist_store::work) of a connection's turn.
            pub longest_turn: Counter,
            /// Latencies of commands, if they are sampled.
            pub latencies: Option<Box<Latencies>>,
            /// The most used keys.
            pub hot_keys: ThreadKeys,
        }

        /// Sums over all threads at some moment.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct Totals {
            $($(#[doc = $doc])+ pub $name: u64,)*
        }

        impl Totals {
            fn include(&mut self, counters: &Counters) {
                $(self.$name = self.$name.wrapping_add(counters.$name.get());)*
            }

            /// Adds other sums.
            pub(crate) fn add(&mut self, other: &Totals) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }

            fn exclude(&mut self, earlier: &Totals) {
                $(self.$name = self.$name.wrapping_sub(earlier.$name);)*
            }

            /// Name, meaning and value of each.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($doc),+).trim_ascii(), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Connections accepted.
    total_connections,
    /// Connections refused because there were too many.
    rejected_connections,
    /// Keys asked for by `get`, `gets`, and `mg`, except those in `cmd_touch`.
    cmd_get,
    /// Stores attempted.
    cmd_set,
    /// `flush_all` commands.
    cmd_flush,
    /// Keys asked for by `touch`, `gat`, `gats`; keys found or created by `mg` with `T`.
    cmd_touch,
    /// `me` commands.
    cmd_meta,
    /// Keys of `cmd_get` that were found.
    get_hits,
    /// Keys of `cmd_get` that were not found.
    get_misses,
    /// Misses because the item had expired.
    get_expired,
    /// Misses because the item was flushed.
    get_flushed,
    /// Deletions that did not find the item.
    delete_misses,
    /// Deletions that found the item.
    delete_hits,
    /// Increments that did not find the item.
    incr_misses,
    /// Increments that found the item.
    incr_hits,
    /// Decrements that did not find the item.
    decr_misses,
    /// Decrements that found the item.
    decr_hits,
    /// Compare-and-swap stores that did not find the item.
    cas_misses,
    /// Compare-and-swap stores that found the expected CAS value.
    cas_hits,
    /// Compare-and-swap stores that found another CAS value.
    cas_badval,
    /// Touches that found the item.
    touch_hits,
    /// Touches that did not find the item.
    touch_misses,
    /// Stores refused for their size.
    store_too_large,
    /// Stores refused for lack of memory.
    store_no_memory,
    /// Attempted logins.
    auth_cmds,
    /// Failed logins.
    auth_errors,
    /// Connections closed because the client was idle or too slow.
    idle_kicks,
    /// TLS handshakes that failed, or were not finished.
    ssl_handshake_errors,
    /// Connections closed because the client violated the TLS protocol.
    ssl_proto_errors,
    /// TLS handshakes that began a session.
    ssl_new_sessions,
    /// TLS handshakes that resumed a session.
    ssl_resumed_sessions,
    /// Bytes from clients.
    bytes_read,
    /// Bytes to clients.
    bytes_written,
    /// How often a connection had more requests after `-R` of them.
    conn_yields,
    /// Items stored.
    total_items,
}

/// All threads' counters.
#[derive(Debug)]
pub struct Registry {
    threads: Box<[Arc<CachePadded<Counters>>]>,
    /// The sums at the last reset.
    baseline: Mutex<Baseline>,
    hot_keys: HotKeys,
}

#[derive(Debug, Default)]
struct Baseline {
    totals: Totals,
    sweeps: SweepStats,
}

impl Registry {
    /// Creates counters for `threads` threads. `with_latencies` adds histograms of execution times.
    pub fn new(threads: usize, with_latencies: bool, hot_keys: HotKeys) -> Registry {
        let counters = |thread| Counters {
            latencies: with_latencies.then(Box::default),
            hot_keys: hot_keys.thread(thread),
            ..Counters::default()
        };
        let threads = (0..threads).map(|thread| Arc::new(CachePadded::new(counters(thread)))).collect();
        Registry { threads, baseline: Mutex::default(), hot_keys }
    }

    /// The counters of one thread. No other thread may write them.
    ///
    /// # Panics
    /// If there is no such thread.
    pub fn of_thread(&self, thread: usize) -> Arc<CachePadded<Counters>> {
        Arc::clone(&self.threads[thread])
    }

    /// The counters of one thread, to read them, or to write them on that thread.
    ///
    /// # Panics
    /// If there is no such thread.
    pub(crate) fn thread(&self, thread: usize) -> &Counters {
        &self.threads[thread]
    }

    /// The sums since the last reset.
    pub fn totals(&self) -> Totals {
        let mut totals = self.since_start();
        totals.exclude(&self.baseline().totals);
        totals
    }

    /// The part of the cache's `sweeps` since the last reset.
    pub fn sweeps(&self, sweeps: &SweepStats) -> SweepStats {
        sweeps.since(&self.baseline().sweeps)
    }

    /// Resets the sums to zero. `sweeps` are the cache's at this moment.
    pub fn reset(&self, sweeps: SweepStats) {
        *self.baseline() = Baseline { totals: self.since_start(), sweeps };
    }

    fn baseline(&self) -> MutexGuard<'_, Baseline> {
        self.baseline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most [work](relativist_store::work) that a connection has had in one turn.
    pub(crate) fn longest_turn(&self) -> u64 {
        self.threads.iter().map(|counters| counters.longest_turn.get()).max().unwrap_or(0)
    }

    /// How long commands of this kind have taken since the start.
    pub fn latencies(&self, kind: Kind) -> Distribution {
        Distribution::of(kind, self.threads.iter().filter_map(|counters| counters.latencies.as_deref()))
    }

    /// The most used keys of the minute that ends at `now`, for a server that was started in the
    /// second `started`. None if they are not looked for.
    pub fn hot_keys(&self, kind: hot_keys::Kind, started: u32, now: u32) -> Option<hot_keys::Report> {
        self.hot_keys.report(kind, self.threads.iter().map(|counters| &counters.hot_keys), (started, now))
    }

    /// Logs storms on single keys of a tenant that have begun. Call it about once a second.
    pub(crate) fn log_storms(&self, tenant: &str, (started, now): (u32, u32), log: &Log) {
        for kind in hot_keys::Kind::ALL {
            if let Some(report) = self.hot_keys(kind, started, now) {
                self.hot_keys.log_storms(kind, &report, tenant, log);
            }
        }
    }

    /// The sums since the start, unaffected by resets.
    pub fn since_start(&self) -> Totals {
        let mut totals = Totals::default();
        for counters in &self.threads {
            totals.include(counters);
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up_threads_since_the_reset() {
        let registry = Registry::new(2, false, HotKeys::new(hot_keys::Mode::Off));
        registry.of_thread(0).cmd_get.add(3);
        registry.of_thread(1).cmd_get.bump();
        assert_eq!(registry.totals().cmd_get, 4);
        let sweeps = SweepStats { evictions: 5, evicted_time: 70, ..SweepStats::default() };
        registry.reset(sweeps);
        assert_eq!((registry.totals(), registry.sweeps(&sweeps)), (Totals::default(), SweepStats::default()));
        registry.of_thread(1).cmd_get.bump();
        assert_eq!((registry.totals().cmd_get, registry.since_start().cmd_get), (1, 5));
        let later = SweepStats { evictions: 7, evicted_time: 80, ..sweeps };
        assert_eq!(registry.sweeps(&later), SweepStats { evictions: 2, evicted_time: 80, ..SweepStats::default() });
    }
}
