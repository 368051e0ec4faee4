//! Reports to AddressSanitizer which memory of blocks may be used. The sanitizer knows its own
//! allocator's memory, but not mappings. With these reports it finds reads of an item whose block
//! has become free, and reads beyond the items (`ci/sanitizers.sh`). Does nothing in other builds.

use std::ptr::NonNull;

/// Whether AddressSanitizer is used.
pub(crate) const IS_USED: bool = cfg!(relativist_sanitizer = "address");

#[cfg(relativist_sanitizer = "address")]
unsafe extern "C" {
    fn __asan_poison_memory_region(start: *const u8, bytes: usize);
    fn __asan_unpoison_memory_region(start: *const u8, bytes: usize);
}

/// Marks these bytes, which are aligned like items, as unused.
///
/// # Safety
/// The bytes are part of a mapping.
#[cfg_attr(not(relativist_sanitizer = "address"), expect(unused_variables, reason = "only AddressSanitizer uses them"))]
pub(crate) unsafe fn poison(start: NonNull<u8>, bytes: usize) {
    #[cfg(relativist_sanitizer = "address")]
    // SAFETY: the caller's promise.
    unsafe {
        __asan_poison_memory_region(start.as_ptr(), bytes);
    }
}

/// Marks these bytes as used again.
///
/// # Safety
/// As for [`poison`].
#[cfg_attr(not(relativist_sanitizer = "address"), expect(unused_variables, reason = "only AddressSanitizer uses them"))]
pub(crate) unsafe fn unpoison(start: NonNull<u8>, bytes: usize) {
    #[cfg(relativist_sanitizer = "address")]
    // SAFETY: as in `poison`.
    unsafe {
        __asan_unpoison_memory_region(start.as_ptr(), bytes);
    }
}

#[cfg(all(test, relativist_sanitizer = "address"))]
mod tests {
    use crate::cache::Cache;
    use crate::cache::{Content, Mode, Store};
    use crate::clock::Clock;
    use crate::item::hit::Lookup;
    use crate::item::layout::ItemShape;
    use crate::memory::allocator::ItemAllocator;
    use crate::memory::request::AllocContext;
    use std::ffi::c_int;
    use std::sync::Arc;

    unsafe extern "C" {
        fn __asan_address_is_poisoned(address: *const u8) -> c_int;
    }

    fn is_poisoned(address: *const u8) -> bool {
        // SAFETY: reads only the sanitizer's own memory.
        unsafe { __asan_address_is_poisoned(address) != 0 }
    }

    #[test]
    fn memory_outside_items_is_poisoned() {
        let allocator = ItemAllocator::new(1 << 20).unwrap();
        let place = allocator.allocate(64, AllocContext::NoLock, || 0).unwrap();
        let address = |offset: usize| place.as_ptr().wrapping_add(offset).cast_const();
        assert!(!is_poisoned(address(0)) && !is_poisoned(address(63)) && is_poisoned(address(64)));
        let next = allocator.allocate(64, AllocContext::NoLock, || 0).unwrap();
        assert!(next.as_ptr().cast_const() == address(64) && !is_poisoned(address(64)));
        allocator.abandon(next, 64);
        assert!(is_poisoned(address(64)));
        allocator.abandon(place, 64);
        assert!(is_poisoned(address(0)));
    }

    /// Applies to a block that items share, and to one with a single item.
    #[test]
    fn freed_memory_is_poisoned() {
        let cache = Cache::new(Arc::new(Clock::new(1_700_000_000)), 8 << 20, 1 << 20).unwrap();
        for size in [100, 50_000] {
            let value = vec![b'v'; size];
            assert_eq!(cache.store(Mode::Set, b"k", Content { flags: 0, exptime: 0, value: &value }), Store::Stored);
            let mut address = std::ptr::null();
            assert_eq!(cache.get(b"k", |hit| address = hit.value.as_ptr()), Lookup::Hit);
            cache.delete(b"k");
            assert!(!is_poisoned(address), "readers may still look at it");
            cache.maintain();
            assert!(is_poisoned(address), "{size}");
        }
        let shape = ItemShape { key_len: 1, value_len: 50_000, has_flags: false, has_cas: false };
        let mut reserved = cache.reserve(&shape).unwrap();
        let rest = reserved.rest().as_ptr_range();
        assert!(!is_poisoned(rest.start) && !is_poisoned(rest.end.wrapping_sub(1)));
        assert!(is_poisoned(rest.end.wrapping_add(8)));
        drop(reserved);
        cache.maintain();
        assert!(is_poisoned(rest.start));
    }
}
