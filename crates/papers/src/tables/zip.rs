//! Unzipping: how the paper's resizers split a bucket's chain (section 4, steps 6 to 8), and how
//! updates avoid conflicts with them (4.1).
//!
//! # Zipped chains
//!
//! A bucket of the smaller table becomes several of the larger one, its *children*. First the
//! children's heads lead into the one existing chain, each to the first node of its child: the
//! chain is *zipped*. Then it is split, beginning at the front. The zipped part begins with a
//! *run*, nodes of one child. A step links its last node to the next node of the same child, past
//! the nodes of others. After that the zipped part begins after the run.
//!
//! ```text
//!   zipped part:      A1  A2  B1  B2  A3  B3          begins with A1; run: A1 A2
//!   one step later:   A1  A2 ---------> A3  B3        A2 leads past B1 and B2
//!                             B1  B2  A3  B3          begins with B1; run: B1 B2
//! ```
//!
//! This step cuts off readers of B that are on A2: they no longer reach B1. So no reader of B may
//! be there:
//!
//! * **Z1** Every child's path into the zipped part leads to the child's first node there (or
//!   nowhere, if it has none).
//! * **Z2** At the time of a step, no reader of another child is on the run.
//!
//! The heads establish Z1, and every step preserves it. It implies that readers of other children
//! do not *enter* the run once it is the first, except from a run before it. They have left when a
//! grace period has passed since the previous step. Hence the wait after each pass over all buckets
//! (step 7).
//!
//! # Updates
//!
//! Insertions put the node before all others of its child, where the chain is already split.
//! Removals are more delicate than section 4.1 says, which only lets them update the beginning of
//! the zipped part:
//!
//! * Two links may lead to a node in the zipped part: that of the node before it there, or the
//!   beginning itself; and, if the node is the first of its child, the link on the child's path.
//!   The second must be set to the *child's* next node to preserve Z1, not to the next node.
//! * If B1 and B2 were removed above, A1 A2 A3 would be a run, and a reader of B could have reached
//!   A3 through B2. That would break Z2 without any step in between. So a removal from the zipped
//!   part *disturbs* it: the next pass skips it, and those readers leave during the wait after that
//!   pass.
//!
//! Each removal shortens the zipped part and nothing lengthens it, so this terminates.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::tables::chain::{Link, Node, links, target};
use crate::tables::locks::Locks;

/// The data that a bucket's lock guards in addition to the chain: whether a removal has disturbed
/// the zipped part since the last pass.
pub(crate) type Disturbed = bool;

/// The children of a bucket whose chain is being split, and the beginning of its zipped part: the
/// paper's *aux* pointer. Used under the bucket's lock.
pub(crate) struct Zipped<'z> {
    /// The link to the beginning of the zipped part. Either readers no longer use it, or it still
    /// leads them to all the nodes that they need.
    beginning: &'z Link,
    /// The number of buckets of the larger table, minus one.
    mask: u64,
}

/// Performs a pass over all buckets of the smaller table, whose zipped parts begin at `beginnings`:
/// a step for each bucket, except where a removal has disturbed the zipped part. Returns false if
/// nothing has changed, because nothing is zipped any more.
///
/// # Safety
///
/// The caller waits for readers before the first pass, and after each pass. The larger table has
/// `buckets` buckets, and Z1 holds. The number of beginnings is a multiple of the number of locks,
/// and lock `i` guards each beginning whose number is `i` modulo the number of locks.
pub(crate) unsafe fn pass(locks: &Locks<Disturbed>, beginnings: &[Link], buckets: usize) -> bool {
    let mut changed = false;
    for stripe in 0..locks.count() {
        let mut disturbed = locks.lock(stripe as u64);
        if std::mem::take(&mut *disturbed) {
            changed = true;
            continue;
        }
        for beginning in beginnings[stripe..].iter().step_by(locks.count()) {
            // SAFETY: this thread holds the lock, and the caller guarantees the rest.
            changed |= unsafe { Zipped::new(beginning, buckets).unzip() };
        }
    }
    changed
}

impl<'z> Zipped<'z> {
    pub(crate) fn new(beginning: &'z Link, buckets: usize) -> Self {
        Self { beginning, mask: buckets as u64 - 1 }
    }

    fn child(&self, node: &Node) -> u64 {
        node.hash & self.mask
    }

    fn first(&self) -> *mut Node {
        // Relaxed: written under the bucket's lock.
        self.beginning.load(Relaxed)
    }

