//! Keys that loads take by value or by reference.

use std::hash::Hash;

use equivalent::Equivalent;

/// Where the key of a load comes from.
pub(super) trait KeySource<K> {
    type Query: Hash + Equivalent<K> + ?Sized;

    /// Returns what the key is looked up by.
    fn query(&self) -> &Self::Query;

    /// Returns a clone of the key, for others to compare theirs with.
    fn copy(&mut self) -> K;

    /// Returns the key, for its entry.
    fn take(self) -> K;
}

/// A key.
pub(super) struct Owned<K>(pub(super) K);

impl<K: Hash + Eq + Clone> KeySource<K> for Owned<K> {
    type Query = K;

    #[inline(always)]
    fn query(&self) -> &K {
        &self.0
    }

    fn copy(&mut self) -> K {
        self.0.clone()
    }

    fn take(self) -> K {
        self.0
    }
}

/// A reference, which is converted when the key is needed.
pub(super) struct Borrowed<'q, Q: ?Sized, K> {
    query: &'q Q,
    key: Option<K>,
}

impl<'q, Q: ?Sized, K> Borrowed<'q, Q, K> {
    pub(super) fn new(query: &'q Q) -> Self {
        Self { query, key: None }
    }
}

impl<'q, Q, K> KeySource<K> for Borrowed<'q, Q, K>
where
    Q: Hash + Equivalent<K> + ?Sized,
    K: Clone + From<&'q Q>,
{
    type Query = Q;

    #[inline(always)]
    fn query(&self) -> &Q {
        self.query
    }

    fn copy(&mut self) -> K {
        self.key.get_or_insert_with(|| converted(self.query)).clone()
    }

    fn take(self) -> K {
        self.key.unwrap_or_else(|| converted(self.query))
    }
}

/// Converts what a key is looked up by to the key.
fn converted<'q, Q: Equivalent<K> + ?Sized, K: From<&'q Q>>(query: &'q Q) -> K {
    let key = K::from(query);
    assert!(query.equivalent(&key), "the conversion to the key of the cache has returned another key");
    key
}
