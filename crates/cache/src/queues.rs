//! The queues of a shard: which entry to evict next. The policy is that of
//! [`eviction`](relativist_core::eviction), applied to single entries instead of blocks, with
//! [`ghosts`].
//!
//! What eviction knows about entries lies side by side, apart from their nodes: so nodes are small,
//! and lookups touch nothing else. A queue is a doubly linked list, by index, so an entry that is
//! removed leaves it at once.
//!
//! [`ghosts`]: super::ghosts

use std::ops::{Index, IndexMut};
use std::ptr::NonNull;

use relativist_bucket::Hash;
use relativist_core::eviction;
use relativist_core::prefetch::prefetch_for_write;

use super::ghosts::Ghosts;

/// The maximum number of visited entries that an eviction moves. After that it evicts the next one,
/// visited or not, so that its cost is bounded.
const MAX_MOVES: usize = 256;

/// The maximum number of entries in use that an eviction sets aside. After that it gives up.
const MAX_ASIDE: usize = 256;

/// The number of entries of a shard from which on [`Queues::prefetch`] pays. Fewer are in the
/// processor's cache.
const MIN_PREFETCHED: usize = 8;

/// The index of no entry.
const NONE: u32 = u32::MAX;

/// The queue of an unused place.
const UNUSED: u8 = u8::MAX;

/// The queues of a shard, and what they know about its entries, whose nodes are of type `N`.
pub(super) struct Queues<N> {
    entries: Entries<N>,
    /// The first of the unused places, which are linked.
    unused: u32,
    lists: [List; eviction::QUEUES],
    /// A bit for each list that is not empty.
    occupied: u64,
    /// The priority of the last entry that was evicted or moved. Levels, stamps and priorities
    /// wrap around; they are compared by their distance from the level, which is at most the
    /// largest worth, 2^30.
    level: u32,
    len: usize,
    ghosts: Ghosts,
}

/// What a shard knows about an entry.
struct Entry<N> {
    node: NonNull<N>,
    hash: Hash,
    weight: u64,
    /// Means nothing in the first entry of a queue.
    previous: u32,
    next: u32,
    /// The level when the entry was queued.
    stamp: u32,
    queue: u8,
    visits: u8,
}

const _: () = assert!(size_of::<Entry<u8>>() == 40);

/// All entries of a shard, in chunks, so that more of them move none and waste no memory.
struct Entries<N>(Vec<Vec<Entry<N>>>);

impl<N> Entries<N> {
    /// The number of entries in a chunk.
    const CHUNK: usize = 256;

    #[inline(always)]
    fn get(&self, index: u32) -> Option<&Entry<N>> {
        self.0.get(index as usize / Self::CHUNK)?.get(index as usize % Self::CHUNK)
    }

    #[inline(always)]
    fn get_mut(&mut self, index: u32) -> Option<&mut Entry<N>> {
        self.0.get_mut(index as usize / Self::CHUNK)?.get_mut(index as usize % Self::CHUNK)
    }

    /// Adds an entry, and returns its index.
    #[cold]
    fn push(&mut self, entry: Entry<N>) -> u32 {
        if self.0.last().is_none_or(|chunk| chunk.len() == Self::CHUNK) {
            self.0.push(Vec::with_capacity(Self::CHUNK));
        }
        let full = (self.0.len() - 1) * Self::CHUNK;
        let chunk = self.0.last_mut().expect("there is one");
        let index = u32::try_from(full + chunk.len()).expect("fewer entries than 2^32");
        chunk.push(entry);
        index
    }
}

impl<N> Index<u32> for Entries<N> {
    type Output = Entry<N>;

    #[inline(always)]
    fn index(&self, index: u32) -> &Entry<N> {
        &self.0[index as usize / Self::CHUNK][index as usize % Self::CHUNK]
    }
}

impl<N> IndexMut<u32> for Entries<N> {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut Entry<N> {
        &mut self.0[index as usize / Self::CHUNK][index as usize % Self::CHUNK]
    }
}

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List { first: NONE, last: NONE };

const _: () = assert!(eviction::QUEUES <= u64::BITS as usize && eviction::QUEUES < UNUSED as usize);

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

impl<N> Queues<N> {
    pub(super) fn new() -> Self {
        Self {
            entries: Entries(Vec::new()),
            unused: NONE,
            lists: [EMPTY; eviction::QUEUES],
            occupied: 0,
            level: 0,
            len: 0,
            ghosts: Ghosts::default(),
        }
    }

