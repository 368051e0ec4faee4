//! seize, with one collector for sections and one for each measurement of reclamation.

use std::sync::atomic::AtomicU64;

use seize::{Collector, Guard, reclaim};

use super::scheme::{Object, ReclaimTimes, Scheme, enter_and_leave, time_reclaim};

pub struct Seize {
    collector: Collector,
}

impl Seize {
    pub fn new() -> Self {
        Self { collector: Collector::new() }
    }
}

impl Scheme for Seize {
    #[inline(never)]
    fn sections(&self, count: u64) {
        enter_and_leave(count, || self.collector.enter());
    }

    #[inline(never)]
    fn nested_sections(&self, count: u64) {
        let _outer = self.collector.enter();
        enter_and_leave(count, || self.collector.enter());
    }

    fn reclaim(&self, count: u64, freed: Option<&'static AtomicU64>) -> ReclaimTimes {
        let collector = Collector::new();
        let retire = || {
            for content in 0..count {
                let guard = collector.enter();
                let object = Box::into_raw(Box::new(Object::new(content, freed)));
                // SAFETY: the object was never shared, so no reader can hold it. It is retired
                // once, and was allocated by a `Box`.
                unsafe { guard.defer_retire(object, reclaim::boxed) };
            }
        };
        // SAFETY: no other thread uses this collector, and this thread holds no guard of it.
        time_reclaim(retire, || unsafe { collector.reclaim_all() })
    }
}
