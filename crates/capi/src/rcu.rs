use std::mem::forget;
use std::ptr::NonNull;

use relativist_rcu::{Guard, barrier, defer_raw, is_reading, read, wait_for_readers};

/// Embed this in objects that are passed to relativist_call.
#[repr(C)]
pub struct CallHead {
    function: Call,
}

/// The function that relativist_call will call with the object.
pub type Call = Option<unsafe extern "C" fn(head: *mut CallHead)>;

/// Enters a read section. Wait-free. Sections nest, and end with the outermost one.
///
/// A thread's first call registers it, until it exits. A thread that stays in a read section for
/// long delays reclamation in the whole process.
#[unsafe(no_mangle)]
pub extern "C" fn relativist_read_lock() {
    forget(read());
}

/// Leaves a read section. Objects that were found inside may be freed afterwards. The end of the
/// outermost section may run functions that any thread passed to relativist_call, and waits for
/// readers if this thread has passed too many. So the caller must not hold a lock that such a
/// function takes, or for which a reader waits.
///
/// A function that this library calls must leave only sections that it has entered itself.
///
/// Aborts outside of read sections.
#[unsafe(no_mangle)]
pub extern "C" fn relativist_read_unlock() {
    // SAFETY: in a section there is one, forgotten in `relativist_read_lock`: only this function
    // leaves sections that are open between calls.
    let guard = unsafe { Guard::of_forgotten() };
    drop(guard.expect("relativist_read_unlock without relativist_read_lock"));
}

/// Returns whether the calling thread is inside a read section.
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

/// Calls `function(head)` after all read sections that had begun before have ended: on this thread
/// or another one, outside of read sections. Does not wait, unless too many calls of this thread
/// are pending: then it waits for readers, at once or at the end of the outermost read section. So
/// a reader must not wait for a thread that calls this. Occasionally allocates a chunk of a queue,
/// and aborts if there is no memory.
///
/// `bytes` is the memory that the object occupies until then: it counts towards the bound on
/// pending calls. The function may call relativist_call, but must neither block for long nor wait
/// for readers. Outside of read sections, the function may run in relativist_call,
/// relativist_read_unlock, relativist_barrier, and in all updates of tables. So it must not take a
/// lock that a thread holds during such a call: if it ran on that thread, the thread would wait for
/// itself.
///
/// Requires: `head` stays valid and is not used until then, and `function` may be called with it,
/// on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_call(head: *mut CallHead, function: Call, bytes: usize) {
    unsafe fn call(head: NonNull<()>) {
        let head = head.cast::<CallHead>().as_ptr();
        // SAFETY: valid until the function is called, and no other code writes to it.
        if let Some(function) = unsafe { (*head).function } {
            // SAFETY: the caller of `relativist_call` allows this call after a grace period.
            unsafe { function(head) };
        }
    }
    let head = NonNull::new(head).expect("relativist_call without an object");
    assert!(function.is_some(), "relativist_call without a function");
    // SAFETY: the caller guarantees that it is valid.
    unsafe { head.write(CallHead { function }) };
    // SAFETY: guaranteed by the caller.
    unsafe { defer_raw(head.cast(), bytes, call) };
}

/// Waits until all functions that any thread has passed to relativist_call before have run. Call
/// this before unloading a library that contains them, and at the end of the program if they must
/// run: functions that are pending at exit do not run.
///
/// Aborts inside a read section and inside such a function, because it would wait for itself.
#[unsafe(no_mangle)]
pub extern "C" fn relativist_barrier() {
    barrier();
}
