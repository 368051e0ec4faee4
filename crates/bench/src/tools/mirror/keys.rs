//! What is known about keys: which requests overlap, and which items both servers must have.
//!
//! A request is compared only if no write of another client to the same key overlapped with it: two
//! servers may execute overlapping requests in different orders. (Requests of one client are
//! executed and compared in their order.) And an item is compared only if
//! both servers were seen to hold the same one. Everything else is unknown, such as items that were
//! on one server before the mirror was started.
//!
//! The memory is bounded, because forgetting is always safe: an unknown key is compared less.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use parking_lot::Mutex;

/// The number of shards. Keys of one shard count as the same key where requests overlap.
const SHARDS: usize = 1 << 16;

/// The number of keys that a shard remembers. All shards together take at most about 50 MiB.
const KEYS_PER_SHARD: usize = 16;

/// What both servers hold under a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Unknown,
    Absent,
    /// The same item.
    Present {
        expires: bool,
    },
}

#[derive(Debug, Default)]
struct Shard {
    /// The number of writes in flight, and whether they are of several clients.
    writers: u32,
    is_shared: bool,
    /// The number of writes that have begun, the client of the last one, and the number of writes
    /// before those that this client has begun last, one after the other.
    writes: u64,
    last_writer: u64,
    writes_of_others: u64,
    /// The epoch of `entries`.
    epoch: u64,
    entries: Vec<(u64, State)>,
    /// The entry that is replaced next.
    turn: usize,
}

#[derive(Debug)]
pub(super) struct Keys {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    /// Changes when all keys are forgotten.
    epoch: AtomicU64,
}

/// A request to one key, from before the primary receives it until both replies are compared. If it
/// is dropped earlier, the effect on the secondary is unknown, so a write makes the key unknown.
#[derive(Debug)]
pub(super) struct Ticket {
    keys: Arc<Keys>,
    pub(super) hash: u64,
    client: u64,
    is_write: bool,
    /// Whether no write of another client was in flight at the beginning.
    was_alone: bool,
    /// The number of writes that had begun, with this one.
    writes: u64,
    epoch: u64,
    is_finished: bool,
}

impl Keys {
    pub(super) fn new() -> Arc<Self> {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Arc::new(Self { shards, hasher: RandomState::new(), epoch: AtomicU64::new(0) })
    }

    /// Forgets everything. Requests in flight are not compared.
    pub(super) fn forget_all(&self) {
        // Release pairs with Acquire in `epoch`: a request that sees the new epoch begins after
        // what made the keys unknown.
        self.epoch.fetch_add(1, Release);
    }

    fn epoch(&self) -> u64 {
        // Pairs with Release in `forget_all`.
        self.epoch.load(Acquire)
    }

    /// Begins a request of a client, whose number is not zero.
    pub(super) fn begin(self: &Arc<Self>, client: u64, key: &[u8], is_write: bool) -> Ticket {
        let hash = self.hasher.hash_one(key);
        let epoch = self.epoch();
        let mut shard = self.shard(hash).lock();
        let was_alone = shard.writers == 0 || !shard.is_shared && shard.last_writer == client;
        if is_write {
            shard.is_shared = !was_alone;
            shard.writers += 1;
            shard.note_write(client);
        }
        let writes = shard.writes;
        Ticket { keys: Arc::clone(self), hash, client, is_write, was_alone, writes, epoch, is_finished: false }
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[hash as usize % SHARDS]
    }
}

/// A flush of all items, until both servers have executed it. Requests that overlap with it are not
/// compared.
#[derive(Debug)]
pub(super) struct Flush(Arc<Keys>);

impl Flush {
    pub(super) fn begin(keys: &Arc<Keys>) -> Self {
        keys.forget_all();
        Self(Arc::clone(keys))
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.0.forget_all();
    }
}

/// Stands for no client.
const NOBODY: u64 = 0;

impl Shard {
    fn note_write(&mut self, client: u64) {
        if self.last_writer != client {
            self.last_writer = client;
            self.writes_of_others = self.writes;
        }
        self.writes += 1;
    }

    /// Whether all writes after the first `before` are of this client.
    fn is_only_writer(&self, client: u64, before: u64) -> bool {
        self.writes == before || self.last_writer == client && self.writes_of_others <= before
    }

    fn get(&self, hash: u64, epoch: u64) -> State {
        let found = self.entries.iter().find(|entry| entry.0 == hash && self.epoch == epoch);
        found.map_or(State::Unknown, |entry| entry.1)
    }

    fn forget(&mut self, hash: u64) {
        self.entries.retain(|entry| entry.0 != hash);
    }