    /// Adds an entry, and returns its index. It begins on probation, unless its hash is that of a
    /// ghost, or `visits` says that it has replaced an entry with that many.
    #[inline(always)]
    pub(super) fn add(&mut self, node: NonNull<N>, hash: Hash, weight: u64, visits: u8) -> u32 {
        let visits = visits.max(u8::from(self.ghosts.forget(hash.get())));
        let entry = Entry { node, hash, weight, previous: NONE, next: NONE, stamp: 0, queue: UNUSED, visits };
        let index = match self.entries.get_mut(self.unused) {
            Some(place) => {
                let index = std::mem::replace(&mut self.unused, place.next);
                *place = entry;
                index
            }
            None => self.entries.push(entry),
        };
        self.push(index);
        index
    }

    /// Returns the weight of an entry.
    #[inline(always)]
    pub(super) fn weight(&self, index: u32) -> u64 {
        self.entries[index].weight
    }

    /// Returns the hash of an entry, if it is here.
    #[inline(always)]
    pub(super) fn hash(&self, node: NonNull<N>, index: u32) -> Option<Hash> {
        let entry = self.entries.get(index)?;
        (entry.node == node && entry.queue != UNUSED).then_some(entry.hash)
    }

    /// Removes an entry.
    #[inline(always)]
    pub(super) fn remove(&mut self, index: u32) -> Left<N> {
        self.unlink(index);
        self.discard(index)
    }

    /// Makes the place of an entry, which is in no queue, unused.
    #[inline(always)]
    fn discard(&mut self, index: u32) -> Left<N> {
        let entry = &mut self.entries[index];
        entry.queue = UNUSED;
        entry.next = self.unused;
        self.unused = index;
        Left { node: entry.node, hash: entry.hash, weight: entry.weight, visits: entry.visits }
    }

    /// Removes the entry to evict next, apart from `kept`. Moves entries that were visited. Expired
    /// entries are evicted as soon as they are reached. `look` looks at a node, and removes its
    /// mark.
    ///
    /// Entries in use are set aside until the end, and then moved as if they had been visited. So
    /// heavy ones, whose turn soon comes again, do not hide others.
    #[inline(always)]
    pub(super) fn pop(
        &mut self,
        kept: Option<u32>,
        look: impl Fn(NonNull<N>) -> Look,
    ) -> Result<Popped<N>, NoneToEvict> {
        let (mut moves, mut in_use) = (0, 0);
        let mut aside = EMPTY;
        let popped = loop {
            let Some((queue, index, priority)) = self.next(kept) else {
                break Err(if in_use > 0 { NoneToEvict::InUse } else { NoneToEvict::Empty });
            };
            if self.lists[queue].first == index {
                self.unlink_first(queue, index);
            } else {
                self.unlink(index);
            }
            self.level = priority;
            let entry = &mut self.entries[index];
            let Look { is_visited, has_expired, is_in_use } = look(entry.node);
            if is_in_use && !has_expired {
                self.set_aside(&mut aside, index);
                in_use += 1;
                if in_use == MAX_ASIDE {
                    break Err(NoneToEvict::InUse);
                }
                continue;
            }
            let visits = eviction::verdict(entry.visits, is_visited);
            match visits.filter(|_| !has_expired && moves < MAX_MOVES) {
                Some(visits) => {
                    entry.visits = visits;
                    self.push(index);
                    moves += 1;
                }
                None => break Ok(Popped { left: self.discard(index), has_expired, queue }),
            }
        };
        if in_use > 0 {
            self.put_back(aside);
        }
        popped
    }

    /// Appends an entry, which is in no queue, to a list of such entries.
    #[cold]
    fn set_aside(&mut self, aside: &mut List, index: u32) {
        self.entries[index].next = NONE;
        match self.entries.get_mut(std::mem::replace(&mut aside.last, index)) {
            Some(last) => last.next = index,
            None => aside.first = index,
        }
    }

    /// Moves the entries that were set aside, as if they had been visited.
    #[cold]
    fn put_back(&mut self, aside: List) {
        let mut next = aside.first;
        while let Some(entry) = self.entries.get_mut(next) {
            let index = std::mem::replace(&mut next, entry.next);
            entry.visits = eviction::verdict(entry.visits, true).unwrap_or(entry.visits);
            self.push(index);
        }
    }

    /// Remembers the hash of a new entry that was evicted.
    #[inline]
    pub(super) fn remember(&mut self, hash: Hash) {
        self.ghosts.remember(hash.get(), self.len);
    }

    /// Prefetches what [`remember`](Self::remember) or [`add`](Self::add) will use for a hash.
    #[inline]
    pub(super) fn prefetch_ghost(&mut self, hash: Hash) {
        self.ghosts.prefetch(hash.get());
    }

