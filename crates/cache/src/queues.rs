//! The queues of a shard: which entry to evict next. The policy is that of
//! [`eviction`](relativist_core::eviction), applied to single entries instead of blocks, with
//! [`ghosts`].
//!
//! What eviction knows about entries lies side by side, apart from their nodes: so nodes are small,
//! and lookups touch nothing else. A queue is a list of *chunks*, which have the entries in the
//! order of their arrival. So an eviction that looks at entry after entry reads memory in sequence,
//! and knows early which nodes to prefetch. An entry that is removed leaves its place empty. A
//! chunk that has become empty leaves its queue, and chunks with few entries are joined.
//!
//! [`ghosts`]: super::ghosts

use std::ptr::NonNull;

use relativist_bucket::Hash;
use relativist_core::eviction;
use relativist_core::prefetch::{prefetch, prefetch_for_write};

use super::ghosts::Ghosts;
use super::node::Indexed;

/// The maximum number of visited entries that an eviction moves. After that it evicts the next one,
/// visited or not, so that its cost is bounded.
const MAX_MOVES: usize = 256;

/// The maximum number of entries in use that an eviction sets aside. After that it gives up.
const MAX_ASIDE: usize = 256;

/// The number of entries of a shard from which on [`Queues::prefetch`] pays. Fewer are in the
/// processor's cache.
const MIN_PREFETCHED: usize = 8;

/// How many entries before its turn the node of an entry is prefetched.
const AHEAD: usize = 4;

/// The places of a chunk.
const CHUNK: usize = 32;

/// Neighbours that together have at most this many entries are joined.
const FEW: usize = CHUNK / 2;

/// A shard keeps at most this many empty chunks, and one more for each chunk in a queue.
const MAX_SPARE: usize = 8;

/// The index of no entry, and the number of no chunk.
const NONE: u32 = u32::MAX;

/// The queues of a shard, and what they know about its entries, whose nodes are of type `N`.
pub(super) struct Queues<N> {
    chunks: Chunks<N>,
    /// The numbers of all chunks that are in no queue, and of some that were freed.
    unused: Vec<u32>,
    /// The number of chunks in queues.
    queued: usize,
    lists: [List; eviction::QUEUES],
    /// A bit for each list that is not empty.
    occupied: u64,
    /// The priority of the last entry that was evicted or moved. Levels, stamps and priorities
    /// wrap around; they are compared by their [`turn`].
    level: u32,
    len: usize,
    ghosts: Ghosts,
}

/// What a shard knows about an entry.
struct Entry<N> {
    node: NonNull<N>,
    hash: Hash,
    weight: u64,
    /// The level when the entry was queued.
    stamp: u32,
    visits: u8,
}

/// A part of a queue.
struct Chunk<N> {
    places: [Option<Entry<N>>; CHUNK],
    /// The number of places from which on all are free.
    used: u32,
    /// The number of entries: at least one, if the chunk is in a queue.
    len: u32,
    /// The chunks before and after it in the queue.
    previous: u32,
    next: u32,
    queue: u8,
}

const _: () = assert!(size_of::<Option<Entry<u8>>>() == 32);

/// In boxes, because a vector that grows would move the chunks.
type Chunks<N> = Vec<Box<Chunk<N>>>;

/// A queue.
#[derive(Clone, Copy)]
struct List {
    /// The index and the priority of the first entry.
    first: u32,
    priority: u32,
    /// The last chunk.
    last: u32,
}

const EMPTY: List = List { first: NONE, priority: 0, last: NONE };

const _: () = assert!(eviction::QUEUES <= u64::BITS as usize);

/// What an eviction sees in a node.
pub(super) struct Look {
    /// Whether it was visited since the last look.
    pub(super) is_visited: bool,
    pub(super) has_expired: bool,
    /// Whether it must not be evicted. An expired entry may be.
    pub(super) is_in_use: bool,
}

/// Why there is no entry to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoneToEvict {
    Empty,
    /// All entries that the eviction has looked at are in use.
    InUse,
    /// The turn of the next entry comes after that of one in another shard.
    Later,
}

