//! `watch`: clients that receive a log line for each event.
//!
//! No thread waits for a watcher. A line goes into the watcher's buffer if there is room, and is
//! lost otherwise. The next line that fits reports the number of lost lines. Ten times a second,
//! watchers are woken to take their lines, and may receive more. What they receive in between is
//! limited, so watchers that read fast do not take the time of the clients that they watch. While
//! there is no watcher, a command pays one load of a word that is almost never written. While no
//! watcher has room, it also counts the line, in memory that few other threads write: it takes no
//! lock, and writes no text. Otherwise the text is written once for all watchers.

use super::CLASS;
use crossbeam_utils::CachePadded;
use relativist_memcache::encode_percent;
use relativist_store::{EvictionObserver, Hit, Marks};
use std::fmt;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of watchers of the users without a tenant.
pub(super) const MAX_WATCHERS: usize = 20;

/// Maximum number of bytes that all watchers together receive between two
/// [deliveries](Watch::deliver).
const MAX_DELIVERY: usize = 2 << 20;

/// Places at which lines for nobody are counted.
const PLACES: usize = 16;

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
    /// Topics with a watcher that has room.
    open: AtomicU8,
    watchers: Mutex<Vec<Watcher>>,
    /// Lines for which no watcher had room.
    missed: Missed,
    line_number: AtomicU64,
    buffer_size: usize,
    max_watchers: usize,
    sent: AtomicU64,
    /// Lines that watchers have lost, and that were reported to them or could not be.
    skipped: AtomicU64,
}

/// A watcher, as those see it that publish.
#[derive(Debug)]
struct Watcher {
    subscription: Arc<Subscription>,
    /// Lines lost since the last report, besides those missed.
    lost: u64,
    /// The lines of its topics that were missed before.
    missed_before: u64,
    /// Bytes received since the last delivery.
    received: usize,
}

/// What has become of a line.
enum Offer {
    /// The watcher will get it, after a report of so many lost lines.
    Accepted(u64),
    /// The watcher had no room.
    Lost,
    /// The watcher has no room from now on.
    Filled,
}

impl Watcher {
    /// Adds a line if there is room: in the buffer of `size` bytes, and in the watcher's `share` of
    /// a delivery.
    fn offer(&mut self, line: &[u8], size: usize, share: usize, missed: &Missed) -> Offer {
        let Watcher { subscription, lost, missed_before, received } = self;
        // Relaxed: read and written under the mutex of the watchers.
        if subscription.is_full.load(Ordering::Relaxed) {
            *lost += 1;
            return Offer::Lost;
        }
        let mut lines = lock(&subscription.lines);
        let had = lines.len();
        if had + line.len() > size || *received + line.len() > share {
            *lost += 1;
            // A line that does not fit an empty buffer does not close it.
            let fills = had + *received > 0;
            // Relaxed: as above.
            subscription.is_full.store(fills, Ordering::Relaxed);
            return if fills { Offer::Filled } else { Offer::Lost };
        }
        let mut skipped = 0;
        if *lost > 0 {
            let now = missed.of(subscription.topics);
            skipped = *lost + now - *missed_before;
            (*lost, *missed_before) = (0, now);
            writeln!(lines, "skipped={skipped}").expect("writing to a Vec does not fail");
        }
        lines.extend_from_slice(line);
        *received += line.len();
        let is_half_full = had < size / 2 && lines.len() >= size / 2;
        drop(lines);
        if is_half_full {
            subscription.wake();
        }
        Offer::Accepted(skipped)
    }

    /// The number of lines lost since the last report.
    fn lost(&self, missed: &Missed) -> u64 {
        self.lost + missed.of(self.subscription.topics) - self.missed_before
    }
}

/// Counts of lines by topic, at places that few threads share.
#[derive(Debug, Default)]
struct Missed([CachePadded<[AtomicU64; u8::BITS as usize]>; PLACES]);

impl Missed {
    fn count(&self, topic: Topic) {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            // Relaxed: a number that no other data depends on.
            static PLACE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % PLACES;
        }
        let place = PLACE.with(|place| *place);
        // Relaxed: a count.
        self.0[place][(topic as u8).trailing_zeros() as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of lines of these topics.
    fn of(&self, topics: u8) -> u64 {
        let is_one = |topic: usize| topics & 1 << topic != 0;
        // Relaxed: as above.
        let sum = |topic: usize| self.0.iter().map(|place| place[topic].load(Ordering::Relaxed)).sum::<u64>();
        (0..u8::BITS as usize).filter(|topic| is_one(*topic)).map(sum).sum()
    }
}

/// The lines for one watcher.
pub struct Subscription {
    topics: u8,
    lines: Mutex<Vec<u8>>,
    /// Whether a line was lost since the last [delivery](Watch::deliver).
    is_full: AtomicBool,
    /// Wakes the thread of the watcher's connection.
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

