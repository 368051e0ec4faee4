//! The events of sampled keys, on their way from the threads that execute commands to the
//! simulation.
//!
//! A thread compares the hash of each key with one number. If the key is in the sample, it appends
//! an event to its buffer. No other thread writes there, unless there are more threads than
//! buffers. A thread never waits. Very few events are lost because the buffer is being emptied just
//! then. If a buffer is full, events are lost, too; these are counted, and the sample becomes
//! smaller.
//!
//! A hit on a key that has been hit since the buffer was last emptied adds nothing to what the
//! simulation knows, so it is left out. Otherwise one hot key could fill the buffer.

use crate::expiry::Expiry;
use crossbeam_utils::CachePadded;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The maximum number of events in a buffer, of 24 bytes each.
const MAX_EVENTS: usize = 1 << 12;

/// The number of keys that are remembered as hit. Their places depend on their hashes.
const REMEMBERED: usize = 1 << 8;

/// What was done with a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// It was asked for, and there is an item.
    Hit,
    /// It was asked for, and there is no item.
    Miss,
    /// An item was stored.
    Store {
        /// Whether there was an item before.
        replaces: bool,
    },
    /// The item's expiry was set.
    Touch,
    /// The item was removed.
    Remove,
}

/// A command on a key in the sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) hash: u64,
    pub(crate) kind: Kind,
    /// The size and the expiry of the item, if there is one.
    pub(crate) size: u32,
    pub(crate) expiry: Expiry,
}

/// The buffers of all threads.
#[derive(Debug)]
pub(crate) struct Events {
    /// Keys with hashes up to this are in the sample.
    last_sampled: AtomicU64,
    /// Their number is a power of two, or 0 if nothing is sampled.
    buffers: Box<[CachePadded<Buffer>]>,
    /// An empty list for the next buffer that is emptied, so that its thread need not allocate.
    spare: Mutex<Vec<Event>>,
}

#[derive(Debug, Default)]
struct Buffer {
    waiting: Mutex<Waiting>,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    events: Vec<Event>,
    /// Hashes of keys that were hit; 0 for none.
    hits: Vec<u64>,
}

impl Events {
    /// Samples all keys, with a buffer for each of about `threads` threads.
    pub(super) fn new(threads: usize) -> Events {
        let buffers = (0..threads.next_power_of_two()).map(|_| CachePadded::default()).collect();
        Events { last_sampled: AtomicU64::new(u64::MAX), buffers, spare: Mutex::default() }
    }

    /// Samples nothing.
    pub(super) fn off() -> Events {
        Events { last_sampled: AtomicU64::new(0), buffers: Box::default(), spare: Mutex::default() }
    }

    /// Whether a key with this hash is in the sample.
    #[inline(always)]
    pub(crate) fn samples(&self, hash: u64) -> bool {
        // Relaxed: no other data depends on it. It hardly ever changes.
        hash <= self.last_sampled.load(Ordering::Relaxed)
    }

    /// Samples the keys with hashes up to `last` from now on.
    pub(super) fn sample_up_to(&self, last: u64) {
        // Relaxed: as in `samples`. A store of the same number would take the cache line from
        // readers.
        if self.last_sampled.load(Ordering::Relaxed) != last {
            self.last_sampled.store(last, Ordering::Relaxed);
        }
    }

    /// Appends an event to the buffer of the thread with this index. Wait-free.
    #[cold]
    pub(crate) fn record(&self, event: Event, thread: usize) {
        let Some(buffer) = self.buffers.get(thread & self.buffers.len().wrapping_sub(1)) else { return };
        let Ok(mut waiting) = buffer.waiting.try_lock() else { return };
        if !waiting.add(event) {
            // Relaxed: no other data depends on it.
            buffer.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Passes all events to `visit`, those of each thread in their order. Returns the number of
    /// events since the last call, lost ones included, and that of lost events.
    pub(super) fn drain(&self, mut visit: impl FnMut(&Event)) -> (u64, u64) {
        let (mut all, mut lost) = (0, 0);
        let mut events = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        for buffer in &self.buffers {
            buffer.waiting.lock().unwrap_or_else(PoisonError::into_inner).take(&mut events);
            events.iter().for_each(&mut visit);
            all += events.len() as u64;
            events.clear();
            // Relaxed: as in `record`.
            lost += buffer.lost.swap(0, Ordering::Relaxed);
        }
        (all + lost, lost)
    }
}

impl Waiting {
    /// Returns whether there was room.
    fn add(&mut self, event: Event) -> bool {
        self.hits.resize(REMEMBERED, 0);
        let remembered = &mut self.hits[event.hash as usize % REMEMBERED];
        let is_repeated = *remembered == event.hash;
        match event.kind {
            Kind::Hit if is_repeated => return true,
            Kind::Hit => *remembered = event.hash,
            _ if is_repeated => *remembered = 0,
            _ => (),
        }
        let has_room = self.events.len() < MAX_EVENTS;
        if has_room {
            self.events.push(event);
        }
        has_room
    }

    /// Exchanges the events for an empty list.
    fn take(&mut self, empty: &mut Vec<Event>) {
        self.hits.fill(0);
        mem::swap(&mut self.events, empty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(hash: u64, kind: Kind) -> Event {
        Event { hash, kind, size: 1, expiry: Expiry::NEVER }
    }

    fn drained(events: &Events) -> (Vec<(u64, Kind)>, (u64, u64)) {
        let mut seen = Vec::new();
        let counts = events.drain(|event| seen.push((event.hash, event.kind)));
        (seen, counts)
    }

    #[test]
    fn repeated_hits_are_left_out_until_something_else_happens() {
        let events = Events::new(1);
        for kind in [Kind::Hit, Kind::Hit, Kind::Remove, Kind::Hit, Kind::Hit] {
            events.record(event(5, kind), 0);
        }
        assert_eq!(drained(&events), (vec![(5, Kind::Hit), (5, Kind::Remove), (5, Kind::Hit)], (3, 0)));
        events.record(event(5, Kind::Hit), 0);
        assert_eq!(drained(&events).0.len(), 1, "each time the buffer is emptied");
        for hash in [5, 5 + REMEMBERED as u64, 5] {
            events.record(event(hash, Kind::Hit), 0);
        }
        assert_eq!(drained(&events).0.len(), 3, "they share a place");
    }

    #[test]
    fn buffers_are_bounded_and_lost_events_are_counted() {
        let events = Events::new(3);
        for n in 0..=MAX_EVENTS as u64 {
            events.record(event(n, Kind::Miss), 1);
        }
        events.record(event(7, Kind::Miss), 2);
        let (seen, counts) = drained(&events);
        assert_eq!((seen.len(), counts), (MAX_EVENTS + 1, (MAX_EVENTS as u64 + 2, 1)));
        assert_eq!(drained(&events).1, (0, 0));
    }

    #[test]
    fn a_thread_does_not_wait_while_its_buffer_is_emptied() {
        let events = Events::new(1);
        let reader = events.buffers[0].waiting.lock().unwrap();
        events.record(event(1, Kind::Hit), 0);
        drop(reader);
        assert_eq!(drained(&events), (vec![], (0, 0)));
    }

    #[test]
    fn nothing_is_sampled_if_it_is_off() {
        let events = Events::off();
        assert!(!events.samples(1));
        events.record(event(0, Kind::Hit), 3);
        assert_eq!(drained(&events), (vec![], (0, 0)));
    }
}
