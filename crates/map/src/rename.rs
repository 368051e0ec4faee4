//! Renaming an entry of the map.

use std::cell::RefCell;
use std::fmt;
use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use crate::map::HashMap;
use relativist_table as raw;
use relativist_table::node::Node;

/// The error of [`HashMap::rename`], which contains the new key. The map is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameError<K> {
    /// The old key is not in the map.
    NotFound(K),
    /// The new key is in the map.
    Taken(K),
}

impl<K> RenameError<K> {
    /// Returns the new key.
    pub fn into_key(self) -> K {
        let (Self::NotFound(key) | Self::Taken(key)) = self;
        key
    }
}

impl<K> fmt::Display for RenameError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound(_) => "the old key is not in the map",
            Self::Taken(_) => "the new key is in the map",
        })
    }
}

impl<K: fmt::Debug> std::error::Error for RenameError<K> {}

impl<K, V, S> HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Changes the key of an entry, in one step: at every instant lookups find it under exactly one
    /// of the two keys.
    ///
    /// Within one read section at most one rename takes effect: of three lookups, of the old key,
    /// the new key, and the old key again, at least one finds the entry and at least one does not.
    /// An iteration may see the entry under either key, both, or none.
    ///
    /// The value is cloned, because readers may hold references to the old entry; the old key and
    /// value are dropped before `rename` returns. (The table underneath can [move an
    /// object](raw::Table::rename) that has room for two keys.) During a rename, only lookups that
    /// miss are slower. A rename waits for readers, and for other renames and resizes. `Eq` of keys
    /// and `clone` run under the locks of both buckets; if they update the map, they panic. See ATC
    /// 2011, section 8.
    ///
    /// ```
    /// use relativist::{HashMap, RenameError};
    ///
    /// let map = HashMap::from([("draft", 1), ("notes", 2)]);
    /// map.rename("draft", "final")?;
    /// assert_eq!(map.pin().get("draft"), None);
    /// assert_eq!(map.pin().get("final"), Some(&1));
    /// assert_eq!(map.rename("final", "notes"), Err(RenameError::Taken("notes")));
    /// # Ok::<(), RenameError<&str>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the old key is not in the map, or if the new one is (possibly because
    /// they are equal). The map stays as it was.
    ///
    /// # Panics
    ///
    /// Panics inside a read section (a [`Guard`](crate::Guard) or a pinned handle of this thread is
    /// alive): it would wait for itself.
    pub fn rename<Q>(&self, old: &Q, new: K) -> Result<(), RenameError<K>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let (old_hash, new_hash) = (self.hash(old), self.hash(&new));
        let new = RefCell::new(Some(new));
        // SAFETY: the table calls this with links of its own, under their lock.
        let is_new = |link| new.borrow().as_ref() == Some(&unsafe { self.node(link) }.key);
        let make = |link| {
            // SAFETY: as above.
            let value = unsafe { self.node(link) }.value.clone();
            Node::new(new_hash, new.take().expect("it is taken once"), value).into_link()
        };
        // SAFETY: a node of this map's type that no box owns any more: freed a grace period after
        // it is unlinked, or with the table.
        match unsafe { self.table.rename_to((old_hash, self.has_key(old)), (new_hash, is_new), make) } {
            Ok(renamed) => {
                // SAFETY: it is unlinked, and all readers have left.
                unsafe { Node::<K, V>::dispose(renamed) };
                Ok(())
            }
            Err(error) => {
                let key = new.take().expect("it was not taken");
                Err(if error == raw::RenameError::Taken { RenameError::Taken(key) } else { RenameError::NotFound(key) })
            }
        }
    }
}
