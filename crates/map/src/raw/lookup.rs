//! Lookup: wait-free, and the same whether the table is being resized or not.

use std::ptr::NonNull;

use relativist_rcu::Guard;

use super::{Hash, Link, Table};

impl Table {
    /// Finds the link with this hash for which `is_match` says yes.
    ///
    /// Wait-free: no lock, no fence, no atomic read-modify-write, no retry, whatever updaters and resizers do. Looks at the
    /// bucket's head, and at the links of its chain up to the first with a larger hash: on average half of a chain of
    /// entries per bucket; `is_match` is asked only where the whole hash is equal. Most misses are answered by the head alone.
    ///
    /// A link that is in the table throughout the call is found. What is found stays valid as long as the guard, even if it
    /// is removed meanwhile.
    #[inline]
    pub fn find(
        &self,
        hash: Hash,
        mut is_match: impl FnMut(NonNull<Link>) -> bool,
        guard: &Guard,
    ) -> Option<NonNull<Link>> {
        let array = self.core().array(guard);
        let head = array.head(hash).load();
        if !head.may_contain(hash, array.bits()) {
            return None;
        }
        let mut next = head.first();
        while let Some(link) = NonNull::new(next) {
            // SAFETY: links reachable from a head stay allocated until a grace period after their removal (the contract
            // of `VacantEntry::insert`), and the guard was taken before we got here.
            let current = unsafe { link.as_ref() };
            // The chain may run on into links of other buckets (it is *imprecise*, ATC 2011, section 4), but they come
            // after ours in the order.
            if current.hash >= hash {
                if current.hash > hash {
                    return None;
                }
                if is_match(link) {
                    return Some(link);
                }
            }
            next = current.next();
        }
        None
    }
}
