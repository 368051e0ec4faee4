//! A second structure built by the rules of relativistic programming: a sorted list whose items
//! move while others walk it.
//!
//! For example, a firewall checks its rules from the first to the last. Moving a rule to another
//! place takes two writes: one links a copy at the new place, and one unlinks the original. No walk
//! may miss the rule. (A walk in progress may see it twice.) The step that is needed between the
//! two writes depends on their order along a reader's path (Triplett, McKenney and Walpole, USENIX
//! ATC 2011, section 8):
//!
//! * *The second write is at the earlier place:* the item moves towards the tail. A reader that
//!   does not see the original has not reached the copy yet, which was linked before. Publishing it
//!   by a Release store is enough.
//! * *The second write is at the later place:* the item moves towards the head. A reader between
//!   the two has passed the place of the copy before it was there, and would not find the original.
//!   So the writer waits for readers first.
//!
//! The program tries all ways in which a reader can pass the two writes, and then lets threads walk
//! while items move.
//!
//! ```sh
//! cargo run -p relativist-rcu --example ordered_list
//! ```

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{
    AtomicBool, AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use relativist_rcu::{Guard, barrier, defer_raw, is_reading, read, wait_for_readers};

/// Items in the order of their places.
///
/// Walks are wait-free. Updates exclude each other. An update that moves an item towards the head
/// waits for readers while it holds the mutex, so a reader must not update the list.
struct OrderedList<T> {
    head: Link<T>,
    writer: Mutex<()>,
}

type Link<T> = AtomicPtr<Node<T>>;

struct Node<T> {
    place: u64,
    item: T,
    next: Link<T>,
}

impl<T: Clone + Send + Sync + 'static> OrderedList<T> {
    fn new() -> Self {
        Self { head: AtomicPtr::default(), writer: Mutex::new(()) }
    }

    /// Walks from the first to the last. An item that is in the list throughout is seen, wherever
    /// it moves meanwhile.
    fn iter<'g>(&'g self, _guard: &'g Guard) -> Walk<'g, T> {
        Walk { link: &self.head }
    }

    /// Inserts an item, behind others of the same place.
    fn insert(&self, place: u64, item: T) {
        let writer = self.lock();
        self.link(&writer, place, item);
    }

    /// Removes the first equal item. Returns false if there is none.
    fn remove(&self, is_match: impl Fn(&T) -> bool) -> bool {
        let writer = self.lock();
        let found = self.link_to(&writer, |node| is_match(&node.item)).load(Relaxed);
        let Some(node) = NonNull::new(found) else { return false };
        self.unlink(&writer, node);
        true
    }

    /// Moves the first equal item to another place. Returns false if there is none.
    fn move_to(&self, is_match: impl Fn(&T) -> bool, place: u64) -> bool {
        self.move_in_two_writes(&self.lock(), is_match, place, wait_for_readers)
    }

    /// Like `move_to`, but `wait` waits for readers.
    fn move_in_two_writes(
        &self,
        writer: &MutexGuard<'_, ()>,
        is_match: impl Fn(&T) -> bool,
        place: u64,
        wait: impl FnOnce(),
    ) -> bool {
        let found = self.link_to(writer, |node| is_match(&node.item)).load(Relaxed);
        let Some(original) = NonNull::new(found) else { return false };
        // SAFETY: in the list, and this thread holds the mutex.
        let Node { place: before, item, .. } = unsafe { original.as_ref() };
        self.link(writer, place, item.clone());
        if place < *before {
            wait();
        }
        self.unlink(writer, original);
        true
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        assert!(!is_reading(), "the thread that holds the mutex may be waiting for this reader");
        self.writer.lock().expect("no thread panics under the mutex")
    }

    /// Returns the link that leads to the first such node, or the last link.
    fn link_to<'l>(&'l self, _writer: &'l MutexGuard<'_, ()>, is_match: impl Fn(&Node<T>) -> bool) -> &'l Link<T> {
        let mut link = &self.head;
        // Relaxed, here and wherever links are read under the mutex: they are changed under it
        // only.
        // SAFETY: nodes in the list are not retired without the mutex, which the caller holds.
        while let Some(node) = unsafe { link.load(Relaxed).as_ref() } {
            if is_match(node) {
                break;
            }
            link = &node.next;
        }
        link
    }

    fn link(&self, writer: &MutexGuard<'_, ()>, place: u64, item: T) {
        let link = self.link_to(writer, |node| node.place > place);
        let node = Node { place, item, next: AtomicPtr::new(link.load(Relaxed)) };
        // Release: pairs with the Acquire in `Walk::next`: readers see the node and all earlier
        // writes.
        link.store(Box::into_raw(Box::new(node)), Release);
    }

    /// Takes a node out of the list and frees it after a grace period. Readers that have reached it
    /// can continue from it.
    fn unlink(&self, writer: &MutexGuard<'_, ()>, node: NonNull<Node<T>>) {
        let link = self.link_to(writer, |other| std::ptr::eq(other, node.as_ptr()));
        // SAFETY: in the list, and this thread holds the mutex.
        let next = unsafe { node.as_ref() }.next.load(Relaxed);
        // Release: pairs with the Acquire in `Walk::next`: a reader that does not find the original
        // will find the copy further on.
        link.store(next, Release);
        // SAFETY: no link leads to it any more; it came from a box, and `T: Send + 'static` may be
        // dropped on any thread.
        unsafe { defer_raw(node.cast(), size_of::<Node<T>>(), free::<T>) };
    }
}

