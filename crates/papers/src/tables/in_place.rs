//! The paper's table, resized in place (USENIX ATC 2011, section 4.2).
//!
//! The bucket array grows and shrinks without moving: its address range is reserved once, for as
//! many buckets as there can ever be, and pages are committed and released. Readers take a snapshot
//! of the number of buckets. The new array is never private to the resizer: the buckets that the
//! smaller and the larger table have in common (a prefix) are the same words. So there are more
//! waits:
//!
//! * *Shrink*: link the ends of the chains that become one to the beginning of the next; wait for
//!   readers; set the smaller size; wait for readers; release the rest. This is one wait more than
//!   in [`unzip`](super::unzip).
//! * *Expand*: commit; lead each new bucket to the first of its entries; wait for readers; set the
//!   larger size; wait for readers; then unzip as `zip.rs` explains. This is one more wait, and at
//!   most one more pass: a bucket of the prefix still leads to the first entry of the old chain,
//!   which may belong to another bucket. The resizer corrects its head before the passes, which
//!   counts as a step.
//!
//! (The first wait of each is the paper's. It orders nothing here, because the number of buckets is
//! read with an acquiring load: a thread that sees the new number sees the chains that were made
//! for it.)
//!
//! The old heads do not show where the zipped parts begin, so this takes auxiliary storage as large
//! as the smaller table.
//!
//! *Progress*: lookups are wait-free. Updates take the lock of their bucket. A resizer holds all
//! locks until the new size is published, and waits for readers meanwhile (resizes of
//! [`unzip`](super::unzip) do not). So updates wait for readers, and are not possible in a read
//! section.
//!
//! *A lookup costs* a read section, a load for the number of buckets, one for the head, and one per
//! entry: one dependent load fewer than in [`unzip`](super::unzip), because the array is always at
//! the same address.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crossbeam_utils::CachePadded;
use relativist_rcu::{is_reading, read};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};

use crate::tables::chain::{self, Link, Node, links, target};
use crate::tables::locks::Locks;
use crate::tables::rcu::Rcu;
use crate::tables::resizer::Resizer;
use crate::tables::zip::{Disturbed, Zipped, pass};
use crate::tables::{Costs, Resize, Table, TableHasher};

/// The paper's table with an array that does not move.
#[derive(Debug)]
pub struct InPlace<H> {
    region: Region,
    buckets: AtomicUsize,
    /// While the table is expanded: the beginnings of zipped parts.
    zipped: Rcu<Box<[Link]>>,
    hasher: H,
    locks: Locks<Disturbed>,
    resizer: CachePadded<Resizer>,
}

impl<H> InPlace<H> {
    /// The maximum number of buckets.
    pub const MAX_BUCKETS: usize = 1 << 30;

    /// Returns the head of the bucket of `hash`.
    #[inline(always)]
    fn head(&self, hash: u64) -> &Link {
        // Acquire: pairs with the Release in `set_buckets`, so that this thread sees the contents
        // of the buckets.
        let buckets = self.buckets.load(Acquire);
        // SAFETY: pages below the size are committed before it is set, and released only after
        // threads that saw a larger size have left their read section, or while they cannot hold
        // the lock.
        unsafe { self.region.link(hash as usize & (buckets - 1)) }
    }

    /// Returns the current memory of the buckets.
    pub fn memory(&self) -> *const [u8] {
        let bytes = self.buckets.load(Acquire) * size_of::<Link>();
        std::ptr::slice_from_raw_parts(self.region.links.as_ptr().cast(), bytes)
    }

    fn set_buckets(&self, buckets: usize) {
        // Release: pairs with the Acquire in `head`.
        self.buckets.store(buckets, Release);
    }

    fn assert_may_wait() {
        assert!(!is_reading(), "updates wait for resizes, and these for readers: drop the Guard of this thread first");
    }
}

impl<H: TableHasher> Table for InPlace<H> {
    const NAME: &'static str = "RP, in place";