    fn set(&mut self, hash: u64, epoch: u64, state: State) {
        if self.epoch != epoch {
            self.entries.clear();
            self.epoch = epoch;
        }
        let place = self.entries.iter().position(|entry| entry.0 == hash);
        match (place, state) {
            (Some(place), State::Unknown) => drop(self.entries.swap_remove(place)),
            (Some(place), _) => self.entries[place].1 = state,
            (None, State::Unknown) => (),
            (None, _) if self.entries.len() < KEYS_PER_SHARD => self.entries.push((hash, state)),
            (None, _) => {
                self.turn = (self.turn + 1) % KEYS_PER_SHARD;
                self.entries[self.turn] = (hash, state);
            }
        }
    }
}

impl Ticket {
    /// Ends a request. Calls `judge` with the state of the key, or with `None` if another write
    /// overlapped. `judge` returns the new state. It is ignored if a write overlapped: if this is a
    /// write too, the key is unknown now.
    pub(super) fn finish<T>(mut self, judge: impl FnOnce(Option<State>) -> (T, State)) -> T {
        self.is_finished = true;
        let is_current = self.keys.epoch() == self.epoch;
        let mut shard = self.keys.shard(self.hash).lock();
        shard.writers -= u32::from(self.is_write);
        let is_alone = self.was_alone && shard.is_only_writer(self.client, self.writes) && is_current;
        let (result, state) = judge(is_alone.then(|| shard.get(self.hash, self.epoch)));
        if is_alone {
            shard.set(self.hash, self.epoch, state);
        } else if self.is_write {
            shard.forget(self.hash);
        }
        result
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_finished && self.is_write {
            let mut shard = self.keys.shard(self.hash).lock();
            shard.writers -= 1;
            // Earlier requests of this client may not have ended.
            shard.note_write(NOBODY);
            shard.forget(self.hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(keys: &Arc<Keys>, client: u64, is_write: bool) -> Ticket {
        keys.begin(client, b"k", is_write)
    }

    /// Ends a request that leaves an item. Returns the state before, or `None` if a write
    /// overlapped.
    fn end(ticket: Ticket) -> Option<State> {
        ticket.finish(|state| (state, State::Present { expires: false }))
    }

    #[test]
    fn requests_that_overlap_with_a_write_are_not_compared() {
        let keys = Keys::new();
        let (read, other) = (begin(&keys, 1, false), begin(&keys, 1, false));
        assert_eq!([end(read), end(other)], [Some(State::Unknown), Some(State::Present { expires: false })]);
        // A write that begins during a read, and one that began before it.
        let (read, write) = (begin(&keys, 1, false), begin(&keys, 2, true));
        let later = begin(&keys, 3, false);
        assert_eq!([end(read), end(write), end(later)], [None, Some(State::Present { expires: false }), None]);
        // Of two writes, either can be the last one on the secondary.
        let (first, second) = (begin(&keys, 1, true), begin(&keys, 2, true));
        // While they are in flight, no client is alone.
        let third = begin(&keys, 1, true);
        assert_eq!([end(first), end(second), end(third)], [None, None, None]);
        assert_eq!(end(begin(&keys, 1, false)), Some(State::Unknown));
    }

    #[test]
    fn requests_of_one_client_are_executed_in_order() {
        let keys = Keys::new();
        let [first, read, second, last] = [true, false, true, false].map(|is_write| begin(&keys, 1, is_write));
        assert_eq!([end(first), end(read)], [Some(State::Unknown), Some(State::Present { expires: false })]);
        assert_eq!([end(second), end(last)], [Some(State::Present { expires: false }); 2]);
        // One of them gets no outcome, before an earlier one has one.
        let [first, second] = [true, true].map(|is_write| begin(&keys, 1, is_write));
        drop(second);
        assert_eq!((end(first), end(begin(&keys, 1, false))), (None, Some(State::Unknown)));
        // Another client writes between two of them.
        let (first, other, second) = (begin(&keys, 1, true), begin(&keys, 2, true), begin(&keys, 1, true));
        assert_eq!([end(first), end(other), end(second)], [None, None, None]);
    }

    #[test]
    fn writes_without_an_outcome_make_keys_unknown() {
        let keys = Keys::new();
        end(begin(&keys, 1, true));
        drop(begin(&keys, 1, false));
        assert_eq!(end(begin(&keys, 1, false)), Some(State::Present { expires: false }));
        drop(begin(&keys, 1, true));
        assert_eq!(end(begin(&keys, 1, false)), Some(State::Unknown));
        let over = begin(&keys, 1, false);
        keys.forget_all();
        assert_eq!((end(over), end(begin(&keys, 1, false))), (None, Some(State::Unknown)));
    }

    #[test]
    fn memory_is_bounded() {
        let keys = Keys::new();
        let mut shard = Shard::default();
        (0..1000).for_each(|hash| shard.set(hash, 0, State::Absent));
        assert_eq!((shard.entries.len(), shard.get(999, 0), shard.get(1, 0)), (16, State::Absent, State::Unknown));
        assert!(SHARDS * (size_of::<Mutex<Shard>>() + KEYS_PER_SHARD * size_of::<(u64, State)>()) < 60 << 20);
        drop(keys);
    }
}
