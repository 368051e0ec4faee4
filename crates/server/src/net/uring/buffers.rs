//! Buffers that the kernel selects when bytes arrive ("provided buffers"): a ring of descriptors,
//! shared with the kernel, and the memory that they describe.

use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

/// The number of buffers, a power of two. It bounds what can arrive between two passes over the
/// completions. When no buffer is left, the kernel ends the receive operations that need one, and
/// the server starts them again.
const COUNT: u16 = 256;

/// The size of a buffer.
const SIZE: usize = 8 << 10;

/// The distance between buffers. A multiple of 8 KiB would place all of them in the same few cache
/// sets.
const STRIDE: usize = SIZE + 192;

/// The ring's name among the rings of provided buffers.
pub(super) const GROUP: u16 = 0;

/// The buffers. The kernel writes to those that were given to it and not returned.
pub(super) struct Buffers {
    /// A page of descriptors, and then the buffers.
    memory: NonNull<u8>,
    /// Buffers given to the kernel so far, modulo 2^16.
    tail: u16,
}

// SAFETY: only the owner and the kernel use the memory, and the kernel does not depend on threads.
unsafe impl Send for Buffers {}

const DESCRIPTORS: usize = COUNT as usize * size_of::<BufRingEntry>();

const _: () = assert!(COUNT.is_power_of_two() && DESCRIPTORS.is_multiple_of(4096));

/// The bytes of all buffers and their descriptors.
pub(super) const LENGTH: NonZeroUsize =
    NonZeroUsize::new(DESCRIPTORS + COUNT as usize * STRIDE).expect("there are buffers");

impl Buffers {
    /// Allocates the buffers, but does not give them to the kernel yet.
    pub(super) fn new() -> io::Result<Buffers> {
        // SAFETY: fresh memory, which replaces none.
        let memory = unsafe {
            mmap_anonymous(None, LENGTH, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE)
        }?;
        Ok(Buffers { memory: memory.cast(), tail: 0 })
    }

    /// Gives all of them to the kernel.
    ///
    /// # Safety
    /// The buffers must outlive every operation of that ring that selects a buffer of [`GROUP`].
    pub(super) unsafe fn register(&mut self, submitter: &Submitter<'_>) -> io::Result<()> {
        let address = self.memory.addr().get() as u64;
        // SAFETY: a page-aligned mapping with room for `COUNT` descriptors, which outlives the
        // operations by the caller's promise. The kernel holds its own reference to the page of
        // descriptors.
        unsafe { submitter.register_buf_ring_with_flags(address, COUNT, GROUP, 0) }?;
        (0..COUNT).for_each(|buffer| self.give(buffer));
        Ok(())
    }

    /// The bytes that the kernel has put into this buffer since it was given the buffer.
    ///
    /// # Panics
    /// If there is no such buffer, or no such length.
    pub(super) fn received(&self, buffer: u16, length: usize) -> &[u8] {
        assert!(buffer < COUNT && length <= SIZE);
        // SAFETY: within the mapping, initialised when mapped. The kernel does not write to it: it
        // has handed the buffer over with the completion, and gets it back by `give`, for which
        // this borrow must have ended.
        unsafe { NonNull::slice_from_raw_parts(self.start(buffer), length).as_ref() }
    }

    /// Gives a buffer to the kernel.
    ///
    /// # Panics
    /// If there is no such buffer.
    pub(super) fn give(&mut self, buffer: u16) {
        assert!(buffer < COUNT);
        let address = self.start(buffer).addr().get() as u64;
        let entries = self.memory.cast::<BufRingEntry>();
        // SAFETY: within the page of descriptors. The kernel does not read this entry: there are as
        // many entries as buffers, so the entry at the tail is free.
        let entry = unsafe { entries.add(usize::from(self.tail % COUNT)).as_mut() };
        entry.set_addr(address);
        entry.set_len(SIZE as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the page begins with an entry.
        let tail = unsafe { BufRingEntry::tail(entries.as_ptr()) };
        // SAFETY: an aligned field in the mapping, which is written here only; the kernel reads it
        // atomically.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: pairs with the kernel's acquiring load of the tail, so that the kernel sees the
        // descriptor.
        tail.store(self.tail, Ordering::Release);
    }

    fn start(&self, buffer: u16) -> NonNull<u8> {
        // SAFETY: within the mapping for each buffer that there is.
        unsafe { self.memory.add(DESCRIPTORS + usize::from(buffer) * STRIDE) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length. There are no borrows, and the kernel does not
        // use it any more, by the promise made to `register`. If unmapping fails, the memory leaks.
        let _ = unsafe { munmap(self.memory.cast::<c_void>(), LENGTH.get()) };
    }
}
