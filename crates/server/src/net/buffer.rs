//! Input and output buffers, and where idle ones are kept.
//!
//! A connection holds buffers only while something is in them. Between requests they are in the
//! [`Pool`] of its worker. So thousands of idle connections cost no buffer memory, and busy ones
//! share a few buffers that stay in the CPU's cache.

use crate::execute::Replies;
use relativist_store::{LARGE_VALUE, ReservedValue};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem;

/// Size of a fresh input buffer.
const INPUT_SIZE: usize = 64 << 10;

/// The maximum bytes received at a time. They are decoded before more is received: if they begin a
/// large value, the rest is received directly into memory of the cache, not into an input that
/// grows and is copied.
pub(super) const MAX_READ_BYTES: usize = LARGE_VALUE;

/// The bytes of a large value that a connection reads before other connections are served.
const MAX_VALUE_READ: usize = 256 << 10;

/// The storage that an input keeps if it holds almost nothing.
const MIN_INPUT: usize = 512;

/// An output buffer that has grown beyond this is freed when it is empty.
const MAX_POOLED_OUTPUT: usize = 512 << 10;

/// The maximum number of pieces sent by one system call.
pub(super) const MAX_PIECES: usize = 64;

/// Maximum number of idle inputs.
const POOLED: usize = 16;

/// Maximum bytes of idle outputs: where the kernel sends asynchronously, many outputs are in use at
/// a time.
const POOLED_OUTPUT: usize = 8 << 20;

/// The size of small buffers. Most requests and replies are not longer.
const SMALL: usize = 2 << 10;

/// Maximum number of idle small buffers of each kind. Where the kernel receives and sends
/// asynchronously, every busy connection uses some.
const SMALL_POOLED: usize = 1024;

/// Received bytes that were not consumed yet. All of the storage is initialised; `start..end` holds
/// input.
#[derive(Debug, Default)]
pub(super) struct Input {
    storage: Vec<u8>,
    start: usize,
    end: usize,
    /// A value that is received into memory of the cache. All input belongs to it until it is
    /// complete.
    reserved: Option<Box<ReservedValue>>,
}

/// Bytes to be sent. Nothing is appended after a part of them was sent.
#[derive(Debug, Default)]
pub(super) struct Output {
    replies: Replies,
    /// The number of bytes sent.
    sent: usize,
    /// The number of bytes sent of the first pinned value.
    sent_of_value: usize,
}

/// Buffers that no connection uses.
#[derive(Debug, Default)]
pub(super) struct Pool {
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
    /// The capacity of all `outputs`.
    output_bytes: usize,
    /// Inputs of [`SMALL`] bytes.
    small_inputs: Vec<Vec<u8>>,
    /// Outputs of at most [`SMALL`] bytes.
    small_outputs: Vec<Vec<u8>>,
}

impl Input {
    /// The bytes that were received and not consumed.
    pub(super) fn unread(&self) -> &[u8] {
        &self.storage[self.start..self.end]
    }

