//! relativist-rcu as schemes: the domain of the process, and a private one.

use std::sync::atomic::AtomicU64;

use relativist_rcu::{Domain, barrier, defer_drop, read, wait_for_readers};

use super::scheme::{Object, ReclaimTimes, Scheme, enter_and_leave, time_reclaim};

pub struct RelativistRcu;

impl Scheme for RelativistRcu {
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

pub struct PrivateDomain {
    domain: Domain,
}

impl PrivateDomain {
    pub fn new() -> Self {
        Self { domain: Domain::new() }
    }
}

impl Scheme for PrivateDomain {
    #[inline(never)]
    fn sections(&self, count: u64) {
        enter_and_leave(count, || self.domain.read());
    }

    #[inline(never)]
    fn nested_sections(&self, count: u64) {
        let _outer = self.domain.read();
        enter_and_leave(count, || self.domain.read());
    }

    fn reclaim(&self, count: u64, freed: Option<&'static AtomicU64>) -> ReclaimTimes {
        let domain = Domain::new();
        let retire = || (0..count).for_each(|content| domain.defer_drop(Box::new(Object::new(content, freed))));
        time_reclaim(retire, || domain.barrier())
    }
}