    fn begin_with(&self, node: *mut Node) {
        // Release: pairs with `chain::get`, because readers of the smaller table may still follow
        // this link.
        self.beginning.store(node, Release);
    }

    /// Performs one step. Returns false if there was nothing to split.
    ///
    /// # Safety
    ///
    /// The caller holds the bucket's lock; Z1 and Z2 hold.
    unsafe fn unzip(&self) -> bool {
        // SAFETY: under the lock, nodes in the chain are not freed. This also holds for the blocks
        // below.
        let Some(first) = (unsafe { self.first().as_ref() }) else { return false };
        let child = self.child(first);
        let mut last = first;
        // SAFETY: as above.
        let rest = unsafe { links(&first.next) }.find(|(_, node)| {
            let differs = self.child(node) != child;
            if !differs {
                last = node;
            }
            differs
        });
        let Some((rest, _)) = rest else {
            self.begin_with(null_mut());
            return false;
        };
        self.begin_with(target(rest).as_ptr());
        // SAFETY: as above.
        let next = unsafe { self.next_of(child, &last.next) };
        // Release: pairs with `chain::get`. The next node was published to this thread, but not to
        // readers that follow this link.
        last.next.store(next, Release);
        true
    }

    /// Unlinks the node to which `link`, on its child's path, leads.
    ///
    /// # Safety
    ///
    /// The caller holds the bucket's lock, whose content is `disturbed`; Z1 holds.
    pub(crate) unsafe fn unlink(&self, link: &Link, node: &Node, disturbed: &mut Disturbed) -> NonNull<Node> {
        let unlinked = target(link);
        // Relaxed: links are changed under the lock only.
        let next = node.next.load(Relaxed);
        // SAFETY: under the lock, nodes in the chain are not freed.
        let way =
            unsafe { links(self.beginning) }.find(|(_, zipped)| std::ptr::eq(*zipped, node)).map(|(link, _)| link);
        *disturbed |= way.is_some();
        // Release, here and below: as in `unzip`.
        match way {
            Some(way) if !std::ptr::eq(way, link) => {
                way.store(next, Release);
                // SAFETY: as above.
                let childs_next = unsafe { self.next_of(self.child(node), &node.next) };
                link.store(childs_next, Release);
            }
            // The child's path leads through the previous node; or the chain is split up to here,
            // and no other link leads to the node.
            _ => link.store(next, Release),
        }
        unlinked
    }

