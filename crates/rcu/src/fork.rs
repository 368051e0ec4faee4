//! What the child of a `fork` has to put right: of the parent's threads it has only the one that forked.
//!
//! The other threads' read sections ended with them, their slots are free, what they locked is unlocked, and the worker is
//! gone. Their deferred functions stay queued and run in the child as they do in the parent.

#[cfg(all(unix, not(relativist_loom)))]
pub(crate) fn install() {
    // SAFETY: `in_child` is a function of the right type that lives for ever. It runs in the child, between `fork` and its
    // return, touches only atomics and cells of this crate, and calls nothing that isn't safe after fork.
    let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    assert_eq!(refused, 0, "pthread_atfork failed: out of memory");
}

#[cfg(not(all(unix, not(relativist_loom))))]
pub(crate) fn install() {}

#[cfg(all(unix, not(relativist_loom)))]
unsafe extern "C" fn in_child() {
    use crate::domain::domain;
    use crate::guard::own_slot;

    let own = own_slot();
    domain().reset_in_child();
    for slot in domain().registry.iter() {
        match own {
            Some(own) if std::ptr::eq(own, slot) => {
                if !own.reclaiming.get() {
                    own.queue.unlock_in_child();
                }
            }
            _ => slot.reset_in_child(),
        }
    }
    crate::worker::reset_in_child();
    crate::barrier::reregister_in_child();
}
