//! The queues of a shard: which entry to evict next. The policy is that of
//! [`eviction`](relativist_core::eviction), applied to single entries instead of blocks, with
//! [`ghosts`].
//!
//! A queue is a doubly linked list through the [`Slot`]s of its entries, so an entry that is
//! removed leaves it at once, and queueing allocates nothing.
//!
//! [`ghosts`]: super::ghosts

use std::ptr::NonNull;

use super::ghosts::Ghosts;
use super::node::{Place, Slot};
use relativist_core::eviction;

/// The maximum number of visited entries that an eviction moves. After that it evicts the next one,
/// visited or not, so that its cost is bounded.
const MAX_MOVES: usize = 256;

/// The queues of a shard. All of its entries are those of one cache, whose hashes belong to the
/// shard.
pub(super) struct Queues {
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

#[derive(Clone, Copy, Default)]
struct List {
    first: Option<NonNull<Slot>>,
    last: Option<NonNull<Slot>>,
}

// SAFETY: the pointers are to slots, which may be used on any thread under the lock of the shard.
unsafe impl Send for Queues {}

const _: () = assert!(eviction::QUEUES <= u64::BITS as usize);

impl Queues {
    pub(super) fn new() -> Self {
        Self { lists: [List::default(); eviction::QUEUES], occupied: 0, level: 0, len: 0, ghosts: Ghosts::default() }
    }

    /// Queues an entry that has just come into the table. It begins on probation, unless its hash is
    /// that of a ghost, or `visits` says that it has replaced an entry with that many.
    ///
    /// # Safety
    ///
    /// The entry belongs to this shard, is in no queue, and stays alive until it was taken out of
    /// its queue.
    #[inline(always)]
    pub(super) unsafe fn admit(&mut self, slot: NonNull<Slot>, visits: u8) {
        // SAFETY: alive, and under the lock of its shard; the references end before `push`.
        let (entry, place) = unsafe { (slot.as_ref(), slot.as_ref().place()) };
        let was_ghost = self.ghosts.forget(entry.hash.get());
        *place.visits = visits.max(u8::from(was_ghost));
        self.push(slot);
    }

    /// Takes the entry to evict next out of its queue. Moves entries that were visited. Entries for
    /// which `is_expired` returns true are evicted as soon as they are reached. Leaves `kept` where
    /// it is.
    #[inline(always)]
    pub(super) fn pop(
        &mut self,
        kept: Option<NonNull<Slot>>,
        is_expired: impl Fn(NonNull<Slot>) -> bool,
    ) -> Option<Popped> {
        for moves in 0.. {
            let Next { queue, slot, priority } = self.next(kept)?;
            if self.lists[queue].first == Some(slot) {
                self.take_first(queue, slot);
            } else {
                self.take_out(slot);
            }
            self.level = priority;
            let expired = is_expired(slot);
            // SAFETY: entries in queues are alive, and this is under the lock of their shard. The
            // references end before `push`.
            let (place, visited) = unsafe { (slot.as_ref().place(), slot.as_ref().take_visit()) };
            let visits = eviction::verdict(*place.visits, visited);
            match visits.filter(|_| !expired && moves < MAX_MOVES) {
                Some(visits) => {
                    *place.visits = visits;
                    self.push(slot);
                }
                None => return Some(Popped { slot, expired, queue }),
            }
        }
        None
    }

    /// Returns the number of entries in the queues.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Remembers the hash of a new entry that was evicted.
    #[inline]
    pub(super) fn remember(&mut self, hash: u64) {
        self.ghosts.remember(hash, self.len);
    }

    /// Prefetches what [`remember`](Self::remember) or [`admit`](Self::admit) will use for a hash.
    #[inline]
    pub(super) fn prefetch_ghost(&mut self, hash: u64) {
        self.ghosts.prefetch(hash);
    }

    /// Returns the next entries of a queue, in the order in which it will evict them.
    #[inline]
    pub(super) fn upcoming<const N: usize>(&self, queue: usize) -> [Option<NonNull<Slot>>; N] {
        let mut next = self.lists[queue].first;
        std::array::from_fn(|_| {
            let slot = next?;
            // SAFETY: entries in queues are alive, and this is under the lock of their shard.
            next = *unsafe { slot.as_ref().place() }.next;
            Some(slot)
        })
    }

