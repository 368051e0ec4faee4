//! Iterators over a map.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;

use crate::node::Node;
use crate::raw;

/// The entries of a map; see [`HashMap::iter`](crate::HashMap::iter).
pub struct Iter<'g, K, V> {
    links: raw::Iter<'g>,
    _entries: PhantomData<(&'g K, &'g V)>,
}

impl<'g, K, V> Iter<'g, K, V> {
    pub(crate) fn new(links: raw::Iter<'g>) -> Self {
        Self { links, _entries: PhantomData }
    }
}

impl<'g, K, V> Iterator for Iter<'g, K, V> {
    type Item = (&'g K, &'g V);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let link = self.links.next()?;
        // SAFETY: reached in the map's table under a guard that lives for `'g`, so it is a live node of this type.
        let node: &'g Node<K, V> = unsafe { Node::of(link) };
        Some((&node.key, &node.value))
    }
}

impl<K, V> FusedIterator for Iter<'_, K, V> {}

impl<K, V> fmt::Debug for Iter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Iter")
    }
}
