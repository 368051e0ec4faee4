//! The forms of the table: where entries are, and which domain protects them.

use std::alloc::{Layout, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit, needs_drop};
use std::ptr::{NonNull, null_mut};

use relativist_core::recycle;
use relativist_core::sync::{Acquire, AtomicPtr, Relaxed, Release, UnsafeCell};
use relativist_rcu::{Domain, DomainGuard, Guard, clock, read};

use crate::relocate::Relocatable;
use crate::word::{Hash, Word};

/// A form of the table: the kind of its slots, and the domain of its readers.
pub trait Form: Sized + sealed::Sealed {
    /// Whether slots hold pointers to entries.
    const BOXED: bool;
    /// The domain whose guards protect arrays and entries.
    type Domain: Readers + 'static;
    /// A slot.
    #[doc(hidden)]
    type Slot<E>;
    /// An entry that is about to be put into a slot. Dropping it drops the entry.
    #[doc(hidden)]
    type New<E>;

    #[doc(hidden)]
    fn new<E>(entry: E) -> Self::New<E>;
    #[doc(hidden)]
    fn entry<E>(new: &Self::New<E>) -> &E;
    #[doc(hidden)]
    fn into_entry<E>(new: Self::New<E>) -> E;
    /// Returns an empty slot.
    #[doc(hidden)]
    fn empty_slot<E>() -> Self::Slot<E>;

    /// Returns the entry of a slot whose word shows it as live. `None` if the pointer in the slot
    /// shows that there is none, or that the entry has another hash.
    ///
    /// # Safety
    ///
    /// The word was loaded in a read section that lasts, or under the lock. (An inline slot is not
    /// written again meanwhile.) So the entry lives as long as the section.
    #[doc(hidden)]
    unsafe fn get<E>(slot: *const Self::Slot<E>, expected: Expected) -> Option<NonNull<E>>;

    /// Puts an entry into a slot, and returns its address.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the bucket, or no other thread can find it. An inline slot is
    /// free.
    #[doc(hidden)]
    unsafe fn put<E>(slot: *const Self::Slot<E>, new: Self::New<E>, window: u16) -> NonNull<E>;

    /// Copies what one slot holds to another one, with the given bits of the hash.
    ///
    /// # Safety
    ///
    /// As for [`Form::put`], for the slot `to`. The other one is live, under the lock.
    #[doc(hidden)]
    unsafe fn copy<E>(from: *const Self::Slot<E>, to: *const Self::Slot<E>, window: u16);

    /// Removes the pointer from a slot. Leaves an inline slot as it is.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the bucket.
    #[doc(hidden)]
    unsafe fn take<E>(slot: *const Self::Slot<E>);

    /// Returns the bits of the hash that a slot has beside its pointer.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the bucket.
    #[doc(hidden)]
    unsafe fn window<E>(slot: *const Self::Slot<E>) -> u16;

    /// Drops an entry that was removed, and that lookups can no longer find, when the readers have
    /// left that may have found it.
    ///
    /// # Safety
    ///
    /// The entry was in a table, this thread has removed it, and no other thread drops it.
    #[doc(hidden)]
    unsafe fn retire<E>(entry: NonNull<E>, domain: &Self::Domain, guard: &<Self::Domain as Readers>::Guard<'_>)
    where
        Self: Holds<E>;

    /// Drops an entry in place, and frees its memory if it has its own.
    ///
    /// # Safety
    ///
    /// The entry is in a table, no other thread uses it, and it is dropped once.
    #[doc(hidden)]
    unsafe fn dispose<E>(entry: NonNull<E>);

    /// Moves an entry out, and frees its memory if it has its own.
    ///
    /// # Safety
    ///
    /// As for [`Form::dispose`].
    #[doc(hidden)]
    unsafe fn move_out<E>(entry: NonNull<E>) -> E;
}

/// A form whose tables may hold entries of this type.
///
/// # Safety
///
/// Entries may be shared with other threads, and dropped on any thread that uses the table or, in
/// the domain of the process, on any thread at any time. Inline entries are [`Relocatable`].
pub unsafe trait Holds<E>: Form {}

/// Entries have memory of their own, and slots hold pointers to them.
#[derive(Debug, Clone, Copy)]
pub struct Boxed;
/// Entries are in the slots.
#[derive(Debug, Clone, Copy)]
pub struct Inline;
/// Like [`Boxed`], with a domain of its own for each table.
#[derive(Debug, Clone, Copy)]
pub struct Private;

// SAFETY: entries stay where they are.
unsafe impl<E: Send + Sync + 'static> Holds<E> for Boxed {}
// SAFETY: as above. The domain lives no longer than the table, which drops all entries that its
// domain has not dropped yet.
unsafe impl<E: Send + Sync> Holds<E> for Private {}
// SAFETY: as required.
unsafe impl<E: Relocatable> Holds<E> for Inline {}

mod sealed {
    pub trait Domain {}
    pub trait Sealed {}
    impl Sealed for super::Boxed {}
    impl Sealed for super::Inline {}
    impl Sealed for super::Private {}
}

/// What a lookup expects of the bits of the hash beside a pointer.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub enum Expected {
    Any,
    Window(u16),
}