/// An entry that has left the queues.
pub(super) struct Left<N> {
    pub(super) node: NonNull<N>,
    pub(super) hash: Hash,
    pub(super) weight: u64,
    pub(super) visits: u8,
}

/// An entry that left to be evicted.
pub(super) struct Popped<N> {
    pub(super) left: Left<N>,
    pub(super) has_expired: bool,
    /// The queue from which it was taken.
    pub(super) queue: usize,
}

// SAFETY: the pointers are to nodes, which may be used on any thread under the lock of the shard.
unsafe impl<N: Send + Sync> Send for Queues<N> {}

/// Returns a number by which priorities are compared at a level: the smaller, the sooner. A
/// priority is at most the largest worth above the level. Those that seem to be higher are far
/// below: they are of a shard that was idle.
#[inline(always)]
pub(super) fn turn(priority: u32, level: u32) -> u32 {
    const MAX_WORTH: u32 = 1 << 30;
    priority.wrapping_sub(level.wrapping_add(MAX_WORTH + 1))
}

impl<N> Entry<N> {
    fn left(self) -> Left<N> {
        let Self { node, hash, weight, visits, .. } = self;
        Left { node, hash, weight, visits }
    }
}

impl<N> Chunk<N> {
    fn new() -> Self {
        let places = [const { None }; CHUNK];
        Self { places, used: 0, len: 0, previous: NONE, next: NONE, queue: 0 }
    }

    /// Returns the first place from this one on that has an entry.
    #[inline(always)]
    fn first_from(&self, place: usize) -> Option<usize> {
        (place..CHUNK).find(|&place| self.places[place].is_some())
    }
}

#[inline(always)]
fn queue_of(weight: u64, visits: u8) -> usize {
    eviction::queue_of_entry(usize::try_from(weight).unwrap_or(usize::MAX), visits)
}

/// Returns the number of the chunk, and the place in it.
#[inline(always)]
fn place_of(index: u32) -> (u32, usize) {
    (index / CHUNK as u32, index as usize % CHUNK)
}

#[inline(always)]
fn index_of(chunk: u32, place: usize) -> u32 {
    chunk * CHUNK as u32 + place as u32
}

impl<N: Indexed> Queues<N> {
    pub(super) fn new() -> Self {
        Self {
            chunks: Vec::new(),
            unused: Vec::new(),
            queued: 0,
            lists: [EMPTY; eviction::QUEUES],
            occupied: 0,
            level: 0,
            len: 0,
            ghosts: Ghosts::default(),
        }
    }

    #[inline(always)]
    fn chunk(&mut self, number: u32) -> &mut Chunk<N> {
        &mut self.chunks[number as usize]
    }

    #[inline(always)]
    fn entry(&self, index: u32) -> Option<&Entry<N>> {
        let (number, place) = place_of(index);
        self.chunks.get(number as usize)?.places[place].as_ref()
    }

    /// Adds an entry. It begins on probation, unless its hash is that of a ghost, or `visits` says
    /// that it has replaced an entry with that many.
    ///
    /// # Safety
    ///
    /// The node lives until its entry has left.
    #[inline(always)]
    pub(super) unsafe fn add(&mut self, node: NonNull<N>, hash: Hash, weight: u64, visits: u8) {
        let visits = visits.max(u8::from(self.ghosts.forget(hash.get())));
        self.push(Entry { node, hash, weight, stamp: 0, visits });
    }

    /// Prefetches what [`hash`](Self::hash) will read.
    #[inline(always)]
    pub(super) fn prefetch_hash(&self, index: u32) {
        let (number, place) = place_of(index);
        if let Some(chunk) = self.chunks.get(number as usize) {
            prefetch(&raw const chunk.places[place]);
        }
    }

    /// Returns the weight of an entry.
    #[inline(always)]
    pub(super) fn weight(&self, index: u32) -> u64 {
        self.entry(index).expect("it is here").weight
    }

