//! Decodes a stream of bytes in pieces. The decoder must keep its limits, make progress, and return
//! the same events as for the whole stream.
//!
//! The first bytes of the input set the places of the cuts; the stream is also decoded byte by
//! byte. [`event::events`] asserts the limits and the progress.
#![no_main]

use libfuzzer_sys::fuzz_target;
use relativist_memcache::{Limits, MAX_UNFINISHED_LINE};

#[path = "../../crates/memcache/tests/suite/event.rs"]
mod event;

use event::{Event, cut, events};

const LIMITS: Limits = Limits { max_value: 64 };
const CUTS: usize = 4;

fuzz_target!(|input: &[u8]| {
    let Some((cuts, stream)) = input.split_at_checked(2 * CUTS) else {
        return;
    };
    let places: Vec<usize> = cuts.chunks(2).map(|cut| usize::from(u16::from_le_bytes([cut[0], cut[1]]))).collect();
    let whole = events(LIMITS, [stream]);
    assert_alike(&events(LIMITS, cut(stream, &places)), &whole, stream);
    assert_alike(&events(LIMITS, stream.chunks(1)), &whole, stream);
});

/// Asserts that the events are the same, with one exception: in pieces, a line that is too long may
/// close the connection before its end has arrived.
fn assert_alike(pieces: &[Event], whole: &[Event], stream: &[u8]) {
    if pieces == whole {
        return;
    }
    let has_long_line = stream.split(|byte| *byte == b'\n').any(|line| line.len() > MAX_UNFINISHED_LINE);
    let (last, before) = pieces.split_last().expect("the whole stream has events, its pieces have none");
    assert!(has_long_line && *last == Event::Close && whole.starts_with(before), "{pieces:?}\nnot {whole:?}");
}