    /// Prefetches what the next evictions from a queue will use. Goes in steps, so that it never
    /// waits for memory: the node of the third entry, and for the second its ghosts. Returns the
    /// hash of that one, whose bucket the caller prefetches.
    #[inline(always)]
    pub(super) fn prefetch(&mut self, queue: usize) -> Option<Hash> {
        if self.len < MIN_PREFETCHED {
            return None;
        }
        let after = |index: u32| self.entries.get(index).map(|entry| entry.next);
        let second = after(self.lists[queue].first)?;
        if let Some(third) = after(second).and_then(|third| self.entries.get(third)) {
            prefetch_for_write(third.node.as_ptr());
            // The mark is at its end.
            prefetch_for_write(third.node.as_ptr().wrapping_add(1).cast::<u8>().wrapping_sub(1));
        }
        let hash = self.entries.get(second)?.hash;
        self.prefetch_ghost(hash);
        Some(hash)
    }

    /// Takes all entries, in constant time. Forgets all ghosts.
    pub(super) fn take_all(&mut self) -> Taken<N> {
        Taken(std::mem::replace(self, Self { level: self.level, ..Self::new() }).entries.0)
    }

    /// Returns queue, index and priority of the first entry with the lowest priority, apart from
    /// `kept`.
    #[inline(always)]
    fn next(&self, kept: Option<u32>) -> Option<(usize, u32, u32)> {
        let mut left = self.occupied;
        let mut next = None;
        let mut lowest = i32::MAX;
        while left != 0 {
            let queue = left.trailing_zeros() as usize;
            left &= left - 1;
            let mut index = self.lists[queue].first;
            if Some(index) == kept {
                index = self.entries[index].next;
                if index == NONE {
                    continue;
                }
            }
            let priority = self.entries[index].stamp.wrapping_add(eviction::worth_of_entry(queue));
            let distance = priority.wrapping_sub(self.level) as i32;
            if distance < lowest || next.is_none() {
                lowest = distance;
                next = Some((queue, index, priority));
            }
        }
        next
    }

    /// Appends an entry, which is in no queue, to the one for its weight and visits.
    #[inline(always)]
    fn push(&mut self, index: u32) {
        let entry = &mut self.entries[index];
        let queue = eviction::queue_of_entry(usize::try_from(entry.weight).unwrap_or(usize::MAX), entry.visits);
        let list = &mut self.lists[queue];
        let previous = std::mem::replace(&mut list.last, index);
        entry.queue = queue as u8;
        entry.stamp = self.level;
        entry.previous = previous;
        entry.next = NONE;
        match self.entries.get_mut(previous) {
            Some(previous) => previous.next = index,
            None => {
                list.first = index;
                self.occupied |= 1 << queue;
            }
        }
        self.len += 1;
    }

    /// Like [`unlink`](Self::unlink), for the first entry of a queue, in fewer instructions. Writes
    /// to no other entry: the next one keeps this one as its previous entry.
    #[inline(always)]
    fn unlink_first(&mut self, queue: usize, first: u32) {
        let list = &mut self.lists[queue];
        list.first = self.entries[first].next;
        if list.first == NONE {
            list.last = NONE;
            self.occupied &= !(1 << queue);
        }
        self.len -= 1;
    }

    /// Takes an entry out of the queue in which it is.
    fn unlink(&mut self, index: u32) {
        let Entry { queue, previous, next, .. } = self.entries[index];
        let list = &mut self.lists[usize::from(queue)];
        // What the first entry has as its previous one is gone; see `unlink_first`.
        if list.first == index {
            list.first = next;
        } else {
            self.entries[previous].next = next;
        }
        match self.entries.get_mut(next) {
            Some(after) => after.previous = previous,
            None => list.last = if list.first == NONE { NONE } else { previous },
        }
        if list.first == NONE {
            self.occupied &= !(1 << queue);
        }
        self.len -= 1;
    }
}

