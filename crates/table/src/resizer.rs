//! The state of resizes: what they have left to do until readers have left.

use std::time::{Duration, Instant};

use relativist_rcu::{GracePeriod, defer_raw};

use super::array::{AllocError, Array, DetachedArray};
use super::head::Head;

/// The state of resizes. Its mutex is held to resize.
#[derive(Default)]
pub(super) struct Resizer {
    /// Allocated by the first resize, because many tables have none.
    pending: Option<Box<[Pending; 1]>>,
}

/// What earlier resizes have left to do.
#[derive(Default)]
pub(super) struct Pending {
    /// A growth that an insertion has begun, and that is not finished.
    growing: Option<Growing>,
    pub(super) uncut: Option<Uncut>,
    /// Replaced arrays that readers may still use.
    retired: Vec<Retired>,
}

/// A growth in progress: updates maintain the fine heads that are filled, and lookups do not use
/// them yet.
pub(super) struct Growing {
    pub(super) fine: DetachedArray,
    /// The number of heads of the published array whose fine heads are filled.
    pub(super) filled: usize,
}

/// A table that has grown, and whose chains are those of a coarser array.
pub(super) struct Uncut {
    pub(super) base: DetachedArray,
    /// Passes when no lookup is left that entered by an array older than the published one.
    pub(super) readers: GracePeriod,
    /// The time at which the published array was published.
    pub(super) since: Instant,
}

struct Retired {
    array: DetachedArray,
    readers: GracePeriod,
}

impl Resizer {
    fn pending(&self) -> Option<&Pending> {
        self.pending.as_ref().map(|pending| &pending[0])
    }

    fn pending_mut(&mut self) -> Option<&mut Pending> {
        self.pending.as_mut().map(|pending| &mut pending[0])
    }

    /// Returns the state of a resize that has [`reserved`](Self::reserve) it.
    pub(super) fn reserved(&mut self) -> &mut Pending {
        self.pending_mut().expect("reserved before the resize began")
    }

    pub(super) fn uncut(&self) -> Option<&Uncut> {
        self.pending()?.uncut.as_ref()
    }

    pub(super) fn is_growing(&self) -> bool {
        self.pending().is_some_and(|pending| pending.growing.is_some())
    }

    pub(super) fn take_growing(&mut self) -> Option<Growing> {
        self.pending_mut()?.growing.take()
    }

    pub(super) fn set_growing(&mut self, growing: Growing) {
        self.reserved().growing = Some(growing);
    }

    /// Returns whether a resize has steps left that wait for readers.
    pub(super) fn is_waiting(&self) -> bool {
        self.pending().is_some_and(|pending| pending.uncut.is_some() || !pending.retired.is_empty())
    }

    /// Returns whether the last growth is so recent that its chains can probably be cut soon.
    pub(super) fn is_recently_uncut(&self) -> bool {
        /// Most read sections are shorter than this. Waiting is useful because updates take longer
        /// until chains are cut.
        const WORTH_WAITING: Duration = Duration::from_micros(500);
        self.uncut().is_some_and(|uncut| uncut.since.elapsed() < WORTH_WAITING)
    }

    /// Makes room to [`retire`](Self::retire) this many arrays: a resize that has begun must not
    /// fail.
    pub(super) fn reserve(&mut self, arrays: usize, bits: u32) -> Result<(), AllocError> {
        let failed = AllocError::new(bits, size_of::<Head>());
        if self.pending.is_none() {
            // `Box::new` would abort if there is no memory.
            let mut pending = Vec::new();
            pending.try_reserve_exact(1).map_err(|_| failed)?;
            pending.push(Pending::default());
            self.pending = pending.into_boxed_slice().try_into().ok();
        }
        self.reserved().retired.try_reserve(arrays).map_err(|_| failed)
    }

    pub(super) fn retire(&mut self, array: Array<'_>) {
        self.reserved().retired.push(Retired { array: DetachedArray::of(array), readers: GracePeriod::start() });
    }

    pub(super) fn take_uncut_if(&mut self, condition: impl FnOnce(&mut Uncut) -> bool) -> Option<Uncut> {
        self.pending_mut()?.uncut.take_if(condition)
    }

    /// Frees the retired arrays whose readers have left. Returns the bytes of their buckets.
    pub(super) fn free_retired(&mut self) -> usize {
        let mut freed = 0;
        let Some(pending) = self.pending_mut() else { return 0 };
        pending.retired.retain(|retired| {
            let has_passed = retired.readers.has_passed();
            if has_passed {
                // SAFETY: it is alive until it is freed here.
                let array = unsafe { retired.array.get() };
                freed += array.bucket_bytes();
                // SAFETY: no reader can have found it after it was replaced, and those from before
                // have left.
                unsafe { array.free() };
            }
            !has_passed
        });
        freed
    }

    /// Returns the retired arrays. The caller must pass them to [`free_later`] after unlocking the
    /// resizer.
    pub(super) fn take_retired(&mut self) -> impl Iterator<Item = DetachedArray> + use<> {
        let retired = self.pending_mut().map(|pending| std::mem::take(&mut pending.retired));
        retired.unwrap_or_default().into_iter().map(|retired| retired.array)
    }

    /// Frees all arrays but the published one.
    ///
    /// # Safety
    ///
    /// No thread uses the table any more.
    pub(super) unsafe fn free_all(&mut self) {
        let base = self.take_uncut_if(|_| true).map(|uncut| uncut.base);
        let fine = self.take_growing().map(|growing| growing.fine);
        // SAFETY: guaranteed by the caller.
        self.take_retired().chain(base).chain(fine).for_each(|array| unsafe { array.get().free() });
    }
}

/// Frees an array after a grace period. Call it without holding the resizer's mutex: it may run
/// deferred destructors of values, which may resize the table. It waits for readers if the array is
/// larger than the bound on deferred bytes.
pub(super) fn free_later(array: DetachedArray) {
    // SAFETY: the resizer has replaced it, so it lives until it is freed here.
    let array: Array<'_> = unsafe { array.get() };
    let raw = array.into_raw();
    // SAFETY: readers that enter from now on cannot find the array, and it is freed once.
    unsafe { defer_raw(raw, array.bytes(), |raw| Array::from_raw(raw).free()) };
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    use crate::policy::Resizing;
    use crate::{Link, Table};

    thread_local! {
        /// Bytes that this thread has allocated, minus those that it has freed.
        static ALLOCATED: Cell<usize> = const { Cell::new(0) };
    }

    struct Counting;

    // SAFETY: forwards to the system's allocator.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            ALLOCATED.set(ALLOCATED.get().wrapping_add(layout.size()));
            // SAFETY: guaranteed by the caller.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            ALLOCATED.set(ALLOCATED.get().wrapping_sub(layout.size()));
            // SAFETY: guaranteed by the caller.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    #[test]
    fn a_dropped_table_frees_the_array_to_which_it_grows() {
        let drop_while_growing = || {
            let table = Table::<Link>::new(2, Resizing::Manual, |_| ()).expect("memory for two buckets");
            table.inner().begin_growth(2, &mut table.inner().lock_resizer()).expect("memory for four buckets");
        };
        // What is allocated once in a process does not count.
        drop_while_growing();
        let allocated = ALLOCATED.get();
        drop_while_growing();
        assert_eq!(ALLOCATED.get(), allocated);
    }
}