/// # Safety
///
/// `node` points to a `Node<T>` from `Box::into_raw`, which no thread uses and no other code frees.
unsafe fn free<T>(node: NonNull<()>) {
    // SAFETY: guaranteed by the caller.
    drop(unsafe { Box::from_raw(node.cast::<Node<T>>().as_ptr()) });
}

impl<T> Drop for OrderedList<T> {
    fn drop(&mut self) {
        let mut next = std::mem::replace(self.head.get_mut(), null_mut());
        while !next.is_null() {
            // SAFETY: nodes come from boxes, and walks borrow the list, so none is left.
            next = *unsafe { Box::from_raw(next) }.next.get_mut();
        }
    }
}

/// A walk of a reader.
struct Walk<'g, T> {
    link: &'g Link<T>,
}

impl<'g, T> Iterator for Walk<'g, T> {
    type Item = (u64, &'g T);

    fn next(&mut self) -> Option<Self::Item> {
        // Acquire: pairs with the Release in `link` and `unlink`.
        // SAFETY: nodes are freed a grace period after they were unlinked, and the guard that lives
        // for `'g` was taken before.
        let node = unsafe { self.link.load(Acquire).as_ref() }?;
        self.link = &node.next;
        Some((node.place, &node.item))
    }
}

/// Tries all ways in which a reader can interleave with the two writes that move the item at `from`
/// to `to`: some of its steps come before the first write, some between the two, and the rest after
/// the second. Returns the number of ways, and the number of those in which the reader misses the
/// item. With `waits`, the writer waits for the end of the reader before the second write.
fn ways(from: u64, to: u64, waits: bool) -> (usize, usize) {
    const LENGTH: usize = 8;
    let (mut all, mut missed) = (0, 0);
    for before in 0..=LENGTH {
        for between in 0..=LENGTH {
            let list = OrderedList::new();
            (0..LENGTH as u64).for_each(|place| list.insert(10 * place, place));
            let writer = list.lock();
            let guard = read();
            let mut walk = list.iter(&guard);
            let mut seen: Vec<u64> = walk.by_ref().take(before).map(|(_, item)| *item).collect();
            let steps = if waits { usize::MAX } else { between };
            let pass = || seen.extend(walk.by_ref().take(steps).map(|(_, item)| *item));
            assert!(list.move_in_two_writes(&writer, |item| *item == from, 10 * to + 5, pass));
            seen.extend(walk.map(|(_, item)| *item));
            all += 1;
            missed += usize::from(!seen.contains(&from));
            assert!((0..LENGTH as u64).all(|item| item == from || seen.contains(&item)), "the others stay");
        }
    }
    (all, missed)
}

/// Two threads walk, and one inserts and removes, while items are moved.
fn walk_while_items_move() {
    const ITEMS: u64 = 16;
    const MOVES: u64 = 2000;
    let list = OrderedList::new();
    let alive = Arc::new(());
    (0..ITEMS).for_each(|number| list.insert(10 * number, (number, Arc::clone(&alive))));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // Relaxed: the flag orders nothing.
                while !done.load(Relaxed) {
                    let guard = read();
                    let walk: Vec<_> = list.iter(&guard).map(|(place, (number, _))| (place, *number)).collect();
                    assert!(walk.is_sorted_by_key(|(place, _)| *place), "{walk:?}");
                    assert!((0..ITEMS).all(|item| walk.iter().any(|(_, number)| *number == item)), "{walk:?}");
                }
            });
        }
        scope.spawn(|| {
            for n in 0..MOVES {
                list.insert(n % 200, (ITEMS + n, Arc::clone(&alive)));
                assert!(list.remove(|(number, _)| *number == ITEMS + n));
            }
        });
        for n in 0..MOVES {
            assert!(list.move_to(|(number, _)| *number == n % ITEMS, n * 37 % 200));
        }
        // Relaxed: as above.
        done.store(true, Relaxed);
    });
    barrier();
    assert_eq!(Arc::strong_count(&alive) as u64, ITEMS + 1, "copies and what was removed have been freed");
}

fn main() {
    let (all, missed) = ways(2, 5, false);
    println!("towards the tail, published: missed in {missed} of {all} ways");
    assert_eq!(missed, 0);
    let (all, missed) = ways(5, 2, false);
    println!("towards the head, published: missed in {missed} of {all} ways");
    assert!(missed > 0, "this is what the wait is for");
    let (all, missed) = ways(5, 2, true);
    println!("towards the head, waiting for readers: missed in {missed} of {all} ways");
    assert_eq!(missed, 0);
    walk_while_items_move();
    println!("no walk has missed an item while threads moved them");
}