/// Entries that have left their shard all at once.
pub(super) struct Taken<N>(Vec<Vec<Entry<N>>>);

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
    pub(super) fn pop(&mut self) -> Option<Left<N>> {
        while let Some(entries) = self.0.last_mut() {
            match entries.pop() {
                Some(entry) if entry.queue == UNUSED => {}
                Some(Entry { node, hash, weight, .. }) => return Some(Left { node, hash, weight, visits: 0 }),
                None => _ = self.0.pop(),
            }
        }
        None
    }
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn an_entry_can_leave_after_the_one_before_it() {
        let nodes = [0, 1, 2, 3, 4, 5];
        let mut queues = Queues::new();
        let add = |queues: &mut Queues<i32>, n: usize| queues.add(NonNull::from(&nodes[n]), Hash::new(n as u64), 1, 0);
        let pop_but = |queues: &mut Queues<i32>, kept| {
            let look = |_| Look { is_visited: false, has_expired: false, is_in_use: false };
            // SAFETY: one of the nodes.
            queues.pop(kept, look).ok().map(|popped| unsafe { *popped.left.node.as_ref() })
        };
        let pop = |queues: &mut Queues<i32>| pop_but(queues, None);

        let indices = [0, 1, 2, 3].map(|n| add(&mut queues, n));
        assert_eq!(pop(&mut queues), Some(0));
        queues.remove(indices[1]);
        assert_eq!(pop(&mut queues), Some(2));
        add(&mut queues, 4);
        let kept = Some(indices[3]);
        assert_eq!((pop_but(&mut queues, kept), queues.len), (Some(4), 1));
        assert_eq!((pop_but(&mut queues, kept), queues.len), (None, 1));
        queues.remove(indices[3]);
        assert_eq!((pop(&mut queues), queues.len), (None, 0));
        add(&mut queues, 5);
        assert_eq!((pop(&mut queues), queues.len, queues.entries.0[0].len()), (Some(5), 0, 4));

        [0, 1, 2].into_iter().for_each(|n| _ = add(&mut queues, n));
        let mut taken = queues.take_all();
        assert_eq!((queues.len, pop(&mut queues)), (0, None));
        taken.append(queues.take_all());
        assert_eq!(std::iter::from_fn(|| taken.pop()).count(), 3);
    }

    /// Makes queues of entries of one weight, whose nodes are numbers.
    fn queues(nodes: &[usize], weight: u64, visits: u8) -> Queues<usize> {
        let mut queues = Queues::new();
        nodes.iter().for_each(|node| _ = queues.add(NonNull::from(node), Hash::new(*node as u64), weight, visits));
        queues
    }

    /// Pops an entry. Returns its number, and those of the entries that the eviction looked at.
    fn pop(queues: &mut Queues<usize>, is_in_use: impl Fn(usize) -> bool) -> (Result<usize, NoneToEvict>, Vec<usize>) {
        let looks = RefCell::new(Vec::new());
        // SAFETY: one of the nodes.
        let number = |node: NonNull<usize>| unsafe { *node.as_ref() };
        let popped = queues.pop(None, |node| {
            looks.borrow_mut().push(number(node));
            Look { is_visited: false, has_expired: false, is_in_use: is_in_use(number(node)) }
        });
        (popped.map(|popped| number(popped.left.node)), looks.into_inner())
    }

    #[test]
    fn an_eviction_looks_at_a_bounded_number_of_entries_in_use() {
        const LEN: usize = 4 * MAX_ASIDE;
        let nodes: Vec<_> = (0..LEN).collect();
        let mut queues = queues(&nodes, 1, 0);
        let mut looks: Vec<_> = (0..4)
            .flat_map(|_| {
                let (popped, looks) = pop(&mut queues, |_| true);
                assert_eq!((popped, looks.len(), queues.len), (Err(NoneToEvict::InUse), MAX_ASIDE, LEN));
                looks
            })
            .collect();
        looks.sort_unstable();
        assert_eq!(looks, nodes, "each had its turn");
        // The only one that is not in use is found when its turn comes.
        let pops = (1..).find(|_| pop(&mut queues, |node| node != 1000).0 == Ok(1000));
        assert_eq!((pops, queues.len), (Some(4), LEN - 1));
        // Entries that are no longer in use leave one by one.
        (1..LEN).for_each(|left| assert!(pop(&mut queues, |_| false).0.is_ok() && queues.len == LEN - 1 - left));
        assert_eq!(pop(&mut queues, |_| true), (Err(NoneToEvict::Empty), Vec::new()));
    }

    #[test]
    fn heavy_entries_in_use_do_not_hide_light_ones() {
        let nodes: Vec<_> = (0..20).collect();
        let mut queues = queues(&nodes[..10], 1 << 20, 0);
        // These have 32,768 times the worth of the heavy ones, so their turn comes last.
        nodes[10..].iter().for_each(|node| _ = queues.add(NonNull::from(node), Hash::new(*node as u64), 1, 1));
        for left in (0..10).rev() {
            let (popped, looks) = pop(&mut queues, |node| node < 10);
            assert!(popped.is_ok_and(|node| node >= 10), "{popped:?}");
            assert!(looks.iter().filter(|&&node| node < 10).count() <= 10);
            assert_eq!(queues.len, 10 + left);
        }
        assert_eq!(pop(&mut queues, |_| true).0, Err(NoneToEvict::InUse));
    }
}