    /// The same bytes, to be changed in place.
    pub(super) fn unread_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.end]
    }

    /// Drops the first `count` unread bytes.
    pub(super) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.unread().len());
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads once, at most [`MAX_READ_BYTES`] or as much as there is room for. Returns the number
    /// of bytes, and whether all of the room was filled, so that there may be more to read.
    pub(super) fn fill_from(&mut self, source: &mut impl Read) -> io::Result<(usize, bool)> {
        self.make_room(1);
        if self.reserved.is_some() {
            return self.fill_both_from(source);
        }
        let end = self.storage.len().min(self.end + MAX_READ_BYTES);
        let room = &mut self.storage[self.end..end];
        let count = source.read(room)?;
        let is_filled = count == room.len();
        self.end += count;
        Ok((count, is_filled))
    }

    /// Reads into the expected value first, and what follows it only if all of the value may be
    /// read at once.
    #[cold]
    fn fill_both_from(&mut self, source: &mut impl Read) -> io::Result<(usize, bool)> {
        let rest = self.reserved.as_mut().map_or(&mut [][..], |reserved| reserved.rest());
        let (rest, beyond) = rest.split_at_mut(rest.len().min(MAX_VALUE_READ));
        let room = if beyond.is_empty() { &mut self.storage[self.end..] } else { &mut [] };
        let (wanted, most) = (rest.len(), rest.len() + room.len());
        let count = source.read_vectored(&mut [IoSliceMut::new(rest), IoSliceMut::new(room)])?;
        self.reserved.iter_mut().for_each(|reserved| reserved.note_received(count.min(wanted)));
        self.end += count.saturating_sub(wanted);
        Ok((count, count == most))
    }

    /// Receives a value into memory of the cache from now on. The unread bytes belong to it as far
    /// as it goes.
    pub(super) fn expect(&mut self, mut reserved: Box<ReservedValue>) {
        let count = reserved.take(self.unread());
        self.consume(count);
        self.reserved = Some(reserved);
    }

    /// Whether bytes of the expected value are missing.
    pub(super) fn is_expecting(&self) -> bool {
        self.missing() > 0
    }

    /// The number of missing bytes of the expected value.
    pub(super) fn missing(&self) -> usize {
        self.reserved.as_ref().map_or(0, |reserved| reserved.missing())
    }

    /// Whether it pins memory of the cache for a value.
    pub(super) fn pins_memory(&self) -> bool {
        self.reserved.is_some()
    }

    /// Whether it has nothing to execute: no bytes, and no complete value.
    pub(super) fn is_empty(&self) -> bool {
        self.unread().is_empty() && self.reserved.as_ref().is_none_or(|reserved| !reserved.is_complete())
    }

    /// Hands the expected value over to `other`, which has no unread bytes.
    pub(super) fn pass_expectation(&mut self, other: &mut Input) {
        debug_assert!(other.unread().is_empty() && other.reserved.is_none());
        other.reserved = self.reserved.take();
    }

    /// Takes the received value if it is complete and at least `behind` bytes follow it.
    pub(super) fn take_reserved(&mut self, behind: usize) -> Option<Box<ReservedValue>> {
        let is_there = self.unread().len() >= behind;
        self.reserved.take_if(|reserved| is_there && reserved.is_complete())
    }

    /// Takes the bytes that belong to the expected value, and returns the others.
    pub(super) fn pass_on<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        match &mut self.reserved {
            Some(reserved) => &bytes[reserved.take(bytes)..],
            None => bytes,
        }
    }

    /// Adds `bytes`.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        let bytes = self.pass_on(bytes);
        self.make_room(bytes.len());
        self.storage[self.end..][..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Moves everything that `other` holds into this input.
    pub(super) fn take_from(&mut self, other: &mut Input) {
        if self.unread().is_empty() && self.reserved.is_none() {
            mem::swap(self, other);
        } else {
            self.append(other.unread());
            other.consume(other.unread().len());
        }
    }

    /// The size of its storage, in bytes.
    pub(super) fn capacity(&self) -> usize {
        self.storage.capacity()
    }

    /// Makes room for `count` bytes at the end. Unread bytes move to the front; they are seldom
    /// more than a part of a command. If that is not enough, the storage doubles: it grows with the
    /// bytes that a client has sent, not with those that it has announced.
    fn make_room(&mut self, count: usize) {
        if self.storage.len() - self.end >= count && self.start == 0 {
            return;
        }
        if self.start > 0 {
            self.storage.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.storage.len() - self.end < count {
            let size = (self.storage.len() * 2).max(self.end + count).max(INPUT_SIZE);
            self.storage.resize(size, 0);
        }
    }

    /// Moves the unread bytes to smaller storage, if they fill less than a quarter of it.
    pub(super) fn shrink(&mut self) {
        let fitting = self.unread().len().next_power_of_two().max(MIN_INPUT);
        if !self.storage.is_empty() && self.storage.len() / 4 >= fitting {
            let mut storage = Vec::with_capacity(fitting);
            storage.extend_from_slice(self.unread());
            storage.resize(fitting, 0);
            (self.start, self.end) = (0, self.unread().len());
            self.storage = storage;
        }
    }
}

impl Output {
    /// The replies to append to. None of them was sent yet.
    pub(super) fn replies(&mut self) -> &mut Replies {
        debug_assert_eq!(self.sent, 0);
        &mut self.replies
    }

    /// The bytes of the replies.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.replies().bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        // Bytes precede every pinned value, and stay until everything was sent.
        self.replies.bytes.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.replies.len()
    }

    /// Whether a small buffer is enough for the bytes.
    pub(super) fn is_small(&self) -> bool {
        self.replies.bytes.len() <= SMALL
    }

    /// Writes what `sink` takes, and returns how much. The buffer is empty when all was taken.
    pub(super) fn drain_into(&mut self, sink: &mut impl Write) -> io::Result<usize> {
        let mut total = 0;
        while !self.is_empty() {
            let written = match self.in_one_piece() {
                Some(bytes) => sink.write(bytes),
                None => self.write_pieces_to(sink),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    total += count;
                    self.advance(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    #[cold]
    fn write_pieces_to(&self, sink: &mut impl Write) -> io::Result<usize> {
        let mut slices = [IoSlice::new(b""); MAX_PIECES];
        let count = self.fill(&mut slices, usize::MAX, IoSlice::new);
        sink.write_vectored(&slices[..count])
    }

    /// The bytes to be sent, if no pinned value is among them.
    pub(super) fn in_one_piece(&self) -> Option<&[u8]> {
        self.replies.values.is_empty().then(|| &self.replies.bytes[self.sent..])
    }

    /// The pieces to be sent, in order, at most `most` bytes in all.
    pub(super) fn pieces(&self, most: usize) -> impl Iterator<Item = &[u8]> {
        let Replies { bytes, values, .. } = &self.replies;
        let (mut start, mut skipped, mut left) = (self.sent, self.sent_of_value, most);
        let last = values.back().map_or(start, |&(place, _)| place);
        let before_last = values.iter().flat_map(move |(place, value)| {
            let (from, skipped) = (mem::replace(&mut start, *place), mem::take(&mut skipped));
            [&bytes[from..*place], &value[skipped..]]
        });
        let whole = before_last.chain([&bytes[last..]]);
        let within = whole.map(move |piece| {
            let count = piece.len().min(left);
            left -= count;
            &piece[..count]
        });
        within.filter(|piece| !piece.is_empty())
    }

    /// Fills `slots` with the first pieces, at most `most` bytes in all, converted by `slot`.
    /// Returns the number of pieces.
    pub(super) fn fill<'o, T>(&'o self, slots: &mut [T], most: usize, slot: impl Fn(&'o [u8]) -> T) -> usize {
        slots.iter_mut().zip(self.pieces(most)).map(|(place, piece)| *place = slot(piece)).count()
    }

    /// Notes that the first `count` bytes were sent.
    pub(super) fn advance(&mut self, count: usize) {
        self.sent += if self.replies.values.is_empty() { count } else { self.advance_values(count) };
        debug_assert!(self.sent <= self.replies.bytes.len());
        if self.sent == self.replies.bytes.len() && self.replies.values.is_empty() {
            self.replies.bytes.clear();
            self.sent = 0;
        }
    }

    /// Notes that `count` bytes up to the last pinned value were sent. Returns how many of the
    /// bytes after it were sent.
    #[cold]
    fn advance_values(&mut self, mut count: usize) -> usize {
        while let Some((place, value)) = self.replies.values.front() {
            let of_bytes = count.min(place - self.sent);
            let of_value = (count - of_bytes).min(value.len() - self.sent_of_value);
            count -= of_bytes + of_value;
            self.sent += of_bytes;
            self.sent_of_value += of_value;
            if self.sent_of_value < value.len() {
                break;
            }
            self.replies.drop_first_value();
            self.sent_of_value = 0;
        }
        count
    }

    /// Whether it pins memory of items.
    pub(super) fn pins_memory(&self) -> bool {
        !self.replies.values.is_empty()
    }

    /// The bytes that it occupies, without pinned values.
    pub(super) fn capacity(&self) -> usize {
        self.replies.bytes.capacity()
    }
}

impl Pool {
    /// Gives storage to an input that has none, or too little to read much at once.
    pub(super) fn lend_input(&mut self, input: &mut Input) {
        if input.storage.len() >= INPUT_SIZE {
            return;
        }
        if let Some(storage) = self.inputs.pop() {
            let (small, start, end) = (mem::replace(&mut input.storage, storage), input.start, input.end);
            (input.start, input.end) = (0, end - start);
            if end > start {
                input.storage[..end - start].copy_from_slice(&small[start..end]);
            }
        }
    }

    /// Gives storage for `count` bytes to an input that has none.
    pub(super) fn lend_input_for(&mut self, count: usize, input: &mut Input) {
        if count > SMALL {
            self.lend_input(input);
        } else if input.storage.is_empty() {
            input.storage = self.small_inputs.pop().unwrap_or_else(|| vec![0; SMALL]);
        }
    }

    /// The bytes of all idle buffers.
    pub(super) fn bytes(&self) -> usize {
        let small = self.small_inputs.len() + self.small_outputs.len();
        self.inputs.len() * INPUT_SIZE + self.output_bytes + small * SMALL
    }

    /// The number of idle outputs.
    #[cfg(test)]
    pub(super) fn idle_outputs(&self) -> usize {
        self.outputs.len() + self.small_outputs.len()
    }

    /// Gives storage to an output that has none. `is_small` if few bytes are expected: then all of
    /// a larger storage would count as held until they were sent.
    pub(super) fn lend_output(&mut self, is_small: bool, output: &mut Output) {
        if output.capacity() > 0 {
            return;
        }
        let large = if is_small { None } else { self.outputs.pop() };
        output.replies.bytes = match large {
            Some(bytes) => {
                self.output_bytes -= bytes.capacity();
                bytes
            }
            None => self.small_outputs.pop().unwrap_or_default(),
        };
    }

    /// Takes back the storage of an input if it is empty. If it has grown, it is freed.
    pub(super) fn take_back_input(&mut self, input: &mut Input) {
        if input.unread().is_empty() {
            let storage = mem::take(&mut input.storage);
            if storage.len() == INPUT_SIZE && self.inputs.len() < POOLED {
                self.inputs.push(storage);
            } else if storage.len() == SMALL && self.small_inputs.len() < SMALL_POOLED {
                self.small_inputs.push(storage);
            }
        }
    }

    /// Takes back the storage of an output if it is empty, unless it has grown.
    pub(super) fn take_back_output(&mut self, output: &mut Output) {
        if output.is_empty() {
            let bytes = mem::take(&mut output.replies.bytes);
            match bytes.capacity() {
                0 => (),
                1..=SMALL if self.small_outputs.len() < SMALL_POOLED => self.small_outputs.push(bytes),
                capacity @ 1..=MAX_POOLED_OUTPUT if self.output_bytes + capacity <= POOLED_OUTPUT => {
                    self.output_bytes += capacity;
                    self.outputs.push(bytes);
                }
                _ => (),
            }
        }
    }
}

#[cfg(test)]
mod tests;
