//! Decodes a stream of bytes in pieces. The binary decoder must keep its limits, make progress, and
//! return the same events as for the whole stream.
//!
//! The first byte of the input sets the size of the pieces, and whether the client is
//! authenticated. [`packets::events`] asserts the limits and the progress.
#![no_main]

use libfuzzer_sys::fuzz_target;
use relativist_memcache::Limits;

#[path = "../../crates/memcache/tests/suite/packets.rs"]
mod packets;

const LIMITS: Limits = Limits { max_value: 64 };

fuzz_target!(|input: &[u8]| {
    let Some((&first, stream)) = input.split_first() else {
        return;
    };
    let (size, is_authenticated) = (usize::from(first >> 1) + 1, first & 1 == 1);
    let whole = packets::events(LIMITS, is_authenticated, [stream]);
    assert_eq!(packets::events(LIMITS, is_authenticated, stream.chunks(size)), whole);
});
