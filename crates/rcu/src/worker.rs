//! The background thread that reclaims for threads that have deferred something and then fell silent or exited.
//!
//! It runs only while something is pending, and for a second after. It takes no lock that a fork could leave locked.

#[cfg(relativist_loom)]
pub(crate) fn wake() {}

#[cfg(not(relativist_loom))]
pub(crate) use background::{reset_in_child, wake};

#[cfg(not(relativist_loom))]
mod background {
    use std::sync::atomic::{
        AtomicBool,
        Ordering::{Relaxed, SeqCst},
    };
    use std::time::Duration;

    use crate::barrier::{heavy, light};
    use crate::domain::domain;
    use crate::guard::{own_slot, read};

    /// How often the worker looks. What has been pending for one to two of these is reclaimed, readers permitting.
    const TICK: Duration = Duration::from_millis(10);
    /// How many ticks without work the worker stays for.
    const LINGER: u32 = 100;

    static ACTIVE: AtomicBool = AtomicBool::new(false);

    /// Called after a push: makes sure that somebody will look.
    #[inline]
    pub(crate) fn wake() {
        // Orders the push before the load; pairs with `heavy` in `may_exit`.
        light(domain().fenced(Relaxed));
        // Relaxed: see `light`.
        if !ACTIVE.load(Relaxed) {
            start();
        }
    }

    #[cold]
    fn start() {
        // SeqCst: once per start, and easy to think about. One thread wins.
        if !ACTIVE.swap(true, SeqCst) {
            let spawned = std::thread::Builder::new().name("rcu-reclaim".into()).spawn(run);
            // Without a worker the owners still reclaim as they go on deferring, and the next push tries again.
            if spawned.is_err() {
                ACTIVE.store(false, SeqCst);
            }
        }
    }

    fn run() {
        drop(read());
        if let Some(own) = own_slot() {
            // Deferred functions run here: `barrier` in one of them must be refused, and must not reclaim recursively.
            own.reclaiming.set(true);
        }
        let mut idle = 0;
        while idle < LINGER || !may_exit() {
            std::thread::sleep(TICK);
            idle = if sweep() { 0 } else { idle + 1 };
        }
        if let Some(own) = own_slot() {
            own.reclaiming.set(false);
        }
    }

    /// Looks at all queues; says whether anything is left in them.
    fn sweep() -> bool {
        domain().registry.iter().fold(false, |left, slot| slot.queue.drain_if_stale() | left)
    }

    fn may_exit() -> bool {
        ACTIVE.store(false, SeqCst);
        // Pairs with `light` in `wake`: either the pusher sees that we are gone, or we see the push.
        heavy();
        let pending = domain().registry.iter().any(|slot| slot.queue.pending().0 > 0);
        // Stay if there is work and nobody has started another worker meanwhile.
        !pending || ACTIVE.swap(true, SeqCst)
    }

    /// The child of a fork has no worker; the next push starts one.
    pub(crate) fn reset_in_child() {
        ACTIVE.store(false, SeqCst);
    }
}