    /// Returns the hash of an entry, if it is here.
    #[inline(always)]
    pub(super) fn hash(&self, node: NonNull<N>, index: u32) -> Option<Hash> {
        self.entry(index).filter(|entry| entry.node == node).map(|entry| entry.hash)
    }

    /// Removes an entry.
    #[inline(always)]
    pub(super) fn remove(&mut self, index: u32) -> Left<N> {
        self.take(index).left()
    }

    /// Removes the entry to evict next, apart from that of the node `kept`, which is here. Moves
    /// entries that were visited. Expired entries are evicted as soon as they are reached. `look`
    /// looks at a node, and removes its mark.
    ///
    /// Entries in use are set aside until the end, and then moved as if they had been visited. So
    /// heavy ones, whose turn soon comes again, do not hide others.
    ///
    /// Ends before an entry whose priority is above `bound`.
    #[inline(always)]
    pub(super) fn pop(
        &mut self,
        kept: Option<NonNull<N>>,
        bound: Option<u32>,
        look: impl Fn(NonNull<N>) -> Look,
    ) -> Result<Popped<N>, NoneToEvict> {
        let mut moves = 0;
        let mut aside = Vec::new();
        let popped = loop {
            let Some((queue, index, priority)) = self.next(kept) else {
                break Err(if aside.is_empty() { NoneToEvict::Empty } else { NoneToEvict::InUse });
            };
            if bound.is_some_and(|bound| turn(bound, self.level) < turn(priority, self.level)) {
                break Err(if aside.is_empty() { NoneToEvict::Later } else { NoneToEvict::InUse });
            }
            self.level = priority;
            self.prefetch_look(index);
            let mut entry = self.take(index);
            let Look { is_visited, has_expired, is_in_use } = look(entry.node);
            if is_in_use && !has_expired {
                aside.push(entry);
                if aside.len() == MAX_ASIDE {
                    break Err(NoneToEvict::InUse);
                }
                continue;
            }
            match eviction::verdict(entry.visits, is_visited).filter(|_| !has_expired && moves < MAX_MOVES) {
                Some(visits) => {
                    entry.visits = visits;
                    self.append(eviction::protected(queue), entry);
                    moves += 1;
                }
                None => break Ok(Popped { left: entry.left(), has_expired, queue }),
            }
        };
        if !aside.is_empty() {
            self.put_back(aside);
        }
        popped
    }

    /// Moves the entries that were set aside, as if they had been visited.
    #[cold]
    fn put_back(&mut self, aside: Vec<Entry<N>>) {
        for mut entry in aside {
            entry.visits = eviction::verdict(entry.visits, true).unwrap_or(entry.visits);
            self.push(entry);
        }
    }

    /// Remembers the hash of a new entry that was evicted.
    #[inline]
    pub(super) fn remember(&mut self, hash: Hash) {
        self.ghosts.remember(hash.get(), self.len);
    }

    /// Prefetches what [`add`](Self::add) will use for a new entry.
    #[inline(always)]
    pub(super) fn prefetch_for(&mut self, hash: Hash, weight: u64) {
        self.ghosts.prefetch(hash.get());
        if let Some(chunk) = self.chunks.get(self.lists[queue_of(weight, 0)].last as usize) {
            prefetch_for_write(&raw const chunk.places[chunk.used as usize % CHUNK]);
        }
    }

    /// Prefetches the node of an entry that follows this one, for a later look.
    #[inline(always)]
    fn prefetch_look(&self, index: u32) {
        let (number, place) = place_of(index);
        let chunk = &self.chunks[number as usize];
        let ahead = match place + AHEAD {
            ahead if ahead < CHUNK => &chunk.places[ahead],
            ahead => match self.chunks.get(chunk.next as usize) {
                Some(next) => &next.places[ahead % CHUNK],
                None => &None,
            },
        };
        if let Some(entry) = ahead {
            // The mark is at the end of the node.
            prefetch_for_write(entry.node.as_ptr().wrapping_add(1).cast::<u8>().wrapping_sub(1));
        }
    }

