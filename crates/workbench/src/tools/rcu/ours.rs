//! relativist-rcu as a scheme.

use std::sync::atomic::AtomicU64;

use relativist_rcu::{barrier, defer_drop, read, wait_for_readers};

use super::scheme::{Object, ReclaimTimes, Scheme, enter_and_leave, time_reclaim};

pub(super) struct RelativistRcu;

impl Scheme for RelativistRcu {
    fn name(&self) -> &'static str {
        "relativist-rcu"
    }

    #[inline(never)]
    fn sections(&self, count: u64) {
        enter_and_leave(count, read);
    }

    #[inline(never)]
    fn nested_sections(&self, count: u64) {
        let _outer = read();
        enter_and_leave(count, read);
    }

    fn wait(&self) -> Option<fn()> {
        Some(wait_for_readers)
    }

    fn reclaim(&self, count: u64, freed: Option<&'static AtomicU64>) -> ReclaimTimes {
        let retire = || (0..count).for_each(|content| defer_drop(Box::new(Object::new(content, freed))));
        time_reclaim(retire, barrier)
    }
}
