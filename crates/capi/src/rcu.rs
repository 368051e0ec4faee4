use std::mem::forget;
use std::ptr::NonNull;

use relativist_rcu::{Guard, barrier, defer_raw, is_reading, read, wait_for_readers};

/// To be embedded in objects that are handed to relativist_call.
#[repr(C)]
pub struct CallHead {
    function: Call,
}

/// Is called with what was handed to relativist_call.
pub type Call = Option<unsafe extern "C" fn(head: *mut CallHead)>;

/// Enters a read section. Wait-free. Sections nest: the outermost counts.
///
/// A thread's first call registers it, until it exits. Whoever stays inside for long holds up
/// reclamation in the whole process.
#[unsafe(no_mangle)]
pub extern "C" fn relativist_read_lock() {
    forget(read());
}

/// Leaves it. What was found inside may be gone. The outermost end may run functions given to
/// relativist_call, by any thread, and waits for readers if this thread has given too many: so no
/// lock may be held that one of them takes, or that a reader waits for.
///
/// To be called by who has entered the section: a function that is called by this library leaves no
/// section that it has not entered.
///
/// Aborts outside of read sections.
#[unsafe(no_mangle)]
pub extern "C" fn relativist_read_unlock() {
    // SAFETY: in a section there is one, forgotten in `relativist_read_lock`: only we leave
    // sections that are open between calls.
    let guard = unsafe { Guard::of_forgotten() };
    drop(guard.expect("relativist_read_unlock without relativist_read_lock"));
}

/// Whether the calling thread is inside a read section.
#[unsafe(no_mangle)]
pub extern "C" fn relativist_read_ongoing() -> bool {
    is_reading()
}

/// Waits until all read sections that had begun before have ended.
///
/// Aborts inside a read section: it would wait for itself.
#[unsafe(no_mangle)]
pub extern "C" fn relativist_synchronize() {
    wait_for_readers();
}

/// Calls `function(head)` when all read sections that had begun before have ended: on this thread
/// or another one, outside of read sections. Does not wait, unless this thread has too much
/// pending: then it waits for readers, at once or at the end of the outermost read section that it
/// is in. So a reader must not wait for a thread that calls this. Allocates a chunk of a queue now
/// and then, and aborts when memory is out.
///
/// `bytes` is what keeping the object costs: it counts towards the bound on what is pending. The
/// function may call this one, but must neither block for long nor wait for readers. Outside of
/// read sections every call that hands on a function or ends a section may run it: this one,
/// relativist_read_unlock, relativist_barrier, and all updates of tables, which have a section of
/// their own. So it must not take a lock that some thread holds during such a call. It may run on
/// that very thread, which would wait for itself.
///
/// Requires: `head` is valid, and stays so and is left alone until then; and `function` may be
/// called with it, on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_call(head: *mut CallHead, function: Call, bytes: usize) {
    unsafe fn call(head: NonNull<()>) {
        let head = head.cast::<CallHead>().as_ptr();
        // SAFETY: valid until the function is called, and nobody else writes to it.
        if let Some(function) = unsafe { (*head).function } {
            // SAFETY: that is what it was given for, after a grace period.
            unsafe { function(head) };
        }
    }
    let head = NonNull::new(head).expect("relativist_call without an object");
    assert!(function.is_some(), "relativist_call without a function");
    // SAFETY: valid, says the caller.
    unsafe { head.write(CallHead { function }) };
    // SAFETY: the caller's promise.
    unsafe { defer_raw(head.cast(), bytes, call) };
}

/// Waits until all functions that any thread has handed to relativist_call before have run. To be
/// called before a library that they are part of is unloaded, and at the end if they must run: what
/// is pending at exit doesn't.
///
/// Aborts inside a read section and inside such a function: it would wait for itself.
#[unsafe(no_mangle)]
pub extern "C" fn relativist_barrier() {
    barrier();
}