    /// Prefetches the ghosts of the entry of a queue that may be evicted after the next one.
    /// Returns its hash, so that the caller prefetches its bucket.
    #[inline(always)]
    pub(super) fn prefetch(&mut self, queue: usize) -> Option<Hash> {
        if self.len < MIN_PREFETCHED {
            return None;
        }
        let hash = self.entry(self.lists[queue].first.wrapping_add(1))?.hash;
        self.ghosts.prefetch(hash.get());
        Some(hash)
    }

    /// Returns the priority of the entry to evict next.
    pub(super) fn lowest(&self) -> Option<u32> {
        self.next(None).map(|(_, _, priority)| priority)
    }

    /// The level, which shards with few entries share.
    pub(super) fn level(&mut self) -> &mut u32 {
        &mut self.level
    }

    /// Takes all entries, in constant time. Forgets all ghosts.
    pub(super) fn take_all(&mut self) -> Taken<N> {
        Taken(std::mem::replace(self, Self { level: self.level, ..Self::new() }).chunks)
    }

    /// Returns queue, index and priority of the first entry with the lowest priority, apart from
    /// `kept`.
    #[inline(always)]
    fn next(&self, kept: Option<NonNull<N>>) -> Option<(usize, u32, u32)> {
        // SAFETY: it has an entry, so it lives.
        let kept = kept.map(|node| unsafe { node.as_ref() }.index());
        let mut left = self.occupied;
        let mut next = None;
        let mut soonest = u32::MAX;
        while left != 0 {
            let queue = left.trailing_zeros() as usize;
            left &= left - 1;
            let List { mut first, mut priority, .. } = self.lists[queue];
            if Some(first) == kept {
                first = self.after(first);
                if first == NONE {
                    continue;
                }
                priority = self.priority(queue, first);
            }
            let when = turn(priority, self.level);
            if when < soonest || next.is_none() {
                soonest = when;
                next = Some((queue, first, priority));
            }
        }
        next
    }

    #[inline(always)]
    fn priority(&self, queue: usize, index: u32) -> u32 {
        self.entry(index).map_or(0, |entry| entry.stamp.wrapping_add(eviction::worth_of_entry(queue)))
    }

    /// Returns the index of the next entry of the same queue.
    #[inline(always)]
    fn after(&self, index: u32) -> u32 {
        let (number, place) = place_of(index);
        let chunk = &self.chunks[number as usize];
        match chunk.first_from(place + 1) {
            Some(place) => index_of(number, place),
            None => self.first_of(chunk.next),
        }
    }

    /// Returns the index of the first entry of a chunk that is in a queue.
    fn first_of(&self, number: u32) -> u32 {
        match self.chunks.get(number as usize).and_then(|chunk| chunk.first_from(0)) {
            Some(place) => index_of(number, place),
            None => NONE,
        }
    }

    /// Appends an entry to the queue for its weight and visits.
    #[inline(always)]
    fn push(&mut self, entry: Entry<N>) {
        self.append(queue_of(entry.weight, entry.visits), entry);
    }

    /// Appends an entry to a queue.
    #[inline(always)]
    fn append(&mut self, queue: usize, entry: Entry<N>) {
        let mut last = self.lists[queue].last;
        if self.chunks.get(last as usize).is_none_or(|chunk| chunk.used as usize == CHUNK) {
            last = self.add_chunk(queue);
        }
        let stamp = self.level;
        let chunk = self.chunk(last);
        let place = chunk.used as usize % CHUNK;
        chunk.used += 1;
        chunk.len += 1;
        let index = index_of(last, place);
        // SAFETY: the node lives until its entry has left.
        unsafe { entry.node.as_ref() }.set_index(index);
        chunk.places[place] = Some(Entry { stamp, ..entry });
        self.len += 1;
        if self.lists[queue].first == NONE {
            self.set_first(queue, index);
        }
    }

