//! Any stream of bytes, cut anywhere: the decoder keeps its limits, makes progress, and comes to the same result as when the
//! stream arrives whole.
//!
//! The first bytes of the input tell where to cut. That limits are kept and that progress is made is asserted by
//! [`event::events`].
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

/// The same events; only that a long line may have closed the connection before its end arrived.
fn assert_alike(pieces: &[Event], whole: &[Event], stream: &[u8]) {
    if pieces == whole {
        return;
    }
    let has_long_line = stream.split(|byte| *byte == b'\n').any(|line| line.len() > MAX_UNFINISHED_LINE);
    let (last, before) = pieces.split_last().expect("the whole stream has events, its pieces have none");
    assert!(has_long_line && *last == Event::Close && whole.starts_with(before), "{pieces:?}\nnot {whole:?}");
}