/// An entry in memory of its own that is in no table.
#[doc(hidden)]
pub struct Node<E>(NonNull<E>, PhantomData<E>);

// SAFETY: it owns its entry.
unsafe impl<E: Send> Send for Node<E> {}
// SAFETY: as above.
unsafe impl<E: Sync> Sync for Node<E> {}

/// Entries of size 0 need an address of their own, which distinguishes them.
fn node_layout<E>() -> Layout {
    let layout = Layout::new::<E>();
    let size = layout.size().max(1).next_multiple_of(8);
    Layout::from_size_align(size, layout.align().max(8)).expect("an entry is far smaller than the address space")
}

/// A pointer has the bits of the hash in these bits.
const WINDOW_SHIFT: u32 = 48;

impl<E> Node<E> {
    #[inline]
    fn new(entry: E) -> Self {
        let layout = node_layout::<E>();
        let Some(node) = recycle::allocate(layout) else { handle_alloc_error(layout) };
        let node = node.cast::<E>();
        assert!(
            node.addr().get() >> WINDOW_SHIFT == 0,
            "entries must lie below 2^48, but the allocator returned {node:p}"
        );
        // SAFETY: fresh memory of sufficient size.
        unsafe { node.write(entry) };
        Self(node, PhantomData)
    }

    fn into_raw(self) -> NonNull<E> {
        ManuallyDrop::new(self).0
    }
}

impl<E> Drop for Node<E> {
    fn drop(&mut self) {
        // SAFETY: the node is in no table, so this thread alone uses it.
        unsafe { dispose_node(self.0) };
    }
}

/// # Safety
///
/// As for [`Form::dispose`].
unsafe fn dispose_node<E>(entry: NonNull<E>) {
    // Frees the memory even if the destructor panics.
    let _memory = Memory(entry.cast(), node_layout::<E>());
    // SAFETY: guaranteed by the caller.
    unsafe { entry.drop_in_place() };
}

struct Memory(NonNull<u8>, Layout);

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `Node::new` allocated it with this layout, and its entry is gone.
        unsafe { recycle::free(self.0, self.1) };
    }
}

/// The same for entries of which a whole table is dropped.
struct MemoryOfMany(NonNull<u8>, Layout);

impl Drop for MemoryOfMany {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { recycle::free_of_many(self.0, self.1) };
    }
}

/// Implements what boxed forms share.
mod boxed {
    use super::*;

    pub(super) type Slot = AtomicPtr<()>;

    #[inline(always)]
    pub(super) fn get<E>(slot: &Slot, expected: Expected) -> Option<NonNull<E>> {
        // Acquire: pairs with the Release in `put` and `take`: the entry is seen as it was made.
        // litmus: bucket-boxed-entry, bucket-boxed-tag, bucket-boxed-removed
        let pointer = slot.load(Acquire);
        let is_expected = match expected {
            Expected::Any => true,
            Expected::Window(window) => (pointer.addr() >> WINDOW_SHIFT) as u16 == window,
        };
        if !is_expected {
            return None;
        }
        NonNull::new(pointer.map_addr(|address| address & ((1 << WINDOW_SHIFT) - 1)).cast())
    }