    /// Appends a chunk to a queue.
    #[cold]
    fn add_chunk(&mut self, queue: usize) -> u32 {
        let number = self.take_unused().unwrap_or_else(|| {
            let number = u32::try_from(self.chunks.len()).expect("fewer chunks than entries");
            assert!(number < NONE / CHUNK as u32, "fewer entries than 2^32");
            self.chunks.push(Box::new(Chunk::new()));
            number
        });
        self.queued += 1;
        self.chunk(number).queue = queue as u8;
        self.link(queue, self.lists[queue].last, number);
        self.link(queue, number, NONE);
        number
    }

    /// Sets the first entry of a queue, or that there is none.
    #[inline(always)]
    fn set_first(&mut self, queue: usize, first: u32) {
        let priority = self.priority(queue, first);
        let list = &mut self.lists[queue];
        (list.first, list.priority) = (first, priority);
        let bit = 1 << queue;
        self.occupied = if first == NONE { self.occupied & !bit } else { self.occupied | bit };
    }

    /// Takes an entry out of its queue.
    #[inline(always)]
    fn take(&mut self, index: u32) -> Entry<N> {
        let (number, place) = place_of(index);
        let chunk = self.chunk(number);
        let entry = chunk.places[place].take().expect("it is here");
        chunk.len -= 1;
        let (queue, is_empty) = (usize::from(chunk.queue), chunk.len == 0);
        self.len -= 1;
        let list = &mut self.lists[queue];
        if is_empty {
            self.unlink(number);
        } else if list.first == index {
            let chunk = &self.chunks[number as usize];
            let next = chunk.first_from(place + 1).expect("the chunk has another entry");
            let stamp = chunk.places[next].as_ref().map_or(0, |entry| entry.stamp);
            list.first = index_of(number, next);
            list.priority = stamp.wrapping_add(eviction::worth_of_entry(queue));
        } else {
            self.join(number);
        }
        entry
    }

    /// Returns the number of an unused chunk.
    fn take_unused(&mut self) -> Option<u32> {
        while let Some(number) = self.unused.pop() {
            if (number as usize) < self.chunks.len() {
                return Some(number);
            }
        }
        None
    }

    /// Takes an empty chunk out of its queue.
    #[cold]
    fn unlink(&mut self, number: u32) {
        let chunk = self.chunk(number);
        chunk.used = 0;
        let (queue, previous, next) = (usize::from(chunk.queue), chunk.previous, chunk.next);
        self.link(queue, previous, next);
        if previous == NONE {
            let first = self.first_of(next);
            self.set_first(queue, first);
        }
        self.unused.push(number);
        self.queued -= 1;
        while self.chunks.len() > 2 * self.queued + MAX_SPARE {
            self.free_chunk();
        }
    }

    /// Frees the memory of an unused chunk. The last chunk takes its number.
    fn free_chunk(&mut self) {
        let last = self.chunks.len() as u32 - 1;
        if self.chunk(last).len > 0 {
            let number = self.take_unused().expect("fewer chunks are in queues than there are");
            self.chunks.swap(number as usize, last as usize);
            self.renumber(last, number);
        }
        // If its number is among the unused ones, it is skipped there.
        self.chunks.pop();
    }

    /// Leads to a chunk, and to its entries, by another number than the old one.
    fn renumber(&mut self, old: u32, number: u32) {
        let chunk = self.chunk(number);
        let (queue, previous, next) = (usize::from(chunk.queue), chunk.previous, chunk.next);
        for (place, entry) in chunk.places.iter().enumerate() {
            if let Some(entry) = entry {
                // SAFETY: the node lives until its entry has left.
                unsafe { entry.node.as_ref() }.set_index(index_of(number, place));
            }
        }
        self.link(queue, previous, number);
        self.link(queue, number, next);
        let (first, place) = place_of(self.lists[queue].first);
        if first == old {
            self.lists[queue].first = index_of(number, place);
        }
    }

    /// Makes two chunks of a queue neighbours. The one before may be none, or the one after.
    fn link(&mut self, queue: usize, before: u32, after: u32) {
        if before != NONE {
            self.chunk(before).next = after;
        }
        match after {
            NONE => self.lists[queue].last = before,
            after => self.chunk(after).previous = before,
        }
    }

