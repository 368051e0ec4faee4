//! The slot of the calling thread.

use crate::registry::{Slot, unregistered};

/// A `&'static Slot`. In Rust 1.85, a constant cannot contain a reference to a slot, because slots
/// are mutable.
#[derive(Clone, Copy)]
struct SlotPointer(*const Slot);

/// Returns the slot of the calling thread, or the slot that all unregistered threads share. Also
/// works in the destructors of thread-local variables, in any order.
#[inline(always)]
pub(crate) fn current_slot() -> &'static Slot {
    let SlotPointer(slot) = variable::get();
    // SAFETY: only references are stored as pointers.
    unsafe { &*slot }
}

/// Returns the slot of the calling thread, if it has one.
pub(crate) fn own_slot() -> Option<&'static Slot> {
    let slot = current_slot();
    (!std::ptr::eq(slot, unregistered())).then_some(slot)
}

pub(crate) fn set_current_slot(slot: &'static Slot) {
    variable::set(SlotPointer(slot));
}

/// From now on the calling thread has no slot.
pub(crate) fn clear_current_slot() {
    variable::clear();
}

/// Returns an identifier of the calling thread, which a fork does not change: no two running
/// threads have the same, and it is never 0.
pub(crate) fn thread_token() -> usize {
    variable::token()
}

#[cfg(not(all(windows, target_env = "gnu", not(target_abi = "llvm"), not(relativist_loom))))]
mod variable {
    use std::cell::Cell;

    use super::SlotPointer;
    use crate::registry::unregistered;
    use relativist_core::sync::local;

    local! {
        /// Has no destructor, so a thread can read it at any time until it ends.
        static SLOT: Cell<SlotPointer> = Cell::new(SlotPointer(unregistered()));
    }

    #[inline(always)]
    pub(super) fn get() -> SlotPointer {
        SLOT.with(Cell::get)
    }

    pub(super) fn set(slot: SlotPointer) {
        SLOT.with(|own| own.set(slot));
    }

    pub(super) fn clear() {
        // An error means that loom has already destroyed `SLOT`; no thread will read it.
        let _ = SLOT.try_with(|own| own.set(SlotPointer(unregistered())));
    }

    pub(super) fn token() -> usize {
        SLOT.with(|own| std::ptr::from_ref(own).addr())
    }
}

/// On this target std allocates thread-local variables, and frees them at thread exit, even those
/// without a destructor. A later destructor would find a new variable, and a thread whose guard is
/// kept in a thread-local variable would seem to be outside of its section. So this uses the
/// system's variables directly. They keep their values until the thread ends.
#[cfg(all(windows, target_env = "gnu", not(target_abi = "llvm"), not(relativist_loom)))]
mod variable {
    use std::ffi::c_void;
    use std::sync::OnceLock;

    use super::SlotPointer;
    use crate::registry::unregistered;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        #[link_name = "TlsAlloc"]
        safe fn allocate() -> u32;
        #[link_name = "TlsGetValue"]
        fn value(index: u32) -> *const c_void;
        #[link_name = "TlsSetValue"]
        fn set_value(index: u32, value: *const c_void) -> i32;
        #[link_name = "GetCurrentThreadId"]
        safe fn current_thread_id() -> u32;
    }

    /// The result of `TlsAlloc` if there are too many variables.
    const OUT_OF_INDEXES: u32 = u32::MAX;

    fn index() -> u32 {
        static INDEX: OnceLock<u32> = OnceLock::new();
        *INDEX.get_or_init(|| {
            let index = allocate();
            assert_ne!(index, OUT_OF_INDEXES, "the process has too many thread-local variables");
            index
        })
    }

    pub(super) fn get() -> SlotPointer {
        // SAFETY: the index was allocated, and is never freed.
        let slot = unsafe { value(index()) };
        SlotPointer(if slot.is_null() { unregistered() } else { slot.cast() })
    }

    pub(super) fn set(SlotPointer(slot): SlotPointer) {
        // SAFETY: as in `get`.
        let was_set = unsafe { set_value(index(), slot.cast()) };
        assert_ne!(was_set, 0, "there is no memory for a thread-local variable");
    }

    pub(super) fn clear() {
        set(SlotPointer(unregistered()));
    }

    pub(super) fn token() -> usize {
        current_thread_id() as usize
    }
}
