//! Keys that operations take by value or by reference.

use std::hash::Hash;

use equivalent::Equivalent;

/// Where the key of a new entry comes from.
pub(crate) trait KeySource<K> {
    type Query: Hash + Equivalent<K> + ?Sized;

    /// Returns what the key is looked up by. The key was not taken, or was given back.
    fn query(&self) -> &Self::Query;

    /// Returns the key.
    fn take(&mut self) -> K;

    /// Takes back a key that was not inserted.
    fn give_back(&mut self, key: K);
}

/// A key.
pub(crate) struct Owned<K>(pub(crate) Option<K>);

impl<K: Hash + Eq> KeySource<K> for Owned<K> {
    type Query = K;

    #[inline(always)]
    fn query(&self) -> &K {
        self.0.as_ref().expect("it was given back")
    }

    #[inline(always)]
    fn take(&mut self) -> K {
        self.0.take().expect("it was given back")
    }

    fn give_back(&mut self, key: K) {
        self.0 = Some(key);
    }
}

/// A reference, which is converted when the key is needed.
pub(crate) struct Borrowed<'q, Q: ?Sized, K> {
    query: &'q Q,
    key: Option<K>,
}

impl<'q, Q: ?Sized, K> Borrowed<'q, Q, K> {
    pub(crate) fn new(query: &'q Q) -> Self {
        Self { query, key: None }
    }
}

impl<'q, Q: Hash + Equivalent<K> + ?Sized, K: From<&'q Q>> KeySource<K> for Borrowed<'q, Q, K> {
    type Query = Q;

    #[inline(always)]
    fn query(&self) -> &Q {
        self.query
    }

    fn take(&mut self) -> K {
        self.key.take().unwrap_or_else(|| converted(self.query))
    }

    fn give_back(&mut self, key: K) {
        self.key = Some(key);
    }
}

/// Converts what a key is looked up by to the key.
pub(crate) fn converted<'q, Q: Equivalent<K> + ?Sized, K: From<&'q Q>>(query: &'q Q) -> K {
    let key = K::from(query);
    assert!(query.equivalent(&key), "the conversion to the key of the map has returned another key");
    key
}
