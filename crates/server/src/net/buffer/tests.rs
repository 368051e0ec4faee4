//! Buffers that grow, move, and are blocked.

use super::*;
use relativist_store::Clock;
use relativist_store::{Cache, Content, ItemShape, LARGE_VALUE, Mode, Store};
use std::sync::Arc;

/// Takes this many bytes and then blocks.
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
fn output_continues_where_it_was_blocked() {
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

/// Two pinned values among bytes, the last one without anything behind it, sent in pieces of every
/// size.
#[test]
fn output_sends_pinned_values_in_pieces() {
    let cache = Cache::new(Arc::new(Clock::new(1)), 8 << 20, 1 << 20).unwrap();
    let value = |letter| vec![letter; LARGE_VALUE + usize::from(letter)];
    for letter in [b'a', b'b'] {
        let content = Content { flags: 0, exptime: 0, value: &value(letter) };
        assert_eq!(cache.store(Mode::Set, &[letter], content), Store::Stored);
    }
    let whole = [b"first", &*value(b'a'), b"between", &value(b'b')].concat();
    for step in (1..8).chain([100, LARGE_VALUE, whole.len() - 1, whole.len()]) {
        let mut output = Output::default();
        for (text, key) in [("first", b"a"), ("between", b"b")] {
            output.bytes().extend_from_slice(text.as_bytes());
            cache.get(key, |hit| output.replies().append(hit.pin().unwrap()));
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
        assert_eq!((output.len(), cache.usage().pinned_bytes), (0, 0));
    }
}

/// Input is received in any pieces. It fills the value first.
#[test]
fn input_fills_the_expected_value_first() {
    let cache = Cache::new(Arc::new(Clock::new(1)), 8 << 20, 1 << 20).unwrap();
    let shape = ItemShape { key_len: 1, value_len: 100_000, has_flags: false, has_cas: false };
    let bytes: Vec<u8> = (0..100_100_u32).map(|i| (i % 251) as u8).collect();
    for by_reading in [true, false] {
        let (mut input, mut other) = (Input::default(), Input::default());
        input.append(&bytes[..10]);
        input.expect(Box::new(cache.reserve(&shape).unwrap()));
        assert!(input.is_empty() && input.is_expecting() && input.unread().is_empty());
        input.pass_expectation(&mut other);
        assert!(!input.is_expecting() && other.is_expecting());
        input.take_from(&mut other);
        let mut source = &bytes[10..];
        while !source.is_empty() {
            assert!(input.take_reserved(0).is_none() || input.unread().len() == 100);
            let (mut piece, rest) = source.split_at(source.len().min(if by_reading { 70_000 } else { 9_001 }));
            if by_reading {
                assert_eq!(input.fill_from(&mut piece).unwrap(), (70_000.min(source.len()), false));
            } else {
                input.append(piece);
            }
            source = rest;
        }
        assert!(!input.is_expecting() && !input.is_empty());
        assert!(input.take_reserved(101).is_none());
        assert_eq!(input.take_reserved(100).unwrap().value(), &bytes[..100_000]);
        assert_eq!(input.unread(), &bytes[100_000..]);
    }
}

#[test]
fn a_turn_reads_a_bounded_part_of_a_value() {
    const LENGTH: usize = 2 * MAX_VALUE_READ + 1;
    let cache = Cache::new(Arc::new(Clock::new(1)), 8 << 20, 1 << 20).unwrap();
    let shape = ItemShape { key_len: 1, value_len: LENGTH, has_flags: false, has_cas: false };
    let bytes: Vec<u8> = (0..LENGTH as u32 + 100).map(|i| (i % 251) as u8).collect();
    let mut source = &bytes[..];
    let mut input = Input::default();
    input.expect(Box::new(cache.reserve(&shape).unwrap()));
    for expected in [(MAX_VALUE_READ, true), (MAX_VALUE_READ, true), (101, false)] {
        assert_eq!(input.fill_from(&mut source).unwrap(), expected);
    }
    assert!(input.take_reserved(100).unwrap().value() == &bytes[..LENGTH] && input.unread() == &bytes[LENGTH..]);
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
fn an_input_shrinks_when_most_of_it_is_consumed() {
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
