//! `watch`: clients that receive a log line for each event.
//!
//! No thread waits for a watcher. A line goes into the watcher's buffer if there is room, and is
//! lost otherwise. The next line that fits reports the number of lost lines. While there is no
//! watcher, a command pays one load of a word that is almost never written.

use super::CLASS;
use relativist_memcache::encode_percent;
use relativist_store::{EvictionObserver, Hit, Marks};
use std::fmt;
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of watchers of the users without a tenant.
pub(super) const MAX_WATCHERS: usize = 20;

/// The kinds of events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Topic {
    /// Lookups.
    Fetchers = 1,
    /// Stores.
    Mutations = 1 << 1,
    /// Evicted items.
    Evictions = 1 << 2,
    /// Connections opened and closed.
    Connections = 1 << 3,
    /// Items removed by clients.
    Deletions = 1 << 4,
    /// Events of the server. Clients may watch them, but there are none.
    System = 1 << 5,
    /// Raw commands. Clients may watch them, but there are none.
    RawCommands = 1 << 6,
    /// Events of memcached's proxy. Clients may watch them, but there are none.
    Proxy = 1 << 7,
}

impl Topic {
    /// The topic that has this name in `watch`.
    pub(super) fn from_name(name: &[u8]) -> Option<Topic> {
        Some(match name {
            b"fetchers" => Topic::Fetchers,
            b"mutations" => Topic::Mutations,
            b"evictions" => Topic::Evictions,
            b"connevents" => Topic::Connections,
            b"deletions" => Topic::Deletions,
            b"sysevents" => Topic::System,
            b"rawcmds" => Topic::RawCommands,
            b"proxyreqs" | b"proxyevents" | b"proxyuser" => Topic::Proxy,
            _ => return None,
        })
    }
}

/// All watchers.
#[derive(Debug)]
pub struct Watch {
    /// Topics with a watcher.
    topics: AtomicU8,
    watchers: Mutex<Vec<Arc<Subscription>>>,
    line_number: AtomicU64,
    buffer_size: usize,
    max_watchers: usize,
    sent: AtomicU64,
    skipped: AtomicU64,
}

/// The lines for one watcher.
pub struct Subscription {
    topics: u8,
    lines: Mutex<Vec<u8>>,
    lost: AtomicUsize,
    /// Wakes the thread of the watcher's connection when a line has arrived.
    wake: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("topics", &self.topics).finish_non_exhaustive()
    }
}

impl Subscription {
    /// Moves the lines that have arrived to `out`.
    pub fn take(&self, out: &mut Vec<u8>) {
        out.append(&mut lock(&self.lines));
    }

    /// Sets the function that wakes the watcher's thread when a line has arrived.
    pub fn set_wake(&self, wake: impl Fn() + Send + 'static) {
        *lock(&self.wake) = Some(Box::new(wake));
    }

    /// Adds a line. Returns false if there was no room, so that the line is lost.
    fn push(&self, line: &[u8], size: usize) -> bool {
        let mut lines = lock(&self.lines);
        if lines.len() + line.len() > size {
            // Relaxed: written under the mutex.
            self.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        // Relaxed: as above.
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            writeln!(lines, "skipped={lost}").expect("writing to a Vec does not fail");
        }
        let was_empty = lines.is_empty();
        lines.extend_from_slice(line);
        drop(lines);
        if was_empty && let Some(wake) = &*lock(&self.wake) {
            wake();
        }
        true
    }
}

impl Watch {
    /// A registry without watchers, for at most `max_watchers`. Each will have a buffer of
    /// `buffer_size` bytes.
    pub fn new(buffer_size: usize, max_watchers: usize) -> Watch {
        Watch {
            topics: AtomicU8::new(0),
            watchers: Mutex::default(),
            line_number: AtomicU64::new(1),
            buffer_size,
            max_watchers,
            sent: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
        }
    }

    /// Whether there are watchers.
    pub fn is_watched(&self) -> bool {
        self.topics() != 0
    }

    /// All topics with a watcher.
    fn topics(&self) -> u8 {
        // Relaxed: a watcher may miss lines that are written while it subscribes.
        self.topics.load(Ordering::Relaxed)
    }

    /// Adds a watcher of `topics`; none if there are too many watchers.
    pub(super) fn subscribe(&self, topics: u8) -> Option<Arc<Subscription>> {
        let mut watchers = lock(&self.watchers);
        if watchers.len() >= self.max_watchers {
            return None;
        }
        let (lines, lost, wake) = (Mutex::default(), AtomicUsize::new(0), Mutex::default());
        let watcher = Arc::new(Subscription { topics, lines, lost, wake });
        watchers.push(Arc::clone(&watcher));
        self.note_topics(&watchers);
        Some(watcher)
    }