    /// Joins a chunk with the one before or after it, if both have few entries. So a quarter of the
    /// places is used, whatever is removed, apart from those of a queue's last chunk.
    #[cold]
    fn join(&mut self, number: u32) {
        let (previous, next) = (self.chunk(number).previous, self.chunk(number).next);
        for (one, other) in [(previous, number), (number, next)] {
            if one != NONE && other != NONE && self.chunk(one).len + self.chunk(other).len <= FEW as u32 {
                return self.append_chunk(one, other);
            }
        }
    }

    /// Moves the entries of a chunk to the one before it.
    fn append_chunk(&mut self, number: u32, next: u32) {
        let queue = usize::from(self.chunk(number).queue);
        let first = self.lists[queue].first;
        let entries = [number, next].map(|number| {
            let chunk = self.chunk(number);
            chunk.len = 0;
            std::mem::replace(&mut chunk.places, [const { None }; CHUNK])
        });
        let chunk = self.chunk(number);
        chunk.used = 0;
        for entry in entries.into_iter().flatten().flatten() {
            let place = chunk.used as usize;
            // SAFETY: the node lives until its entry has left.
            unsafe { entry.node.as_ref() }.set_index(index_of(number, place));
            chunk.places[place] = Some(entry);
            chunk.used += 1;
        }
        chunk.len = chunk.used;
        if place_of(first).0 == number {
            self.set_first(queue, index_of(number, 0));
        }
        self.unlink(next);
    }
}

/// Entries that have left their shard all at once.
pub(super) struct Taken<N>(Chunks<N>);

// SAFETY: as for the queues.
unsafe impl<N: Send + Sync> Send for Taken<N> {}

impl<N> Default for Taken<N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<N> Taken<N> {
    /// Adds those of another one.
    pub(super) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Takes an entry out.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Left<N>> {
        if self.0.is_empty() { None } else { self.pop_last() }
    }

    #[cold]
    fn pop_last(&mut self) -> Option<Left<N>> {
        while let Some(chunk) = self.0.last_mut() {
            match chunk.first_from(0) {
                Some(place) => return chunk.places[place].take().map(Entry::left),
                None => _ = self.0.pop(),
            }
        }
        None
    }
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;

    use relativist_testing::random::Random;

    use super::*;

    /// A node with a number.
    #[derive(Debug)]
    struct Number(usize, Cell<u32>);

    impl Indexed for Number {
        fn index(&self) -> u32 {
            self.1.get()
        }

        fn set_index(&self, index: u32) {
            self.1.set(index);
        }
    }

    fn nodes(len: usize) -> Vec<Number> {
        (0..len).map(|number| Number(number, Cell::new(NONE))).collect()
    }

    fn add(queues: &mut Queues<Number>, node: &Number, weight: u64, visits: u8) {
        // SAFETY: the nodes of each test outlive the queues.
        unsafe { queues.add(NonNull::from(node), Hash::new(node.0 as u64), weight, visits) };
    }

    /// Makes queues of nodes of one weight.
    fn queues(nodes: &[Number], weight: u64, visits: u8) -> Queues<Number> {
        let mut queues = Queues::new();
        nodes.iter().for_each(|node| add(&mut queues, node, weight, visits));
        queues
    }

    fn number(node: NonNull<Number>) -> usize {
        // SAFETY: one of the nodes.
        unsafe { node.as_ref() }.0
    }

    /// Pops an entry. Returns its number, and those of the entries that the eviction looked at.
    fn pop(queues: &mut Queues<Number>, is_in_use: impl Fn(usize) -> bool) -> (Result<usize, NoneToEvict>, Vec<usize>) {
        let looks = RefCell::new(Vec::new());
        let popped = queues.pop(None, None, |node| {
            looks.borrow_mut().push(number(node));
            Look { is_visited: false, has_expired: false, is_in_use: is_in_use(number(node)) }
        });
        (popped.map(|popped| number(popped.left.node)), looks.into_inner())
    }

