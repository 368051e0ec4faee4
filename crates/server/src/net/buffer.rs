//! Input and output buffers, and where idle ones are kept.
//!
//! A connection holds buffers only while something is in them. Between requests they lie in the [`Pool`] of its worker, so
//! thousands of idle connections cost no buffer memory, and busy ones share a few buffers that stay in the cache.

use crate::execute::Replies;
use relativist_cache::{Arrival, LARGE_VALUE};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem;

/// Size of a fresh input buffer.
const INPUT_SIZE: usize = 64 << 10;

/// What a connection receives at a time. It is decoded before more is received: that may belong to a large value, and goes where this will lie then,
/// instead of to an input that grows and is copied.
pub(super) const MAX_READ_BYTES: usize = LARGE_VALUE;

/// What a connection reads in one turn of a value that goes where it will lie. Others wait meanwhile.
const MAX_VALUE_READ: usize = 256 << 10;

/// Storage that an input keeps if next to nothing is in it.
const MIN_INPUT: usize = 512;

/// An output buffer that has grown beyond this is freed when it is empty.
const MAX_POOLED_OUTPUT: usize = 512 << 10;

/// Pieces that are sent at a time, of what does not lie in one.
pub(super) const MAX_PIECES: usize = 64;

/// Idle inputs kept.
const POOLED: usize = 16;

/// Bytes of idle outputs kept: where the kernel sends by itself, many are on their way at the same time.
const POOLED_OUTPUT: usize = 8 << 20;

/// Most of what arrives, and of what is answered, is no longer than that.
const SMALL: usize = 2 << 10;

/// Small buffers kept, of each kind: where the kernel delivers and sends by itself, every connection that is busy has some at the same time.
const SMALL_POOLED: usize = 1024;

/// Received bytes that were not consumed yet. All of the storage is initialised; `start..end` holds input.
#[derive(Debug, Default)]
pub(super) struct Input {
    storage: Vec<u8>,
    start: usize,
    end: usize,
    /// A value that is received to where it will lie: what comes belongs to it until it is complete.
    arrival: Option<Box<Arrival>>,
}

/// What is to be sent. Nothing is appended while some of it was sent and some not.
#[derive(Debug, Default)]
pub(super) struct Output {
    replies: Replies,
    /// Of the bytes.
    sent: usize,
    /// Of the first of the values that lie elsewhere.
    sent_of_value: usize,
}

/// Buffers without an owner.
#[derive(Debug, Default)]
pub(super) struct Pool {
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
    /// Bytes of these.
    output_bytes: usize,
    /// Of [`SMALL`] bytes.
    small_inputs: Vec<Vec<u8>>,
    /// Of no more than that.
    small_outputs: Vec<Vec<u8>>,
}

impl Input {
    /// What was received and not consumed.
    pub(super) fn unread(&self) -> &[u8] {
        &self.storage[self.start..self.end]
    }

    /// The same, to be changed in place.
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

    /// Reads once, [`MAX_READ_BYTES`] or as much as there is room for. Returns how much, and whether that was all it would have taken, so that there
    /// may be more to read.
    pub(super) fn fill_from(&mut self, source: &mut impl Read) -> io::Result<(usize, bool)> {
        self.make_room(1);
        if self.arrival.is_some() {
            return self.fill_both_from(source);
        }
        let end = self.storage.len().min(self.end + MAX_READ_BYTES);
        let room = &mut self.storage[self.end..end];
        let count = source.read(room)?;
        let is_filled = count == room.len();
        self.end += count;
        Ok((count, is_filled))
    }

    /// The same, of what is expected first, and what follows only if all of that may come at once.
    #[cold]
    fn fill_both_from(&mut self, source: &mut impl Read) -> io::Result<(usize, bool)> {
        let rest = self.arrival.as_mut().map_or(&mut [][..], |arrival| arrival.rest());
        let (rest, beyond) = rest.split_at_mut(rest.len().min(MAX_VALUE_READ));
        let room = if beyond.is_empty() { &mut self.storage[self.end..] } else { &mut [] };
        let (wanted, most) = (rest.len(), rest.len() + room.len());
        let count = source.read_vectored(&mut [IoSliceMut::new(rest), IoSliceMut::new(room)])?;
        self.arrival.iter_mut().for_each(|arrival| arrival.note_received(count.min(wanted)));
        self.end += count.saturating_sub(wanted);
        Ok((count, count == most))
    }

