//! Any stream of bytes, cut anywhere: the binary decoder keeps its limits, makes progress, and comes to the same result as when
//! the stream arrives whole.
//!
//! The first byte of the input tells how large the pieces are, and whether somebody has logged in. That limits are kept and that
//! progress is made is asserted by [`packets::events`].
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