    #[test]
    fn an_entry_can_leave_after_the_one_before_it() {
        let nodes = nodes(6);
        let pop_but = |queues: &mut Queues<Number>, kept: Option<&Number>| {
            let look = |_| Look { is_visited: false, has_expired: false, is_in_use: false };
            queues.pop(kept.map(NonNull::from), None, look).ok().map(|popped| number(popped.left.node))
        };
        let pop = |queues: &mut Queues<Number>| pop_but(queues, None);

        let mut queues = queues(&nodes[..4], 1, 0);
        assert_eq!(pop(&mut queues), Some(0));
        queues.remove(nodes[1].index());
        assert_eq!(pop(&mut queues), Some(2));
        add(&mut queues, &nodes[4], 1, 0);
        let kept = Some(&nodes[3]);
        assert_eq!((pop_but(&mut queues, kept), queues.len), (Some(4), 1));
        assert_eq!((pop_but(&mut queues, kept), queues.len), (None, 1));
        queues.remove(nodes[3].index());
        assert_eq!((pop(&mut queues), queues.len), (None, 0));
        add(&mut queues, &nodes[5], 1, 0);
        assert_eq!((pop(&mut queues), queues.len, queues.chunks.len()), (Some(5), 0, 1));

        nodes[..3].iter().for_each(|node| add(&mut queues, node, 1, 0));
        let mut taken = queues.take_all();
        assert_eq!((queues.len, pop(&mut queues)), (0, None));
        taken.append(queues.take_all());
        assert_eq!(std::iter::from_fn(|| taken.pop()).count(), 3);
    }

    /// Random operations, compared with a plain list per queue.
    #[test]
    fn entries_leave_in_the_order_of_their_arrival() {
        const LEN: usize = 2000;
        let nodes = nodes(LEN);
        let mut random = Random::new(1);
        for kept in [None, Some(&nodes[7])] {
            let mut queues = Queues::new();
            let (mut expected, mut absent) = (VecDeque::new(), Vec::from_iter(0..LEN));
            for step in 0..40_000 {
                // It grows, then it shrinks.
                let grows = random.below(5) < if step % 10_000 < 5_000 { 3 } else { 2 };
                if grows && !absent.is_empty() {
                    let node = absent.swap_remove(random.below(absent.len() as u64) as usize);
                    add(&mut queues, &nodes[node], 1, 0);
                    expected.push_back(node);
                } else if random.below(2) == 0 {
                    let look = |_| Look { is_visited: false, has_expired: false, is_in_use: false };
                    let popped = queues.pop(kept.map(NonNull::from).filter(|_| expected.contains(&7)), None, look);
                    let first = expected.iter().position(|&node| kept.is_none() || node != 7);
                    let first = first.and_then(|place| expected.remove(place));
                    assert_eq!(popped.ok().map(|popped| number(popped.left.node)), first);
                    absent.extend(first);
                } else if !expected.is_empty() {
                    let place = random.below(expected.len() as u64) as usize;
                    let node = expected.remove(place).unwrap();
                    let (index, hash) = (nodes[node].index(), Hash::new(node as u64));
                    assert_eq!(queues.hash(NonNull::from(&nodes[node]), index), Some(hash));
                    assert_eq!(number(queues.remove(index).node), node);
                    assert_eq!(queues.hash(NonNull::from(&nodes[node]), index), None);
                    absent.push(node);
                }
                assert_eq!(queues.len, expected.len());
            }
        }
    }

    /// Whatever is removed, chunks are not mostly empty, and most are not unused.
    #[test]
    fn chunks_with_few_entries_are_joined() {
        let nodes = nodes(100 * CHUNK);
        let mut queues = queues(&nodes, 1, 0);
        let used = |queues: &Queues<Number>| queues.chunks.iter().filter(|chunk| chunk.used > 0).count();
        assert_eq!(used(&queues), 100);
        nodes.iter().filter(|node| node.0 % CHUNK != 0).for_each(|node| _ = queues.remove(node.index()));
        assert!(used(&queues) <= 100 / (FEW / 2), "{}", used(&queues));
        let left: Vec<_> = std::iter::from_fn(|| pop(&mut queues, |_| false).0.ok()).collect();
        assert_eq!(left, Vec::from_iter((0..100).map(|chunk| chunk * CHUNK)));
        assert_eq!(queues.chunks.len(), MAX_SPARE);
        nodes.iter().for_each(|node| add(&mut queues, node, 1, 0));
        assert_eq!(queues.chunks.len(), 100);
    }