    #[inline(always)]
    pub(super) fn put<E>(slot: &Slot, new: Node<E>, window: u16) -> NonNull<E> {
        let entry = new.into_raw();
        let pointer = entry.as_ptr().map_addr(|address| address | (window as usize) << WINDOW_SHIFT);
        // Release: pairs with the Acquire in `get`. Whoever finds the pointer finds the tag.
        // litmus: bucket-boxed-entry, bucket-boxed-tag
        slot.store(pointer.cast(), Release);
        entry
    }

    pub(super) fn copy(from: &Slot, to: &Slot, window: u16) {
        // Relaxed: the lock has ordered the load, and no other thread can find the bucket of `to`
        // before it is published (bucket-moved).
        let pointer = from.load(Relaxed);
        let bits = (1 << WINDOW_SHIFT) - 1;
        to.store(pointer.map_addr(|address| address & bits | (window as usize) << WINDOW_SHIFT), Relaxed);
    }

    #[inline(always)]
    pub(super) fn take(slot: &Slot) {
        // Release: pairs with the Acquire in `get`. Lookups that find the null see what came
        // before, as with any other pointer.
        // litmus: bucket-boxed-removed
        slot.store(null_mut(), Release);
    }

    pub(super) fn window(slot: &Slot) -> u16 {
        // Relaxed: ordered by the lock.
        (slot.load(Relaxed).addr() >> WINDOW_SHIFT) as u16
    }
}

