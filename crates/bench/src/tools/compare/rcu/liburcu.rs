//! liburcu's "memb" flavour, through the loops in `liburcu.c`.

use std::ffi::c_void;
use std::ptr::{from_ref, null};
use std::sync::atomic::AtomicU64;

use super::schemes::{Object, Scheme, time_reclaim};

type Allocate = unsafe extern "C" fn(content: u64, freed: *const c_void) -> *mut c_void;
type Release = unsafe extern "C" fn(object: *mut c_void);

unsafe extern "C" {
    safe fn relativist_urcu_register();
    safe fn relativist_urcu_unregister();
    // The functions below need a registered thread.
    fn relativist_urcu_sections(count: u64);
    fn relativist_urcu_nested_sections(count: u64);
    fn relativist_urcu_synchronize();
    fn relativist_urcu_retire(count: u64, allocate: Allocate, release: Release, freed: *const c_void);
    fn relativist_urcu_barrier();
    safe fn relativist_urcu_head_size() -> u64;
}

/// A thread's registration with liburcu, which ends when the thread exits.
struct Registration;

impl Registration {
    fn new() -> Self {
        relativist_urcu_register();
        Self
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        relativist_urcu_unregister();
    }
}

thread_local!(static REGISTRATION: Registration = Registration::new());

/// Registers this thread if necessary, and calls `function`.
fn registered<R>(function: impl FnOnce() -> R) -> R {
    REGISTRATION.with(|_| function())
}

pub const LIBURCU: Scheme = Scheme {
    // SAFETY: the thread is registered.
    sections: |count| registered(|| unsafe { relativist_urcu_sections(count) }),
    // SAFETY: the thread is registered.
    nested: |count| registered(|| unsafe { relativist_urcu_nested_sections(count) }),
    // SAFETY: the thread is registered. It is not in a section, because every function here leaves
    // each section that it enters.
    wait: Some(|| registered(|| unsafe { relativist_urcu_synchronize() })),
    reclaim: |count, freed| {
        assert!(relativist_urcu_head_size() <= 16, "liburcu's header has outgrown the one of `Object`");
        let freed = freed.map_or(null(), |freed| from_ref(freed).cast());
        // SAFETY: the thread is registered. `allocate` returns objects that begin with room for an
        // rcu_head and have no other owner, and `release` frees them. `freed` is null or points to
        // a counter that lives forever.
        let retire = || registered(|| unsafe { relativist_urcu_retire(count, allocate, release, freed) });
        // SAFETY: the thread is registered, and in no section.
        time_reclaim(retire, || registered(|| unsafe { relativist_urcu_barrier() }))
    },
};

/// # Safety
/// `freed` is null or points to an `AtomicU64` that lives forever.
unsafe extern "C" fn allocate(content: u64, freed: *const c_void) -> *mut c_void {
    // SAFETY: the caller promises this.
    let freed = unsafe { freed.cast::<AtomicU64>().as_ref() };
    Box::into_raw(Box::new(Object::new(content, freed))).cast()
}

/// # Safety
/// `object` is one that `allocate` returned, and is not used again.
unsafe extern "C" fn release(object: *mut c_void) {
    // SAFETY: the caller promises this.
    drop(unsafe { Box::from_raw(object.cast::<Object>()) });
}