    /// Lets a value be received apart: what is unread belongs to it as far as it goes, and so does what comes.
    pub(super) fn expect(&mut self, mut arrival: Box<Arrival>) {
        let count = arrival.take(self.unread());
        self.consume(count);
        self.arrival = Some(arrival);
    }

    /// Whether a value is being received apart.
    pub(super) fn is_expecting(&self) -> bool {
        self.missing() > 0
    }

    /// How much is missing of the value that is received apart, if one is.
    pub(super) fn missing(&self) -> usize {
        self.arrival.as_ref().map_or(0, |arrival| arrival.missing())
    }

    /// Whether it keeps a value's room on loan.
    pub(super) fn has_loan(&self) -> bool {
        self.arrival.is_some()
    }

    /// Whether there is nothing in it to work on: no bytes, and no value that has arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.unread().is_empty() && self.arrival.as_ref().is_none_or(|arrival| !arrival.is_complete())
    }

    /// Hands what is expected over to `other`, where nothing is unread.
    pub(super) fn pass_expectation(&mut self, other: &mut Input) {
        debug_assert!(other.unread().is_empty() && other.arrival.is_none());
        other.arrival = self.arrival.take();
    }

    /// The value that was received apart, if it is complete, and `behind` bytes are unread behind it.
    pub(super) fn take_arrival(&mut self, behind: usize) -> Option<Box<Arrival>> {
        let is_there = self.unread().len() >= behind;
        self.arrival.take_if(|arrival| is_there && arrival.is_complete())
    }

    /// Lets what is expected have as many of `bytes` as belong to it, and returns the others.
    pub(super) fn pass_on<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        match &mut self.arrival {
            Some(arrival) => &bytes[arrival.take(bytes)..],
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

    /// Adds all that `other` holds, which is empty then.
    pub(super) fn take_from(&mut self, other: &mut Input) {
        if self.unread().is_empty() && self.arrival.is_none() {
            mem::swap(self, other);
        } else {
            self.append(other.unread());
            other.consume(other.unread().len());
        }
    }

    /// Bytes that it occupies.
    pub(super) fn capacity(&self) -> usize {
        self.storage.capacity()
    }

    /// Makes room for `count` bytes at the end. What is unread moves to the front: that is seldom more than a part of a command. If
    /// that is not enough, the storage doubles: the size grows with what a client has sent, not with what it has announced.
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

    /// Moves what is unread to storage of about its size, if it has much more than that.
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
    /// Where to append. There is nothing in it that was sent already.
    pub(super) fn replies(&mut self) -> &mut Replies {
        debug_assert_eq!(self.sent, 0);
        &mut self.replies
    }

    /// The same, for bytes alone.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.replies().bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        // No value comes without bytes before it, and those stay until all is sent.
        self.replies.bytes.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.replies.len()
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

    /// What is to be sent, if all of it lies here.
    pub(super) fn in_one_piece(&self) -> Option<&[u8]> {
        self.replies.values.is_empty().then(|| &self.replies.bytes[self.sent..])
    }

    /// The pieces of what is to be sent, or of the first `most` bytes of it, in their order.
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

    /// Fills `slots` with the first pieces, of `most` bytes at most, each as `slot` has it, and returns how many that are.
    pub(super) fn fill<'o, T>(&'o self, slots: &mut [T], most: usize, slot: impl Fn(&'o [u8]) -> T) -> usize {
        slots.iter_mut().zip(self.pieces(most)).map(|(place, piece)| *place = slot(piece)).count()
    }

    /// The first `count` bytes were sent.
    pub(super) fn advance(&mut self, count: usize) {
        self.sent += if self.replies.values.is_empty() { count } else { self.advance_values(count) };
        debug_assert!(self.sent <= self.replies.bytes.len());
        if self.sent == self.replies.bytes.len() && self.replies.values.is_empty() {
            self.replies.bytes.clear();
            self.sent = 0;
        }
    }

    /// The same for the values that lie elsewhere, and what comes before them. Returns how much of it comes behind.
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

    /// Whether it keeps values on loan.
    pub(super) fn has_loans(&self) -> bool {
        !self.replies.values.is_empty()
    }

    /// Bytes that it occupies. (What lies elsewhere counts there.)
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

    /// How many idle outputs there are.
    #[cfg(test)]
    pub(super) fn idle_outputs(&self) -> usize {
        self.outputs.len() + self.small_outputs.len()
    }

    /// Gives storage to an output that has none.
    pub(super) fn lend_output(&mut self, output: &mut Output) {
        if output.capacity() == 0 {
            let large = self.outputs.pop().inspect(|bytes| self.output_bytes -= bytes.capacity());
            output.replies.bytes = large.or_else(|| self.small_outputs.pop()).unwrap_or_default();
        }
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

    /// The same of an output.
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
mod tests {
    use super::*;
    use relativist_cache::Clock;
    use relativist_cache::{Cache, Content, LARGE_VALUE, Mode, Outline, Store};
    use std::sync::Arc;

    /// Takes so many bytes and then blocks.
    struct Sink(usize, Vec<u8>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.0).min(3);
            if count == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.0 -= count;
            self.1.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn input_keeps_its_bytes_when_it_moves_and_grows() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
        let mut source = &bytes[..];
        let mut input = Input::default();
        assert_eq!(input.fill_from(&mut source).unwrap(), (MAX_READ_BYTES, true));
        input.consume(10);
        while !source.is_empty() {
            input.fill_from(&mut source).unwrap();
        }
        assert_eq!(input.unread(), &bytes[10..]);
        assert_eq!(input.fill_from(&mut source).unwrap(), (0, false));
    }

    #[test]
    fn input_does_not_grow_ahead_of_what_was_sent() {
        let mut input = Input::default();
        input.fill_from(&mut &b"set k 0 0 1048000"[..]).unwrap();
        assert_eq!(input.storage.len(), INPUT_SIZE);
    }

    #[test]
    fn output_goes_on_where_it_was_blocked() {
        let mut output = Output::default();
        output.bytes().extend_from_slice(b"0123456789");
        let mut sink = Sink(4, Vec::new());
        assert_eq!(output.drain_into(&mut sink).unwrap(), 4);
        assert!(!output.is_empty());
        sink.0 = 100;
        assert_eq!(output.drain_into(&mut sink).unwrap(), 6);
        assert!(output.is_empty());
        assert_eq!(sink.1, b"0123456789");
    }

    /// Two values on loan among bytes, the last one without anything behind it; sent in pieces of every size.
    #[test]
    fn output_sends_values_from_where_they_lie() {
        let engine = Cache::new(Arc::new(Clock::new(1)), 8 << 20, 1 << 20).unwrap();
        let value = |letter| vec![letter; LARGE_VALUE + usize::from(letter)];
        for letter in [b'a', b'b'] {
            let content = Content { flags: 0, exptime: 0, value: &value(letter) };
            assert_eq!(engine.store(Mode::Set, &[letter], content), Store::Stored);
        }
        let whole = [b"first", &*value(b'a'), b"between", &value(b'b')].concat();
        for step in (1..8).chain([100, LARGE_VALUE, whole.len() - 1, whole.len()]) {
            let mut output = Output::default();
            for (text, key) in [("first", b"a"), ("between", b"b")] {
                output.bytes().extend_from_slice(text.as_bytes());
                engine.get(key, |hit| output.replies().append(hit.lease().unwrap()));
            }
            assert_eq!(output.len(), whole.len());
            let mut sent = Vec::new();
            while !output.is_empty() {
                let left = output.pieces(step).collect::<Vec<_>>().concat();
                assert_eq!(left.len(), step.min(whole.len() - sent.len()));
                output.advance(left.len());
                sent.extend(left);
            }
            assert!(sent == whole, "in steps of {step}");
            assert_eq!((output.len(), engine.usage().lent_bytes), (0, 0));
        }
    }

    /// The value first, then what follows it, however it comes.
    #[test]
    fn input_goes_to_what_is_expected_first() {
        let engine = Cache::new(Arc::new(Clock::new(1)), 8 << 20, 1 << 20).unwrap();
        let outline = Outline { key_len: 1, value_len: 100_000, has_flags: false, has_unique: false };
        let bytes: Vec<u8> = (0..100_100_u32).map(|i| (i % 251) as u8).collect();
        for by_reading in [true, false] {
            let (mut input, mut other) = (Input::default(), Input::default());
            input.append(&bytes[..10]);
            input.expect(Box::new(engine.expect(&outline).unwrap()));
            assert!(input.is_empty() && input.is_expecting() && input.unread().is_empty());
            input.pass_expectation(&mut other);
            assert!(!input.is_expecting() && other.is_expecting());
            input.take_from(&mut other);
            let mut source = &bytes[10..];
            while !source.is_empty() {
                assert!(input.take_arrival(0).is_none() || input.unread().len() == 100);
                let (mut piece, rest) = source.split_at(source.len().min(if by_reading { 70_000 } else { 9_001 }));
                if by_reading {
                    assert_eq!(input.fill_from(&mut piece).unwrap(), (70_000.min(source.len()), false));
                } else {
                    input.append(piece);
                }
                source = rest;
            }
            assert!(!input.is_expecting() && !input.is_empty());
            assert!(input.take_arrival(101).is_none());
            assert_eq!(input.take_arrival(100).unwrap().value(), &bytes[..100_000]);
            assert_eq!(input.unread(), &bytes[100_000..]);
        }
    }

    #[test]
    fn a_turn_reads_a_bounded_part_of_a_value() {
        const LENGTH: usize = 2 * MAX_VALUE_READ + 1;
        let engine = Cache::new(Arc::new(Clock::new(1)), 8 << 20, 1 << 20).unwrap();
        let outline = Outline { key_len: 1, value_len: LENGTH, has_flags: false, has_unique: false };
        let bytes: Vec<u8> = (0..LENGTH as u32 + 100).map(|i| (i % 251) as u8).collect();
        let mut source = &bytes[..];
        let mut input = Input::default();
        input.expect(Box::new(engine.expect(&outline).unwrap()));
        for expected in [(MAX_VALUE_READ, true), (MAX_VALUE_READ, true), (101, false)] {
            assert_eq!(input.fill_from(&mut source).unwrap(), expected);
        }
        assert!(input.take_arrival(100).unwrap().value() == &bytes[..LENGTH] && input.unread() == &bytes[LENGTH..]);
    }

    #[test]
    fn the_pool_takes_back_empty_buffers_only() {
        let (mut pool, mut input, mut output) = (Pool::default(), Input::default(), Output::default());
        input.fill_from(&mut &b"x"[..]).unwrap();
        output.bytes().push(b'y');
        pool.take_back_input(&mut input);
        pool.take_back_output(&mut output);
        assert!(pool.inputs.is_empty() && pool.outputs.is_empty() && pool.small_outputs.is_empty());
        input.consume(1);
        output.drain_into(&mut io::sink()).unwrap();
        pool.take_back_input(&mut input);
        pool.take_back_output(&mut output);
        assert_eq!((pool.inputs.len(), pool.small_outputs.len()), (1, 1));
        pool.lend_input(&mut input);
        assert_eq!(input.storage.len(), INPUT_SIZE);
        let mut small = Input::default();
        pool.lend_input_for(5, &mut small);
        small.append(b"small");
        assert_eq!((small.unread(), small.capacity()), (&b"small"[..], SMALL));
        small.consume(5);
        pool.take_back_input(&mut small);
        assert_eq!(pool.small_inputs.len(), 1);
    }

    #[test]
    fn what_is_left_of_much_input_takes_little() {
        let (mut pool, mut input) = (Pool::default(), Input::default());
        let bytes: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
        bytes.chunks(9_000).for_each(|chunk| input.append(chunk));
        input.consume(199_000);
        input.shrink();
        assert_eq!((input.unread(), input.capacity()), (&bytes[199_000..], 1024));
        pool.inputs.push(vec![0; INPUT_SIZE]);
        pool.lend_input(&mut input);
        let mut more = Input::default();
        more.append(b"more");
        input.take_from(&mut more);
        assert!(more.unread().is_empty());
        assert_eq!((input.unread(), input.capacity()), (&[&bytes[199_000..], b"more"].concat()[..], INPUT_SIZE));
    }
}