macro_rules! boxed_form {
    ($Form:ident, $Domain:ty) => {
        impl Form for $Form {
            const BOXED: bool = true;
            type Domain = $Domain;
            type Slot<E> = boxed::Slot;
            type New<E> = Node<E>;

            #[inline(always)]
            fn new<E>(entry: E) -> Node<E> {
                Node::new(entry)
            }

            #[inline(always)]
            fn entry<E>(new: &Node<E>) -> &E {
                // SAFETY: the node owns its entry.
                unsafe { new.0.as_ref() }
            }

            fn into_entry<E>(new: Node<E>) -> E {
                // SAFETY: the node owned its entry.
                unsafe { Self::move_out(new.into_raw()) }
            }

            fn empty_slot<E>() -> boxed::Slot {
                AtomicPtr::new(null_mut())
            }

            #[inline(always)]
            unsafe fn get<E>(slot: *const boxed::Slot, expected: Expected) -> Option<NonNull<E>> {
                // SAFETY: guaranteed by the caller.
                boxed::get(unsafe { &*slot }, expected)
            }

            #[inline(always)]
            unsafe fn put<E>(slot: *const boxed::Slot, new: Node<E>, window: u16) -> NonNull<E> {
                // SAFETY: guaranteed by the caller.
                boxed::put(unsafe { &*slot }, new, window)
            }

            #[inline(always)]
            unsafe fn copy<E>(from: *const boxed::Slot, to: *const boxed::Slot, window: u16) {
                // SAFETY: guaranteed by the caller.
                let (from, to) = unsafe { (&*from, &*to) };
                boxed::copy(from, to, window);
            }

            #[inline(always)]
            unsafe fn take<E>(slot: *const boxed::Slot) {
                // SAFETY: guaranteed by the caller.
                boxed::take(unsafe { &*slot });
            }

            unsafe fn window<E>(slot: *const boxed::Slot) -> u16 {
                // SAFETY: guaranteed by the caller.
                boxed::window(unsafe { &*slot })
            }

            #[inline]
            unsafe fn retire<E>(entry: NonNull<E>, domain: &Self::Domain, guard: &<Self::Domain as Readers>::Guard<'_>)
            where
                Self: Holds<E>,
            {
                let bytes = node_layout::<E>().size();
                // SAFETY: guaranteed by the caller, and by `Holds` for the thread that drops it.
                unsafe { Readers::defer(domain, guard, entry.cast(), bytes, |entry| dispose_node::<E>(entry.cast())) };
            }

            unsafe fn dispose<E>(entry: NonNull<E>) {
                let _memory = MemoryOfMany(entry.cast(), node_layout::<E>());
                // SAFETY: guaranteed by the caller.
                unsafe { entry.drop_in_place() };
            }

            unsafe fn move_out<E>(entry: NonNull<E>) -> E {
                let _memory = Memory(entry.cast(), node_layout::<E>());
                // SAFETY: guaranteed by the caller.
                unsafe { entry.read() }
            }
        }
    };
}

boxed_form!(Boxed, Process);
boxed_form!(Private, Domain);

impl Form for Inline {
    const BOXED: bool = false;
    type Domain = Process;
    type Slot<E> = UnsafeCell<MaybeUninit<E>>;
    type New<E> = E;

    #[inline(always)]
    fn new<E>(entry: E) -> E {
        entry
    }

    #[inline(always)]
    fn entry<E>(new: &E) -> &E {
        new
    }

    fn into_entry<E>(new: E) -> E {
        new
    }

    fn empty_slot<E>() -> Self::Slot<E> {
        UnsafeCell::new(MaybeUninit::uninit())
    }

    #[inline(always)]
    unsafe fn get<E>(slot: *const Self::Slot<E>, _: Expected) -> Option<NonNull<E>> {
        // SAFETY: guaranteed by the caller. (`with` tells loom that the entry is read.)
        Some(unsafe { (*slot).with(|entry| NonNull::new_unchecked(entry.cast_mut().cast())) })
    }

    #[inline(always)]
    unsafe fn put<E>(slot: *const Self::Slot<E>, new: E, _: u16) -> NonNull<E> {
        // SAFETY: the caller guarantees that this thread alone uses the slot.
        unsafe {
            (*slot).with_mut(|place| {
                place.write(MaybeUninit::new(new));
                NonNull::new_unchecked(place.cast())
            })
        }
    }

    unsafe fn copy<E>(from: *const Self::Slot<E>, to: *const Self::Slot<E>, _: u16) {
        // SAFETY: guaranteed by the caller.
        unsafe { (*from).with(|from| (*to).with_mut(|to| to.copy_from_nonoverlapping(from, 1))) };
    }

    #[inline(always)]
    unsafe fn take<E>(_: *const Self::Slot<E>) {}

    unsafe fn window<E>(_: *const Self::Slot<E>) -> u16 {
        0
    }

    #[inline]
    unsafe fn retire<E>(entry: NonNull<E>, domain: &Process, guard: &Guard)
    where
        Self: Holds<E>,
    {
        if !needs_drop::<E>() {
            return;
        }
        // The slot may be used again before the deferred function runs. So that function gets a
        // copy of the entry.
        // SAFETY: the slot is not written again in this section. Readers may still use the entry,
        // so this copies its bytes, and makes no second value of it.
        let copy = Node::new(unsafe { entry.cast::<MaybeUninit<E>>().read() });
        let bytes = node_layout::<E>().size();
        // SAFETY: as for boxed forms. `MaybeUninit` has the layout of its contents.
        unsafe { domain.defer(guard, copy.into_raw().cast(), bytes, |copy| dispose_node::<E>(copy.cast())) };
    }

    unsafe fn dispose<E>(entry: NonNull<E>) {
        // SAFETY: guaranteed by the caller.
        unsafe { entry.drop_in_place() };
    }

    unsafe fn move_out<E>(entry: NonNull<E>) -> E {
        // SAFETY: guaranteed by the caller.
        unsafe { entry.read() }
    }
}

/// A domain of readers: that of the process, or a private one.
pub trait Readers: Send + Sync + sealed::Domain {
    /// Proof of being in a read section.
    type Guard<'d>
    where
        Self: 'd;

    /// Creates a domain.
    fn new() -> Self;

    /// Enters a read section.
    fn enter(&self) -> Self::Guard<'_>;

    /// Shortens the lifetime of the domain.
    #[doc(hidden)]
    fn shorten<'a, 'd: 'a>(guard: &'a Self::Guard<'d>) -> &'a Self::Guard<'a>;

    /// Calls `reclaim(data)` after a grace period.
    ///
    /// # Safety
    ///
    /// As for [`relativist_rcu::defer_raw`] or [`Domain::defer_raw`].
    unsafe fn defer(&self, guard: &Self::Guard<'_>, data: NonNull<()>, bytes: usize, reclaim: unsafe fn(NonNull<()>));

    /// Calls a function with the index of this thread: see [`Guard::thread_index`].
    fn with_index<R>(guard: &Self::Guard<'_>, function: impl FnOnce(usize) -> R) -> R;

    /// Returns the number of the latest grace period that has begun.
    #[doc(hidden)]
    fn begun(guard: &Self::Guard<'_>) -> u64;

    /// Waits for readers, and runs what is due.
    #[doc(hidden)]
    fn wait(&self);
}

/// The domain of the process.
#[derive(Debug, Clone, Copy)]
pub struct Process;

impl sealed::Domain for Process {}
impl sealed::Domain for Domain {}

impl Readers for Process {
    type Guard<'d> = Guard;

    fn new() -> Self {
        // RCU chooses its barrier here, and not in the first operation on the table.
        relativist_rcu::active_barrier();
        Self
    }

    #[inline(always)]
    fn enter(&self) -> Guard {
        read()
    }

    fn shorten<'a, 'd: 'a>(guard: &'a Guard) -> &'a Guard {
        guard
    }

    #[inline(always)]
    unsafe fn defer(&self, guard: &Guard, data: NonNull<()>, bytes: usize, reclaim: unsafe fn(NonNull<()>)) {
        // SAFETY: guaranteed by the caller.
        unsafe { guard.defer_raw(data, bytes, reclaim) };
    }

    #[inline(always)]
    fn with_index<R>(guard: &Guard, function: impl FnOnce(usize) -> R) -> R {
        function(guard.thread_index())
    }

    #[inline(always)]
    fn begun(guard: &Guard) -> u64 {
        clock::begun(guard)
    }

    fn wait(&self) {
        // Runs what other threads have deferred, too: there may be no background thread.
        relativist_rcu::barrier();
    }
}

impl Readers for Domain {
    type Guard<'d> = DomainGuard<'d>;

    fn new() -> Self {
        Self::new()
    }

    #[inline(always)]
    fn enter(&self) -> DomainGuard<'_> {
        self.read()
    }

    fn shorten<'a, 'd: 'a>(guard: &'a DomainGuard<'d>) -> &'a DomainGuard<'a> {
        guard
    }

    #[inline(always)]
    unsafe fn defer(&self, _: &DomainGuard<'_>, data: NonNull<()>, bytes: usize, reclaim: unsafe fn(NonNull<()>)) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.defer_raw(data, bytes, reclaim) };
    }

    #[inline(always)]
    fn with_index<R>(_: &DomainGuard<'_>, function: impl FnOnce(usize) -> R) -> R {
        // The thread owns its index as long as it is in a section of the process.
        let registered = read();
        function(registered.thread_index())
    }

    fn begun(_: &DomainGuard<'_>) -> u64 {
        unreachable!("only inline slots are vacated, and their tables are in the domain of the process")
    }

    fn wait(&self) {
        self.wait_for_readers();
        self.reclaim();
    }
}

/// Where the parts of a group of slots are.
pub(crate) struct Geometry<E, F>(PhantomData<(E, F)>);

impl<E, F: Form> Geometry<E, F> {
    /// The link, with which a group begins.
    const LINK: Layout = Layout::new::<AtomicPtr<()>>();
    const SLOT: Layout = Layout::new::<F::Slot<E>>();
    /// The offset of the first slot.
    pub(crate) const SLOTS: usize = Self::LINK.size().next_multiple_of(Self::SLOT.align());
    const END: usize = Self::SLOTS + Word::SLOTS * Self::SLOT.size();
    pub(crate) const ALIGN: usize = if Self::SLOT.align() > 64 { Self::SLOT.align() } else { 64 };
    /// The size of a group, a multiple of a cache line.
    pub(crate) const SIZE: usize = Self::END.next_multiple_of(Self::ALIGN);
}

/// Returns the window of a hash in an array: 16 bits that follow the first `shift`.
#[inline(always)]
pub(crate) const fn window_of(hash: Hash, shift: u32) -> u16 {
    (hash.get() >> shift) as u16
}