    fn with_buckets(buckets: usize) -> Self {
        let (locks, region) = (Locks::new(buckets), Region::reserve(Self::MAX_BUCKETS));
        Self {
            resizer: Resizer::with_bytes(region.resize(0, buckets)).into(),
            region,
            buckets: buckets.into(),
            zipped: Rcu::none(),
            hasher: H::default(),
            locks,
        }
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        let guard = read();
        // SAFETY: nodes are retired by RCU.
        unsafe { chain::get(self.head(self.hasher.hash_one(key)), key, &guard) }
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        Self::assert_may_wait();
        let hash = self.hasher.hash_one(key);
        let _lock = self.locks.lock(hash);
        // SAFETY: the lock is that of the chain.
        unsafe { chain::insert(self.head(hash), hash, key, value) }
    }

    fn remove(&self, key: u64) -> Option<u64> {
        Self::assert_may_wait();
        let hash = self.hasher.hash_one(key);
        let node = {
            let mut disturbed = self.locks.lock(hash);
            let guard = read();
            // SAFETY: the lock is that of the chain.
            let (link, node) = unsafe { links(self.head(hash)) }.find(|(_, node)| node.key == key)?;
            match self.zipped.try_get(&guard) {
                Some(zipped) => {
                    let beginning = &zipped[hash as usize & (zipped.len() - 1)];
                    // Relaxed: set while all locks are held.
                    let buckets = self.buckets.load(Relaxed);
                    // SAFETY: the lock is that of the chain, and Z1 holds whenever it is free.
                    unsafe { Zipped::new(beginning, buckets).unlink(link, node, &mut disturbed) }
                }
                // SAFETY: the lock is that of the chain. Chains share no nodes.
                None => unsafe { chain::unlink(link, node) },
            }
        };
        // SAFETY: unlinked above.
        Some(unsafe { Node::retire(node) })
    }
}

impl<H: TableHasher> Resize for InPlace<H> {
    fn resize_to(&self, buckets: usize) {
        self.locks.assert_enough(buckets);
        assert!(buckets <= Self::MAX_BUCKETS, "no address range was reserved for {buckets} buckets");
        let _resizing = self.resizer.lock();
        match self.buckets() {
            now if buckets < now => self.shrink(now, buckets),
            now if buckets > now => self.expand(now, buckets),
            _ => {}
        }
    }

    fn buckets(&self) -> usize {
        self.buckets.load(Acquire)
    }

    fn costs(&self) -> Costs {
        self.resizer.costs()
    }
}

impl<H> InPlace<H> {
    fn shrink(&self, now: usize, buckets: usize) {
        let all = self.locks.lock_all();
        for bucket in 0..buckets {
            // SAFETY: all these buckets are committed.
            let mut tail = unsafe { self.region.link(bucket) };
            for joined in (bucket..now).step_by(buckets) {
                // SAFETY: as above.
                let joined = unsafe { self.region.link(joined) };
                // SAFETY: this thread holds all locks.
                for (link, node) in unsafe { links(joined) } {
                    if std::ptr::eq(link, joined) && !std::ptr::eq(joined, tail) {
                        // Release: pairs with `chain::get`, where readers of the previous chain
                        // continue into this one.
                        tail.store(target(joined).as_ptr(), Release);
                    }
                    tail = &node.next;
                }
            }
        }
        // After this all readers see joined chains.
        self.resizer.wait_for_readers();
        self.set_buckets(buckets);
        drop(all);
        // After this no reader uses the buckets that are released.
        self.resizer.wait_for_readers();
        self.resizer.subtract_bytes(self.region.resize(now, buckets));
    }