    /// Removes a watcher.
    pub fn unsubscribe(&self, watcher: &Arc<Subscription>) {
        let mut watchers = lock(&self.watchers);
        watchers.retain(|other| !Arc::ptr_eq(watcher, other));
        self.note_topics(&watchers);
    }

    fn note_topics(&self, watchers: &[Arc<Subscription>]) {
        // Relaxed: as in `topics`.
        self.topics.store(watchers.iter().fold(0, |all, watcher| all | watcher.topics), Ordering::Relaxed);
    }

    /// Sends a line to the watchers of `topic`.
    pub fn publish(&self, topic: Topic, event: fmt::Arguments<'_>) {
        if self.topics() & topic as u8 == 0 {
            return;
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Relaxed (all): numbers on which no other data depends.
        let number = self.line_number.fetch_add(1, Ordering::Relaxed);
        let line = format!("ts={}.{:06} gid={number} {event}\n", time.as_secs(), time.subsec_micros());
        for watcher in lock(&self.watchers).iter().filter(|watcher| watcher.topics & topic as u8 != 0) {
            let count = if watcher.push(line.as_bytes(), self.buffer_size) { &self.sent } else { &self.skipped };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Watchers, lines sent and lines skipped.
    pub(crate) fn counts(&self) -> (usize, u64, u64) {
        // Relaxed: numbers on which no other data depends.
        (lock(&self.watchers).len(), self.sent.load(Ordering::Relaxed), self.skipped.load(Ordering::Relaxed))
    }
}

impl EvictionObserver for Watch {
    fn is_watching(&self) -> bool {
        self.topics() & Topic::Evictions as u8 != 0
    }

    fn evicted(&self, hit: Hit<'_>) {
        let fetched = if hit.marks.has(Marks::FETCHED) { "yes" } else { "no" };
        let ttl = hit.ttl().map_or(-1, i64::from);
        let line = format_args!(
            "type=eviction key={} fetch={fetched} ttl={ttl} la={} clsid={CLASS} size={}",
            encode_percent(hit.key),
            hit.idle,
            hit.value.len()
        );
        self.publish(Topic::Evictions, line);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use relativist_store::{Cache, Clock, Content, Mode};

    #[test]
    fn a_slow_watcher_loses_lines_and_receives_their_number() {
        let watch = Watch::new(100, 1);
        let watcher = watch.subscribe(Topic::Fetchers as u8).unwrap();
        let publish = || watch.publish(Topic::Fetchers, format_args!("{}", "x".repeat(50)));
        watch.publish(Topic::Mutations, format_args!("not watched"));
        publish();
        publish();
        publish();
        let mut out = Vec::new();
        watcher.take(&mut out);
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        publish();
        out.clear();
        watcher.take(&mut out);
        assert!(out.starts_with(b"skipped=2\n"));
        watch.unsubscribe(&watcher);
        assert!(!watch.is_watched());
    }

    #[test]
    fn watchers_of_evictions_are_notified() {
        let watch = Watch::new(1000, 2);
        let clock = Arc::new(Clock::new(1000));
        let cache = Cache::new(Arc::clone(&clock), 1 << 20, 1 << 20).unwrap();
        for (key, exptime) in [(&b"a b"[..], 67), (b"other", 0)] {
            cache.store(Mode::Set, key, Content { flags: 0, exptime, value: b"four" });
        }
        cache.get(b"a b", |_| ());
        clock.set(1007);
        let others = watch.subscribe(Topic::Deletions as u8).unwrap();
        assert!(!watch.is_watching());
        let watcher = watch.subscribe(Topic::Evictions as u8).unwrap();
        assert!(watch.is_watching());
        cache.peek(b"a b", |hit| watch.evicted(hit));
        cache.peek(b"other", |hit| watch.evicted(hit));
        let mut out = Vec::new();
        others.take(&mut out);
        assert!(out.is_empty());
        watcher.take(&mut out);
        let text = String::from_utf8(out).unwrap();
        let events: Vec<&str> = text.lines().map(|line| line.split_once(" type=").unwrap().1).collect();
        let first = "eviction key=a%20b fetch=yes ttl=60 la=7 clsid=1 size=4";
        assert_eq!(events, [first, "eviction key=other fetch=no ttl=-1 la=7 clsid=1 size=4"]);
    }
}