    /// Returns the first entry with the lowest priority, apart from `kept`.
    #[inline(always)]
    fn next(&self, kept: Option<NonNull<Slot>>) -> Option<Next> {
        let mut left = self.occupied;
        let mut next = None;
        let mut lowest = i32::MAX;
        while left != 0 {
            let queue = left.trailing_zeros() as usize;
            left &= left - 1;
            let mut slot = self.lists[queue].first.expect("its bit is set");
            if Some(slot) == kept {
                // SAFETY: entries in queues are alive, and this is under the lock of their shard.
                let Some(second) = *unsafe { slot.as_ref().place() }.next else { continue };
                slot = second;
            }
            // SAFETY: as above.
            let stamp = *unsafe { slot.as_ref().place() }.stamp;
            let priority = stamp.wrapping_add(eviction::worth_of_entry(queue));
            let distance = priority.wrapping_sub(self.level) as i32;
            if distance < lowest || next.is_none() {
                lowest = distance;
                next = Some(Next { queue, slot, priority });
            }
        }
        next
    }

    /// Appends an entry, which is alive and in no queue, to the one for its weight and visits.
    #[inline(always)]
    fn push(&mut self, slot: NonNull<Slot>) {
        // SAFETY: alive, and under the lock of its shard.
        let (entry, place) = unsafe { (slot.as_ref(), slot.as_ref().place()) };
        let queue = eviction::queue_of_entry(usize::try_from(entry.weight).unwrap_or(usize::MAX), *place.visits);
        let list = &mut self.lists[queue];
        let previous = list.last.replace(slot);
        *place.queue = queue as u8;
        *place.stamp = self.level;
        *place.previous = previous;
        *place.next = None;
        match previous {
            // SAFETY: another entry of the queue, so alive and under the same lock.
            Some(previous) => *unsafe { previous.as_ref().place() }.next = Some(slot),
            None => {
                list.first = Some(slot);
                self.occupied |= 1 << queue;
            }
        }
        self.len += 1;
    }

    /// Like [`take_out`](Self::take_out), for the first entry of a queue, in fewer instructions.
    /// Writes to no other entry: the next one keeps a pointer to this one as its previous entry.
    #[inline(always)]
    fn take_first(&mut self, queue: usize, first: NonNull<Slot>) {
        let list = &mut self.lists[queue];
        // SAFETY: entries in queues are alive, and this is under the lock of their shard.
        list.first = *unsafe { first.as_ref().place() }.next;
        if list.first.is_none() {
            list.last = None;
            self.occupied &= !(1 << queue);
        }
        self.len -= 1;
    }

    /// Takes an entry out of the queue in which it is. Returns its visits.
    pub(super) fn take_out(&mut self, slot: NonNull<Slot>) -> u8 {
        let (queue, previous, next, visits) = {
            // SAFETY: entries in queues are alive, and this is under the lock of their shard.
            let Place { queue, previous, next, visits, .. } = unsafe { slot.as_ref().place() };
            (*queue, *previous, *next, *visits)
        };
        let list = &mut self.lists[usize::from(queue)];
        // What the first entry has as its previous one is gone; see `take_first`.
        let previous = previous.filter(|_| list.first != Some(slot));
        match previous {
            // SAFETY: another entry of the queue.
            Some(previous) => *unsafe { previous.as_ref().place() }.next = next,
            None => list.first = next,
        }
        match next {
            // SAFETY: another entry of the queue.
            Some(next) => *unsafe { next.as_ref().place() }.previous = previous,
            None => list.last = previous,
        }
        if list.first.is_none() {
            self.occupied &= !(1 << queue);
        }
        self.len -= 1;
        visits
    }

