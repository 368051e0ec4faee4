//! Input and output buffers, and where idle ones are kept.
//!
//! A connection holds buffers only while something is in them. Between requests they lie in the [`Pool`] of its worker, so
//! thousands of idle connections cost no buffer memory, and busy ones share a few buffers that stay in the cache.

use std::io::{self, Read, Write};

/// Size of a fresh input buffer, and so of what a connection reads in one turn.
const INPUT_SIZE: usize = 64 << 10;

/// Storage that an input keeps if next to nothing is in it.
const SMALLEST_INPUT: usize = 512;

/// An output buffer that has grown beyond this is freed when it is empty.
const LARGEST_POOLED_OUTPUT: usize = 512 << 10;

/// Idle buffers kept, of each kind.
const POOLED: usize = 16;

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
}

/// Bytes to be sent. Nothing is appended while some of it was sent and some not.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

/// Buffers without an owner.
#[derive(Debug, Default)]
pub(super) struct Pool {
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
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

    /// Drops the first `count` unread bytes.
    pub(super) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.unread().len());
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads once, as much as there is room for. Returns how much, and whether that filled the room, so that there may be
    /// more to read.
    pub(super) fn fill_from(&mut self, source: &mut impl Read) -> io::Result<(usize, bool)> {
        self.make_room(1);
        let room = &mut self.storage[self.end..];
        let count = source.read(room)?;
        let is_filled = count == room.len();
        self.end += count;
        Ok((count, is_filled))
    }

    /// Adds `bytes`.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.storage[self.end..][..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Adds all that `other` holds, which is empty then.
    pub(super) fn take_from(&mut self, other: &mut Input) {
        if self.unread().is_empty() {
            std::mem::swap(self, other);
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
        let fitting = self.unread().len().next_power_of_two().max(SMALLEST_INPUT);
        if !self.storage.is_empty() && self.storage.len() / 4 >= fitting {
            let mut storage = Vec::with_capacity(fitting);
            storage.extend_from_slice(self.unread());
            storage.resize(fitting, 0);
            *self = Input { start: 0, end: self.unread().len(), storage };
        }
    }
}

impl Output {
    /// Where to append. There is nothing in it that was sent already.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        debug_assert_eq!(self.sent, 0);
        &mut self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Writes what `sink` takes, and returns how much. The buffer is empty when all was taken.
    pub(super) fn drain_into(&mut self, sink: &mut impl Write) -> io::Result<usize> {
        let mut total = 0;
        while !self.is_empty() {
            match sink.write(self.unsent()) {
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

    /// What is to be sent.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// The first `count` bytes were sent.
    pub(super) fn advance(&mut self, count: usize) {
        debug_assert!(count <= self.unsent().len());
        self.sent += count;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
    }

    /// Bytes that it occupies.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

impl Pool {
    /// Gives storage to an input that has none, or too little to read much at once.
    pub(super) fn lend_input(&mut self, input: &mut Input) {
        if input.storage.len() >= INPUT_SIZE {
            return;
        }
        if let Some(storage) = self.inputs.pop() {
            let small = std::mem::replace(input, Input { storage, start: 0, end: 0 });
            if !small.unread().is_empty() {
                input.append(small.unread());
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

    /// Gives storage to an output that has none.
    pub(super) fn lend_output(&mut self, output: &mut Output) {
        if output.bytes.capacity() == 0 {
            output.bytes = self.outputs.pop().or_else(|| self.small_outputs.pop()).unwrap_or_default();
        }
    }

    /// Takes back the storage of an input if it is empty. If it has grown, it is freed.
    pub(super) fn take_back_input(&mut self, input: &mut Input) {
        if input.unread().is_empty() {
            let storage = std::mem::take(input).storage;
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
            let bytes = std::mem::take(output).bytes;
            match bytes.capacity() {
                0 => (),
                1..=SMALL if self.small_outputs.len() < SMALL_POOLED => self.small_outputs.push(bytes),
                1..=LARGEST_POOLED_OUTPUT if self.outputs.len() < POOLED => self.outputs.push(bytes),
                _ => (),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(input.fill_from(&mut source).unwrap(), (INPUT_SIZE, true));
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
