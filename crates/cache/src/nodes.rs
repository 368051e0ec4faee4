//! The entries of a cache by key: a table of nodes, hashed by the cache's hasher. The loads in
//! progress are kept in another one.

use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::ptr::NonNull;

use equivalent::Equivalent;
use relativist_rcu::Guard;
use relativist_table::node::Node;
use relativist_table::{self as table, Entry, Link, Policy, Resizing, Table};

/// A table of nodes. Reclaims none that it unlinks, unless a method says so.
pub(crate) struct Nodes<K, V, S> {
    pub(crate) table: Table,
    pub(crate) hasher: S,
    _owns: PhantomData<Owned<K, V>>,
}

/// The keys and values that the table owns. The function type makes it invariant in their types,
/// because they are inserted through a shared reference. It does not affect `UnwindSafe`.
type Owned<K, V> = (K, V, fn(K, V) -> (K, V));

// SAFETY: the table owns its keys and values, returns shared references to them on any thread that
// has a `&Nodes`, and moves them in and out on any thread. This is sound for types that are `Send +
// Sync`.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Send> Send for Nodes<K, V, S> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Sync> Sync for Nodes<K, V, S> {}

/// The result for a new entry: its node, or the node that has the key and the entry.
pub(crate) type PutNew<'g, K, V> = Result<&'g Node<K, V>, (&'g Node<K, V>, (K, V))>;

impl<K, V, S> Nodes<K, V, S> {
    /// Creates a table with buckets for this many entries.
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated.
    pub(crate) fn new(entries: usize, hasher: S) -> Self {
        let policy = Policy::from(Resizing::Automatic);
        let table = Table::new(policy.buckets_for(entries), policy, Node::<K, V>::dispose);
        Self { table: table.unwrap_or_else(|error| panic!("{error}")), hasher, _owns: PhantomData }
    }

    /// # Safety
    ///
    /// `link` was found in this table, and the guard or lock that keeps it alive lasts for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn node<'a>(&self, link: NonNull<Link>) -> &'a Node<K, V> {
        // SAFETY: all links in the table are in nodes of this type.
        unsafe { Node::of(link) }
    }

    /// Returns a function that recognizes the link of this key.
    #[inline(always)]
    pub(crate) fn has_key<Q: Equivalent<K> + ?Sized>(&self, key: &Q) -> impl Fn(NonNull<Link>) -> bool {
        // SAFETY: the table calls this with links of its own, in a read section or under their
        // lock.
        move |link| key.equivalent(&unsafe { self.node(link) }.key)
    }

    #[inline(always)]
    pub(crate) fn find_hashed<'g, Q>(&'g self, hash: table::Hash, key: &Q, guard: &'g Guard) -> Option<&'g Node<K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let link = self.table.find(hash, self.has_key(key), guard)?;
        // SAFETY: found under the guard. A node that is removed stays alive as long as the guard,
        // and any other node as long as the table.
        Some(unsafe { self.node(link) })
    }

    /// Inserts an entry if its key is not in the table. Otherwise returns the node that has the
    /// key, and the entry.
    pub(crate) fn put_new<'g>(&'g self, hash: table::Hash, (key, value): (K, V), guard: &'g Guard) -> PutNew<'g, K, V>
    where
        K: Eq + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let node = Node::new(hash, key, value);
        match self.table.entry(hash, self.has_key(&node.key), guard) {
            Entry::Vacant(entry) => {
                let link = node.into_link();
                // SAFETY: a node of this table's type that no box owns any more: freed a grace
                // period after it is unlinked, or with the table, on any thread. The guard keeps it
                // alive for `'g`, even if another thread removes it.
                unsafe {
                    entry.insert(link);
                    Ok(self.node(link))
                }
            }
            // SAFETY: found under the guard.
            Entry::Occupied(entry) => Err((unsafe { self.node(entry.get()) }, node.into_parts())),
        }
    }

    /// Removes exactly this node, and returns its link if it was in the table.
    #[inline]
    pub(crate) fn unlink_exactly(&self, node: &Node<K, V>, guard: &Guard) -> Option<NonNull<Link>> {
        self.table.unlink(node.link(), guard)
    }

    /// Removes exactly this node, if it is in the table, and drops it after a grace period.
    pub(crate) fn remove_exactly(&self, node: &Node<K, V>, guard: &Guard)
    where
        K: Send + 'static,
        V: Send + 'static,
    {
        if let Some(removed) = self.unlink_exactly(node, guard) {
            // SAFETY: this thread has just unlinked it.
            unsafe { self.retire(removed, guard) };
        }
    }

    /// Locks the bucket and checks whether exactly this node is in it. If it was removed, no other
    /// node can be mistaken for it, because its memory is not reused as long as the guard lives.
    #[inline(always)]
    pub(crate) fn entry_of<'g>(&'g self, node: &Node<K, V>, guard: &'g Guard) -> Entry<'g> {
        let link = NonNull::from(node.link());
        self.table.entry(node.link().hash(), |found| found == link, guard)
    }

    /// Defers the drop of a node until after a grace period, and returns the node, which the
    /// caller's guard keeps alive.
    ///
    /// # Safety
    ///
    /// The caller has unlinked it from this table in the section of the guard.
    #[inline]
    pub(crate) unsafe fn retire<'g>(&self, link: NonNull<Link>, guard: &'g Guard) -> &'g Node<K, V>
    where
        K: Send + 'static,
        V: Send + 'static,
    {
        // SAFETY: no reader that begins now finds it, and the guard delays the end of the grace
        // period.
        unsafe {
            Node::<K, V>::retire(link, guard);
            self.node(link)
        }
    }

    /// Iterates over the nodes.
    pub(crate) fn iter<'g>(&'g self, guard: &'g Guard) -> Iter<'g, K, V> {
        Iter { links: self.table.iter(guard), _nodes: PhantomData }
    }
}

impl<K, V, S: BuildHasher> Nodes<K, V, S> {
    #[inline]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> table::Hash {
        table::Hash::new(self.hasher.hash_one(key))
    }
}

/// An iterator over the nodes of a table.
pub(crate) struct Iter<'g, K, V> {
    links: table::Iter<'g>,
    _nodes: PhantomData<&'g Node<K, V>>,
}

impl<'g, K, V> Iterator for Iter<'g, K, V> {
    type Item = &'g Node<K, V>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let link = self.links.next()?;
        // SAFETY: reached in the table under a guard that lives for `'g`, so it is a live node of
        // this type.
        Some(unsafe { Node::of(link) })
    }
}