    /// Returns the first node of a child from `link` on.
    ///
    /// # Safety
    ///
    /// The caller holds the bucket's lock.
    pub(crate) unsafe fn next_of(&self, child: u64, link: &Link) -> *mut Node {
        // SAFETY: under the lock, nodes in the chain are not freed.
        let found = unsafe { links(link) }.find(|(_, node)| self.child(node) == child);
        found.map_or(null_mut(), |(link, _)| target(link).as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chain that is being split, with a reader on every node that a reader could have reached
    /// since the last wait. The key of a node is its place in the chain, and its hash is its child.
    struct Scene {
        locks: Locks<Disturbed>,
        beginning: Link,
        heads: Vec<Link>,
        nodes: Vec<*mut Node>,
        removed: Vec<bool>,
        /// The child, and the node on which its reader is.
        readers: Vec<(u64, *mut Node)>,
    }

    impl Scene {
        fn new(children: &[u64], buckets: usize) -> Self {
            let nodes: Vec<_> = (0..).zip(children).map(|(place, &child)| Node::new(child, place, 0)).collect();
            let beginning = Link::default();
            nodes.iter().rev().for_each(|&node| push(&beginning, node));
            let zipped = Zipped::new(&beginning, buckets);
            // SAFETY: there is no other thread.
            let heads =
                (0..buckets as u64).map(|child| Link::new(unsafe { zipped.next_of(child, &beginning) })).collect();
            let removed = vec![false; nodes.len()];
            Self { locks: Locks::new(1), beginning, heads, nodes, removed, readers: Vec::new() }
        }

        /// Lets all readers leave, and puts new readers on all nodes that they can reach.
        fn wait(&mut self) {
            self.readers.clear();
            self.enter();
        }

        fn enter(&mut self) {
            for (child, head) in (0..).zip(&self.heads) {
                // SAFETY: nodes live as long as the scene.
                self.readers.extend(unsafe { links(head) }.map(|(link, _)| (child, target(link).as_ptr())));
            }
        }

        fn pass(&mut self) -> bool {
            // SAFETY: there is no other thread.
            let changed = unsafe { pass(&self.locks, std::slice::from_ref(&self.beginning), self.heads.len()) };
            self.check();
            changed
        }

        fn remove(&mut self, place: usize) {
            // SAFETY: nodes live as long as the scene.
            let node = unsafe { &*self.nodes[place] };
            let mut disturbed = self.locks.lock(0);
            // SAFETY: as above.
            let (link, node) =
                unsafe { links(&self.heads[node.hash as usize]) }.find(|(_, its)| its.key == node.key).expect("Z1");
            // SAFETY: this thread holds the lock.
            unsafe { Zipped::new(&self.beginning, self.heads.len()).unlink(link, node, &mut disturbed) };
            drop(disturbed);
            self.removed[place] = true;
            self.check();
        }

        /// Checks that every reader finds the nodes ahead of it, and that new readers find
        /// everything.
        fn check(&mut self) {
            for (child, head) in (0..).zip(&self.heads) {
                assert_eq!(self.found(child, head, None), self.present(child, None));
            }
            for &(child, node) in &self.readers {
                // SAFETY: nodes live as long as the scene.
                let node = unsafe { &*node };
                assert_eq!(self.found(child, &node.next, Some(node.key)), self.present(child, Some(node.key)));
            }
            self.enter();
        }

        fn found(&self, child: u64, from: &Link, after: Option<u64>) -> Vec<u64> {
            // SAFETY: nodes live as long as the scene.
            let own = unsafe { links(from) }.map(|(_, node)| node).filter(|node| node.hash == child);
            own.map(|node| node.key).filter(|&key| Some(key) > after && !self.removed[key as usize]).collect()
        }

        fn present(&self, child: u64, after: Option<u64>) -> Vec<u64> {
            let places = (0..self.nodes.len() as u64).filter(|&place| Some(place) > after);
            // SAFETY: nodes live as long as the scene.
            let is_own = |place: &u64| unsafe { (*self.nodes[*place as usize]).hash } == child;
            places.filter(is_own).filter(|&place| !self.removed[place as usize]).collect()
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            // SAFETY: from boxes, and no longer used.
            self.nodes.iter().for_each(|&node| drop(unsafe { Box::from_raw(node) }));
        }
    }

    fn push(head: &Link, node: *mut Node) {
        // SAFETY: there is no other thread.
        unsafe { crate::tables::chain::push(head, node) };
    }

    /// Splits a chain, with a removal before each of the passes in `removals`.
    fn part(children: &[u64], buckets: usize, mut removals: impl FnMut(&Scene) -> Option<usize>) -> usize {
        let mut scene = Scene::new(children, buckets);
        let mut passes = 0;
        loop {
            scene.wait();
            while let Some(place) = removals(&scene) {
                scene.remove(place);
            }
            if !scene.pass() {
                break;
            }
            passes += 1;
        }
        for (child, head) in (0..).zip(&scene.heads) {
            // SAFETY: nodes live as long as the scene.
            assert!(unsafe { links(head) }.all(|(_, node)| node.hash == child), "precise in the end");
        }
        passes
    }

    #[test]
    fn as_many_passes_as_borders_between_runs() {
        assert_eq!(part(&[0, 0, 1, 1, 0, 1], 2, |_| None), 3);
        assert_eq!(part(&[0, 1, 2, 3, 0, 1, 2, 3], 4, |_| None), 7);
        assert_eq!(part(&[0, 0, 0], 2, |_| None), 0);
        assert_eq!(part(&[], 2, |_| None), 0);
    }

    /// B1 and B2 of the module's example are removed while a reader is on B2.
    #[test]
    fn readers_on_removed_nodes_are_waited_for() {
        let mut goes = vec![3, 2];
        part(&[0, 0, 1, 1, 0, 1], 2, |_| goes.pop());
    }

    #[test]
    fn removals_never_cost_a_reader_its_way() {
        let mut state = 1u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for _ in 0..2000 {
            let buckets = 2 << random(2);
            let length = random(12);
            let children: Vec<u64> = (0..length).map(|_| random(buckets)).collect();
            part(&children, buckets as usize, |scene| {
                let place = random(2 * length + 1) as usize;
                (place < scene.nodes.len() && !scene.removed[place]).then_some(place)
            });
        }
    }
}