    fn expand(&self, now: usize, buckets: usize) {
        self.resizer.add_bytes(self.region.resize(now, buckets));
        let zipped: Box<[Link]> = (0..now).map(|_| Link::default()).collect();
        let aux = size_of_val(&*zipped);
        self.resizer.add_bytes(aux);
        let mut all = self.locks.lock_all();
        for bucket in now..buckets {
            // SAFETY: committed above, or before.
            let (old, new) = unsafe { (self.region.link(bucket & (now - 1)), self.region.link(bucket)) };
            // SAFETY: this thread holds all locks.
            let first = unsafe { Zipped::new(old, buckets).next_of(bucket as u64, old) };
            // Release: pairs with `chain::get`. (The Release that sets the size would suffice.)
            new.store(first, Release);
        }
        self.resizer.wait_for_readers();
        self.set_buckets(buckets);
        // After this no reader enters by a bucket of the prefix to look for an entry of another
        // one.
        self.resizer.wait_for_readers();
        for (bucket, beginning) in zipped.iter().enumerate() {
            // SAFETY: committed.
            let head = unsafe { self.region.link(bucket) };
            let first = head.load(Relaxed);
            beginning.store(first, Relaxed);
            // SAFETY: this thread holds all locks.
            let own = unsafe { Zipped::new(head, buckets).next_of(bucket as u64, head) };
            if own != first {
                // Establishes Z1. Release: as in `Zipped`. Readers of the bucket may still be on a
                // run of another one (Z2).
                head.store(own, Release);
                let stripe = bucket & (all.len() - 1);
                *all[stripe] = true;
            }
        }
        let zipped = Box::into_raw(Box::new(zipped));
        // SAFETY: retired below.
        unsafe { self.zipped.set(zipped) };
        drop(all);
        // SAFETY: only this thread frees it. The heads satisfy Z1, Z2 holds except where marked as
        // disturbed, and this thread waits between passes.
        while unsafe { pass(&self.locks, &*zipped, buckets) } {
            // Readers that were on a run when it was the second must leave before its end is
            // changed (Z2).
            self.resizer.wait_for_readers();
        }
        // SAFETY: the old value is retired below.
        unsafe { self.zipped.set(null_mut()) };
        self.resizer.subtract_bytes(aux);
        // SAFETY: it came from a box and has been replaced. Updates in read sections may still use
        // it.
        unsafe { Rcu::retire(zipped) };
    }
}

impl<H> Drop for InPlace<H> {
    fn drop(&mut self) {
        for bucket in 0..*self.buckets.get_mut() {
            // SAFETY: committed, no other thread uses the table, and outside of resizes chains
            // share no nodes.
            unsafe { chain::free(self.region.link(bucket)) };
        }
    }
}

/// A reserved range of addresses, whose first part is committed memory.
#[derive(Debug)]
struct Region {
    links: NonNull<Link>,
    capacity: usize,
}