    /// The chunks of another queue get the numbers of chunks that are freed.
    #[test]
    fn entries_are_found_when_chunks_get_other_numbers() {
        const LEN: usize = 100 * CHUNK;
        let nodes = nodes(2 * LEN);
        let mut queues = queues(&nodes[..LEN], 1, 0);
        let (light, heavy) = nodes.split_at(LEN);
        heavy.iter().for_each(|node| add(&mut queues, node, 1 << 20, 0));
        for (removed, node) in light.iter().enumerate() {
            queues.remove(node.index());
            assert!(queues.chunks.len() <= 2 * queues.queued + MAX_SPARE, "after {removed}");
        }
        let hash_of = |node: &Number| queues.hash(NonNull::from(node), node.index());
        assert!(heavy.iter().all(|node| hash_of(node) == Some(Hash::new(node.0 as u64))));
        let left = std::iter::from_fn(|| pop(&mut queues, |_| false).0.ok());
        assert!(left.eq(LEN..2 * LEN), "they leave in order");
    }

    #[test]
    fn turns_are_right_when_numbers_wrap_around() {
        for level in [0, 1, 1 << 30, u32::MAX - (1 << 29), u32::MAX] {
            let far_behind = level.wrapping_sub(3 << 30).wrapping_add(2);
            let behind = level.wrapping_sub(1);
            let ahead = level.wrapping_add(1 << 30);
            let in_turn =
                [far_behind, behind, level, level.wrapping_add(1), ahead].map(|priority| turn(priority, level));
            assert!(in_turn.is_sorted_by(|one, next| one < next), "{level}: {in_turn:?}");
        }
    }

    #[test]
    fn an_eviction_looks_at_a_bounded_number_of_entries_in_use() {
        const LEN: usize = 4 * MAX_ASIDE;
        let nodes = nodes(LEN);
        let mut queues = queues(&nodes, 1, 0);
        let mut looks: Vec<_> = (0..4)
            .flat_map(|_| {
                let (popped, looks) = pop(&mut queues, |_| true);
                assert_eq!((popped, looks.len(), queues.len), (Err(NoneToEvict::InUse), MAX_ASIDE, LEN));
                looks
            })
            .collect();
        looks.sort_unstable();
        assert_eq!(looks, Vec::from_iter(0..LEN), "each had its turn");
        // The only one that is not in use is found when its turn comes.
        let pops = (1..).find(|_| pop(&mut queues, |node| node != 1000).0 == Ok(1000));
        assert_eq!((pops, queues.len), (Some(4), LEN - 1));
        // Entries that are no longer in use leave one by one.
        (1..LEN).for_each(|left| assert!(pop(&mut queues, |_| false).0.is_ok() && queues.len == LEN - 1 - left));
        assert_eq!(pop(&mut queues, |_| true), (Err(NoneToEvict::Empty), Vec::new()));
    }

    #[test]
    fn heavy_entries_in_use_do_not_hide_light_ones() {
        let nodes = nodes(20);
        let mut queues = queues(&nodes[..10], 1 << 20, 0);
        // These have 32,768 times the worth of the heavy ones, so their turn comes last.
        nodes[10..].iter().for_each(|node| add(&mut queues, node, 1, 1));
        for left in (0..10).rev() {
            let (popped, looks) = pop(&mut queues, |node| node < 10);
            assert!(popped.is_ok_and(|node| node >= 10), "{popped:?}");
            assert!(looks.iter().filter(|&&node| node < 10).count() <= 10);
            assert_eq!(queues.len, 10 + left);
        }
        assert_eq!(pop(&mut queues, |_| true).0, Err(NoneToEvict::InUse));
    }
}
