//! The handler that runs in the child of a `fork`, which has only one of the parent's threads: the
//! one that forked.
//!
//! The handler ends the other threads' read sections, frees their slots, and releases their locks.
//! The deferred functions of those threads stay queued. They run in the child as they do in the
//! parent, once the child calls [`barrier`](crate::barrier()) or defers something itself. (Until
//! then the child has no worker, because a handler cannot start a thread.)
//!
//! References that the forking thread has borrowed from another thread's guard dangle in the child.

#[cfg(all(unix, not(relativist_loom)))]
pub(crate) fn install() {
    // SAFETY: `in_child` is a function of the right type that lives for ever. It runs in the child,
    // between `fork` and its return, accesses only atomics and cells of this crate, and calls only
    // functions that are safe after fork.
    let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    assert_eq!(refused, 0, "pthread_atfork failed: out of memory");
}

#[cfg(not(all(unix, not(relativist_loom))))]
pub(crate) fn install() {}

#[cfg(all(unix, not(relativist_loom)))]
unsafe extern "C" fn in_child() {
    use crate::current::own_slot;
    use crate::domain::domain;

    let own = own_slot();
    domain().reset_in_child();
    for slot in domain().registry.iter() {
        slot.queue.reset_in_child();
        if !own.is_some_and(|own| std::ptr::eq(own, slot)) {
            slot.reset_in_child();
        }
    }
    crate::worker::reset_in_child();
    crate::barrier::reregister_in_child();
}

#[cfg(all(test, unix, not(relativist_loom)))]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use crate::domain::domain;
    use crate::wait_for_readers;

    /// R8: the child drives grace periods, though the fork came while another thread was doing so.
    #[test]
    fn a_driver_was_cut_off() {
        wait_for_readers();
        let (driving, is_driving) = mpsc::channel();
        let (finish, may_finish) = mpsc::channel::<()>();
        let driver = thread::spawn(move || {
            let _driver = loop {
                match domain().try_drive() {
                    Some(driver) => break driver,
                    None => thread::yield_now(),
                }
            };
            driving.send(()).unwrap();
            let _ = may_finish.recv();
        });
        is_driving.recv().unwrap();
        // SAFETY: the child uses this crate and system calls; the alarm ends it if it hangs.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: `alarm` has no preconditions.
            unsafe { libc::alarm(120) };
            wait_for_readers();
            // SAFETY: `_exit` has no preconditions.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: `status` is a local variable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child hung or failed");
        drop(finish);
        driver.join().unwrap();
    }
}