// SAFETY: it owns the memory, and links may be used by any thread.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn reserve(capacity: usize) -> Self {
        let size = capacity * size_of::<Link>();
        // SAFETY: a new mapping at an address that the kernel chooses does not affect other memory.
        let range =
            unsafe { mmap_anonymous(null_mut(), size, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE) };
        let range = range.expect("a range of addresses could not be reserved");
        Self { links: NonNull::new(range.cast()).expect("a mapping is not at null"), capacity }
    }

    /// # Safety
    ///
    /// The link is committed, and stays so as long as the reference lives.
    #[inline(always)]
    unsafe fn link(&self, index: usize) -> &Link {
        // SAFETY: guaranteed by the caller. Committed memory was zero at first, and a link of zeros
        // is null.
        unsafe { self.links.add(index).as_ref() }
    }

    /// Commits or releases the pages between `from` and `to` links, and returns their size in
    /// bytes. New links are null.
    fn resize(&self, from: usize, to: usize) -> usize {
        let page = rustix::param::page_size();
        let [from, to] = [from, to].map(|links| (links * size_of::<Link>()).next_multiple_of(page));
        let (start, length) = (from.min(to), from.abs_diff(to));
        // SAFETY: within the range.
        let part: *mut c_void = unsafe { self.links.byte_add(start) }.as_ptr().cast();
        if to > from {
            // SAFETY: a part of this mapping that was not in use.
            unsafe { mprotect(part, length, MprotectFlags::READ | MprotectFlags::WRITE) }.expect("no memory");
        } else if to < from {
            // SAFETY: a part of this mapping that no thread uses any more. It is private and
            // anonymous, so it will be zero when it is committed again.
            unsafe { madvise(part, length, Advice::LinuxDontNeed) }.expect("a valid range");
            // SAFETY: the same part.
            unsafe { mprotect(part, length, MprotectFlags::empty()) }.expect("a valid range");
        }
        length
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `reserve`; no thread uses it any more.
        let unmapped = unsafe { munmap(self.links.as_ptr().cast(), self.capacity * size_of::<Link>()) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;
    use std::thread;

    use relativist_rcu::{Guard, barrier, grace_periods};
    use relativist_testing::{alone, patience, wait_until};

    use super::*;

    type Tested = InPlace<BuildHasherDefault<DefaultHasher>>;

    /// `FEW` buckets take less than a page, and `MANY` so many pages that a shrink to `FEW`
    /// releases some.
    const FEW: usize = 4;
    const MANY: usize = 1 << 12;

    /// Returns a key that is in this bucket if the table has `MANY` buckets.
    fn key_of(table: &Tested, bucket: u64) -> u64 {
        (0..).find(|&key| table.hasher.hash_one(key) % MANY as u64 == bucket).expect("each bucket has keys")
    }

    /// Runs `look` in a section that begins during the first wait of a resize, so that only the
    /// second wait is for it. `look` must call the function that it gets. That function ends the
    /// first wait, and returns once the resizer waits for the section of `look`, or has ended the
    /// resize.
    ///
    /// Counts the grace periods of the process, which must not use RCU otherwise.
    fn look_after_first_wait<R>(table: &Tested, buckets: usize, look: impl FnOnce(&Guard, &dyn Fn()) -> R + Send) -> R
    where
        R: Send,
    {
        // After this the worker is idle, and only the resizer begins grace periods.
        barrier();
        let resized = &AtomicBool::new(false);
        let earlier = read();
        let begun = grace_periods();
        thread::scope(|scope| {
            scope.spawn(|| {
                table.resize_to(buckets);
                // Release: pairs with the Acquire below.
                resized.store(true, Release);
            });
            wait_until("the first grace period", || grace_periods() > begun);
            let (first_look, looked) = mpsc::channel();
            let reader = scope.spawn(move || {
                look(&read(), &|| {
                    first_look.send(()).expect("the channel is open");
                    // Acquire: pairs with the Release above.
                    wait_until("the second grace period", || grace_periods() > begun + 1 || resized.load(Acquire));
                })
            });
            looked.recv_timeout(patience()).expect("the reader looks at the table");
            drop(earlier);
            reader.join().expect("the reader does not panic")
        })
    }

    #[test]
    fn buckets_are_released_when_their_readers_have_left() {
        alone(|| {
            let table = Tested::with_buckets(FEW);
            table.resize_to(MANY);
            let last = MANY as u64 - 1;
            let is_empty = look_after_first_wait(&table, FEW, |_, second_wait_begins| {
                let head = table.head(last);
                second_wait_begins();
                head.load(Acquire).is_null()
            });
            assert!(is_empty);
        });
    }

    #[test]
    fn buckets_lead_to_all_entries_until_their_readers_have_left() {
        alone(|| {
            let table = Tested::with_buckets(FEW);
            // The second key is before the first in the chain of bucket 0, but will belong to
            // another bucket.
            let keys = [0, FEW as u64].map(|bucket| key_of(&table, bucket));
            keys.iter().for_each(|&key| assert!(table.insert(key, !key)));
            let found = look_after_first_wait(&table, MANY, |guard, second_wait_begins| {
                let head = table.head(table.hasher.hash_one(keys[1]));
                second_wait_begins();
                // SAFETY: nodes are retired by RCU.
                unsafe { chain::get(head, keys[1], guard) }
            });
            assert_eq!(found, Some(!keys[1]));
            assert_eq!(keys.map(|key| table.get(key)), keys.map(|key| Some(!key)));
        });
    }
}