    /// Sets the function that wakes the watcher's thread when lines have arrived.
    pub fn set_wake(&self, wake: impl Fn() + Send + 'static) {
        *lock(&self.wake) = Some(Box::new(wake));
    }

    fn wake(&self) {
        if let Some(wake) = &*lock(&self.wake) {
            wake();
        }
    }
}

impl Watch {
    /// A registry without watchers, for at most `max_watchers`. Each will have a buffer of
    /// `buffer_size` bytes.
    pub fn new(buffer_size: usize, max_watchers: usize) -> Watch {
        Watch {
            topics: AtomicU8::new(0),
            open: AtomicU8::new(0),
            watchers: Mutex::default(),
            missed: Missed::default(),
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

    /// Whether there are watchers of `topic`.
    pub(super) fn has_watchers(&self, topic: Topic) -> bool {
        self.topics() & topic as u8 != 0
    }

    /// Whether some watcher of `topic` has room for a line.
    pub(super) fn has_room(&self, topic: Topic) -> bool {
        // Relaxed: a line may be lost while a watcher gets room.
        self.open.load(Ordering::Relaxed) & topic as u8 != 0
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
        let is_full = AtomicBool::new(false);
        let subscription = Arc::new(Subscription { topics, lines: Mutex::default(), is_full, wake: Mutex::default() });
        let missed_before = self.missed.of(topics);
        watchers.push(Watcher { subscription: Arc::clone(&subscription), lost: 0, missed_before, received: 0 });
        self.note_topics(&watchers);
        Some(subscription)
    }

    /// Removes a watcher.
    pub fn unsubscribe(&self, subscription: &Arc<Subscription>) {
        let mut watchers = lock(&self.watchers);
        watchers.retain(|watcher| {
            let stays = !Arc::ptr_eq(subscription, &watcher.subscription);
            if !stays {
                // Relaxed: a count.
                self.skipped.fetch_add(watcher.lost(&self.missed), Ordering::Relaxed);
            }
            stays
        });
        self.note_topics(&watchers);
    }

    fn note_topics(&self, watchers: &[Watcher]) {
        // Relaxed: as in `topics`.
        let all = watchers.iter().fold(0, |all, watcher| all | watcher.subscription.topics);
        self.topics.store(all, Ordering::Relaxed);
        self.note_open(watchers);
    }

    /// Wakes watchers, so that they take their lines, and lets those receive more that have taken
    /// them. Call it ten times a second.
    pub(crate) fn deliver(&self) {
        if !self.is_watched() {
            return;
        }
        let mut watchers = lock(&self.watchers);
        for Watcher { subscription, received, .. } in &mut *watchers {
            *received = 0;
            let is_empty = lock(&subscription.lines).is_empty();
            if is_empty {
                // Relaxed: written under the mutex of the watchers.
                subscription.is_full.store(false, Ordering::Relaxed);
            } else {
                subscription.wake();
            }
        }
        self.note_open(&watchers);
    }

    /// Finds out for which topics there is room. The watchers are locked.
    fn note_open(&self, watchers: &[Watcher]) {
        // Relaxed (both): written under the mutex of the watchers. Those that read `open` without
        // it may lose a line.
        let is_open = |watcher: &&Watcher| !watcher.subscription.is_full.load(Ordering::Relaxed);
        let open = watchers.iter().filter(is_open).fold(0, |open, watcher| open | watcher.subscription.topics);
        self.open.store(open, Ordering::Relaxed);
    }

    /// Counts a line that the watchers of `topic` lose, if there are any.
    pub(super) fn miss(&self, topic: Topic) {
        if self.has_watchers(topic) {
            self.missed.count(topic);
        }
    }

    /// Sends a line to the watchers of `topic`.
    pub fn publish(&self, topic: Topic, event: fmt::Arguments<'_>) {
        if !self.has_room(topic) {
            return self.miss(topic);
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Relaxed (all): numbers on which no other data depends.
        let number = self.line_number.fetch_add(1, Ordering::Relaxed);
        let line = format!("ts={}.{:06} gid={number} {event}\n", time.as_secs(), time.subsec_micros());
        let mut watchers = lock(&self.watchers);
        let share = MAX_DELIVERY / watchers.len().max(1);
        let (mut sent, mut skipped, mut has_filled) = (0, 0, false);
        for watcher in watchers.iter_mut().filter(|it| it.subscription.topics & topic as u8 != 0) {
            match watcher.offer(line.as_bytes(), self.buffer_size, share, &self.missed) {
                Offer::Accepted(lost) => (sent, skipped) = (sent + 1, skipped + lost),
                Offer::Lost => (),
                Offer::Filled => has_filled = true,
            }
        }
        self.sent.fetch_add(sent, Ordering::Relaxed);
        self.skipped.fetch_add(skipped, Ordering::Relaxed);
        if has_filled {
            self.note_open(&watchers);
        }
    }

    /// Watchers, lines sent and lines skipped.
    pub(crate) fn counts(&self) -> (usize, u64, u64) {
        let watchers = lock(&self.watchers);
        let unreported: u64 = watchers.iter().map(|watcher| watcher.lost(&self.missed)).sum();
        // Relaxed: numbers on which no other data depends.
        let (sent, skipped) = (self.sent.load(Ordering::Relaxed), self.skipped.load(Ordering::Relaxed));
        (watchers.len(), sent, skipped + unreported)
    }
}

impl EvictionObserver for Watch {
    fn is_watching(&self) -> bool {
        self.has_watchers(Topic::Evictions)
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
    use std::cell::Cell;

    #[test]
    fn a_slow_watcher_loses_lines_and_receives_their_number() {
        let watch = Watch::new(100, 1);
        let watcher = watch.subscribe(Topic::Fetchers as u8).unwrap();
        let publish = || watch.publish(Topic::Fetchers, format_args!("{}", "x".repeat(50)));
        watch.publish(Topic::Mutations, format_args!("not watched"));
        (0..5).for_each(|_| publish());
        assert_eq!(watch.counts(), (1, 1, 4));
        let mut out = Vec::new();
        watcher.take(&mut out);
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        watch.deliver();
        publish();
        out.clear();
        watcher.take(&mut out);
        assert!(out.starts_with(b"skipped=4\n"));
        (0..3).for_each(|_| publish());
        assert_eq!(watch.counts(), (1, 3, 6));
        watch.unsubscribe(&watcher);
        assert!(!watch.is_watched());
        assert_eq!(watch.counts(), (0, 3, 6));
    }

    /// A text that counts how often it is written.
    struct Counted<'c>(&'c Cell<usize>);

    impl fmt::Display for Counted<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.set(self.0.get() + 1);
            f.write_str("a text of many bytes, so that there is room for only one of them")
        }
    }

    #[test]
    fn a_line_is_written_once_and_only_if_there_is_room() {
        let watch = Watch::new(150, 4);
        let fetchers = [1, 2, 3].map(|_| watch.subscribe(Topic::Fetchers as u8).unwrap());
        let mutations = watch.subscribe(Topic::Mutations as u8).unwrap();
        let (written, mut out) = (Cell::new(0), Vec::new());
        let publish = |topic| {
            watch.publish(topic, format_args!("{}", Counted(&written)));
            written.replace(0)
        };
        assert_eq!([(); 5].map(|()| publish(Topic::Fetchers)), [1, 1, 0, 0, 0], "the second one finds no room");
        assert_eq!([(); 3].map(|()| publish(Topic::Mutations)), [1, 1, 0], "watchers of other topics have room");
        fetchers[1].take(&mut out);
        assert_eq!(publish(Topic::Fetchers), 0, "it takes a while until it gets more");
        watch.deliver();
        assert_eq!([(); 3].map(|()| publish(Topic::Fetchers)), [1, 1, 0], "one of them has room again");
        fetchers[1].take(&mut out);
        let text = String::from_utf8(std::mem::take(&mut out)).unwrap();
        assert_eq!(text.matches('\n').count(), 3, "{text}");
        assert!(text.contains("\nskipped=5\n"), "{text}");
        [&fetchers[0], &mutations].iter().for_each(|watcher| watcher.take(&mut out));
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 2);
    }

