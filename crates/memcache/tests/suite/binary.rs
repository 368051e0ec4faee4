//! The binary protocol.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use relativist_memcache::Limits;
use relativist_memcache::binary::{Decoded, Decoder, Opcode, Status, reply};

#[path = "packets.rs"]
pub mod packets;

use packets::{Event, events, packet};

const LIMITS: Limits = Limits { max_value: 64 };

fn decode(stream: &[u8]) -> Vec<Event> {
    events(LIMITS, true, [stream])
}

fn rejected(status: Status, closes: bool) -> Event {
    Event::Reject { status, closes }
}

#[test]
fn a_request_is_decoded_to_its_parts() {
    let stream = packet(0x11, &[0, 0, 0, 7, 0, 0, 0, 9], b"key", b"value", 42);
    let mut decoder = Decoder::new(LIMITS);
    let Decoded::Request { consumed, request } = decoder.decode(&stream, true) else { panic!() };
    assert_eq!((consumed, request.opcode, request.is_quiet), (stream.len(), Opcode::Set, true));
    assert_eq!((request.key, request.value, request.header.cas), (&b"key"[..], &b"value"[..], 42));
    assert_eq!((request.extra_32(0), request.extra_32(4), request.extra_64(0)), (7, 9, 7 << 32 | 9));
}

#[test]
fn malformed_packets_are_refused() {
    let closes = |status| [rejected(status, true)];
    assert_eq!(decode(&packet(0x00, b"", b"", b"", 0)), closes(Status::InvalidArguments), "a get without a key");
    assert_eq!(decode(&packet(0x00, b"", b"k", b"v", 0)), closes(Status::InvalidArguments), "a get with a value");
    assert_eq!(decode(&packet(0x01, b"", b"k", b"v", 0)), closes(Status::InvalidArguments), "a set without extras");
    assert_eq!(decode(&packet(0x00, b"", &[b'k'; 251], b"", 0)), closes(Status::InvalidArguments));
    let mut longer_key_than_body = packet(0x00, b"", b"key", b"", 0);
    longer_key_than_body[11] = 2;
    assert_eq!(decode(&longer_key_than_body), closes(Status::UnknownCommand));
    let mut huge = packet(0x01, &[0; 8], b"k", b"", 0);
    huge[8] = 0x7f;
    assert_eq!(decode(&huge), closes(Status::InvalidArguments));
    assert_eq!(decode(&[0x81; 24]), [Event::Close]);
}

#[test]
fn a_refused_request_is_skipped_as_a_whole() {
    let noop = packet(0x0a, b"", b"", b"", 0);
    let unknown = [packet(0x1b, b"", b"key", b"value", 0), noop.clone()].concat();
    let after = Event::Request { opcode: Opcode::Noop, is_quiet: false, extras: vec![], key: vec![], value: vec![] };
    assert_eq!(decode(&unknown), [rejected(Status::UnknownCommand, false), after.clone()]);
    let large = [packet(0x02, &[0; 8], b"k", &[0; 65], 0), noop.clone()].concat();
    let seen = |replaces| Event::TooLarge { key: b"k".to_vec(), replaces };
    assert_eq!(decode(&large), [seen(false), rejected(Status::TooLarge, false), after.clone()]);
    let large = [packet(0x01, &[0; 8], b"k", &[0; 65], 0), noop].concat();
    assert_eq!(decode(&large), [seen(true), rejected(Status::TooLarge, false), after]);
}

#[test]
fn unauthenticated_clients_may_only_log_in() {
    for opcode in [0x0b, 0x20] {
        let stream = packet(opcode, b"", b"", b"", 0);
        assert!(matches!(events(LIMITS, false, [&stream[..]])[..], [Event::Request { .. }]), "{opcode:x}");
    }
    for opcode in [0x00, 0x01, 0x0a, 0x10, 0xff] {
        // The header alone is rejected.
        let stream = &packet(opcode, b"", b"", &[0; 100], 0)[..24];
        assert_eq!(events(LIMITS, false, [stream]), [rejected(Status::AuthFailure, true)], "{opcode:x}");
    }
}

#[test]
fn replies_repeat_opcode_and_opaque() {
    let stream = packet(0x09, b"", b"key", b"", 0);
    let Decoded::Request { request, .. } = Decoder::new(LIMITS).decode(&stream, true) else { panic!() };
    let mut out = Vec::new();
    reply::value(&mut out, &request.header, 5, 6, b"key", b"value");
    assert_eq!(out[..2], [0x81, 0x09]);
    assert_eq!(out[12..16], stream[12..16]);
    assert_eq!(out[24..], *b"\0\0\0\x05keyvalue");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500, rng_seed: RngSeed::Fixed(11211), failure_persistence: None, ..Default::default()
    })]

    /// The result does not depend on how the stream is cut.
    #[test]
    fn cuts_make_no_difference(
        requests in vec((any::<u8>(), 0..21_usize, 0..5_usize, 0..70_usize), 1..6),
        junk in vec(any::<u8>(), 0..30),
        size in 1..50_usize,
    ) {
        let packets = requests.iter().map(|&(opcode, extras, key, value)| {
            packet(opcode % 0x26, &vec![0; extras], &vec![b'k'; key], &vec![b'v'; value], 0)
        });
        let stream = [packets.collect::<Vec<_>>().concat(), junk].concat();
        prop_assert_eq!(events(LIMITS, true, stream.chunks(size)), decode(&stream));
    }
}