    /// Takes all entries out of their queues, in constant time, and returns them as a chain. Forgets
    /// all ghosts.
    pub(super) fn take_all(&mut self) -> Chain {
        let mut chain = Chain::default();
        for list in &mut self.lists {
            if let List { first: Some(first), last: Some(last) } = std::mem::take(list) {
                // SAFETY: entries in queues were alive, and this is under the lock of their shard.
                unsafe { chain.append(first, last) };
            }
        }
        self.occupied = 0;
        self.len = 0;
        self.ghosts.clear();
        chain
    }
}

/// Entries that have left the table, in the order in which they were added, linked by their slots.
#[derive(Default)]
pub(super) struct Chain(List);

// SAFETY: the pointers are to slots, which may be used on any thread under the lock of the shard.
unsafe impl Send for Chain {}

impl Chain {
    /// Appends entries that are linked from the first to the last one.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of their shard. They are alive, in no queue, and freed only after
    /// they were taken out of this chain.
    pub(super) unsafe fn append(&mut self, first: NonNull<Slot>, last: NonNull<Slot>) {
        // SAFETY: alive, and under the lock of the shard.
        unsafe {
            *last.as_ref().place().next = None;
            match self.0.last.replace(last) {
                Some(previous) => *previous.as_ref().place().next = Some(first),
                None => self.0.first = Some(first),
            }
        }
    }

    /// Appends all entries of another chain.
    pub(super) fn append_all(&mut self, other: Self) {
        if let List { first: Some(first), last: Some(last) } = other.0 {
            // SAFETY: the caller of `append` has promised it for the other chain.
            unsafe { self.append(first, last) };
        }
    }

    /// Returns the first entry.
    pub(super) fn first(&self) -> Option<NonNull<Slot>> {
        self.0.first
    }

    /// Takes the first entry out.
    pub(super) fn pop(&mut self) -> Option<NonNull<Slot>> {
        let first = self.0.first?;
        // SAFETY: alive, and under the lock of the shard.
        self.0.first = *unsafe { first.as_ref().place() }.next;
        if self.0.first.is_none() {
            self.0.last = None;
        }
        Some(first)
    }
}

/// The entry to evict or move next, its queue, and its priority.
struct Next {
    queue: usize,
    slot: NonNull<Slot>,
    priority: u32,
}

/// An entry that was taken out of its queue to be evicted.
pub(super) struct Popped {
    pub(super) slot: NonNull<Slot>,
    pub(super) expired: bool,
    /// The queue from which it was taken.
    pub(super) queue: usize,
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use relativist_bucket::Hash;

    use super::*;

    #[test]
    fn an_entry_can_leave_after_the_one_before_it() {
        let slots = [(); 6].map(|()| Slot::new(Hash::new(0), 1));
        let [first, second, third, fourth, fifth, sixth] = slots.each_ref().map(NonNull::from);
        let mut queues = Queues::new();
        // SAFETY: alive until the end of this test, and in these queues only.
        let admit = |queues: &mut Queues, slot| unsafe { queues.admit(slot, 0) };
        let unlink = |queues: &mut Queues, slot| _ = queues.take_out(slot);
        let pop_but = |queues: &mut Queues, kept| queues.pop(kept, |_| false).map(|popped| popped.slot);
        let pop = |queues: &mut Queues| pop_but(queues, None);

        [first, second, third, fourth].into_iter().for_each(|slot| admit(&mut queues, slot));
        assert_eq!(pop(&mut queues), Some(first));
        unlink(&mut queues, second);
        assert_eq!(pop(&mut queues), Some(third));
        admit(&mut queues, fifth);
        assert_eq!((pop_but(&mut queues, Some(fourth)), queues.len()), (Some(fifth), 1));
        assert_eq!((pop_but(&mut queues, Some(fourth)), queues.len()), (None, 1));
        unlink(&mut queues, fourth);
        assert_eq!((pop(&mut queues), queues.len()), (None, 0));
        admit(&mut queues, sixth);
        assert_eq!((pop(&mut queues), queues.len()), (Some(sixth), 0));

        [first, second].into_iter().for_each(|slot| admit(&mut queues, slot));
        let mut taken = queues.take_all();
        assert_eq!((queues.len(), pop(&mut queues)), (0, None));
        // SAFETY: as above, and in no queue.
        unsafe { taken.append(third, third) };
        assert_eq!([(); 4].map(|()| taken.pop()), [Some(first), Some(second), Some(third), None]);
    }
}