    #[test]
    fn fast_watchers_receive_a_share_of_a_delivery() {
        let watch = Watch::new(MAX_DELIVERY, 2);
        let watchers = [1, 2].map(|_| watch.subscribe(Topic::Fetchers as u8).unwrap());
        let (line, mut out) = ("x".repeat(10_000), Vec::new());
        let mut delivery = || {
            out.clear();
            for _ in 0..1_000 {
                watch.publish(Topic::Fetchers, format_args!("{line}"));
                watchers[0].take(&mut out);
            }
            watch.deliver();
            out.len()
        };
        let lengths = [(); 2].map(|()| delivery());
        assert!(lengths.iter().all(|length| (MAX_DELIVERY / 2 - 20_000..=MAX_DELIVERY / 2 + 20).contains(length)));
    }

    #[test]
    fn a_line_that_is_too_long_leaves_room_for_others() {
        let watch = Watch::new(100, 1);
        let watcher = watch.subscribe(Topic::Fetchers as u8).unwrap();
        watch.publish(Topic::Fetchers, format_args!("{}", "x".repeat(100)));
        watch.publish(Topic::Fetchers, format_args!("short"));
        let mut out = Vec::new();
        watcher.take(&mut out);
        assert!(out.starts_with(b"skipped=1\nts=") && out.ends_with(b" short\n"));
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
