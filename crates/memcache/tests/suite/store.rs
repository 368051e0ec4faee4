//! `set`, `add`, `replace`, `append`, `prepend` and `cas`.

use relativist_memcache::{Decoded, Decoder, Limits, RequestError, StoreVerb};

use crate::event::Event;
use crate::framing::{answered, decode, silent};

fn stored(verb: StoreVerb, flags: u32, exptime: i32, value: &[u8]) -> Event {
    Event::Store { verb, key: b"k".to_vec(), flags, exptime, value: value.to_vec(), noreply: false }
}

#[test]
fn each_verb_is_recognized() {
    let verbs = [
        ("set", "", StoreVerb::Set),
        ("add", "", StoreVerb::Add),
        ("replace", "", StoreVerb::Replace),
        ("append", "", StoreVerb::Append),
        ("prepend", "", StoreVerb::Prepend),
        ("cas", " 18446744073709551615", StoreVerb::Cas(u64::MAX)),
    ];
    for (name, cas, verb) in verbs {
        let request = format!("{name} k 7 -9 2{cas}\r\nhi\r\n");
        assert_eq!(decode(request.as_bytes()), [stored(verb, 7, -9, b"hi")], "{name}");
    }
}

#[test]
fn values_are_opaque() {
    assert_eq!(decode(b"set k 0 0 0\r\n\r\n"), [stored(StoreVerb::Set, 0, 0, b"")]);
    assert_eq!(decode(b"set k 0 0 8\r\na\r\nb\r\n\0\xff\r\n"), [stored(StoreVerb::Set, 0, 0, b"a\r\nb\r\n\0\xff")]);
    assert_eq!(decode(b"set k 0 0 2\nok\r\n"), [stored(StoreVerb::Set, 0, 0, b"ok")]);
}

#[test]
fn a_short_block_includes_the_bytes_after_it() {
    assert_eq!(decode(b"set k 0 0 10\r\nshort\r\nxyz\r\n"), [stored(StoreVerb::Set, 0, 0, b"short\r\nxyz")]);
}

#[test]
fn flags_and_expiry_are_lax() {
    assert_eq!(decode(b"set k +5 \t0 1\r\nx\r\n"), [stored(StoreVerb::Set, 5, 0, b"x")]);
    assert_eq!(decode(b"set k 4294967295 4294967295 1\r\nx\r\n"), [stored(StoreVerb::Set, u32::MAX, -1, b"x")]);
}

#[test]
fn missing_words_leave_no_block_to_skip() {
    for line in ["set", "set k", "add k 0", "replace k 0 0", "cas k 0 0", "set k 0 0 "] {
        let request = format!("{line}\r\nversion\r\n");
        assert_eq!(decode(request.as_bytes()), [answered(RequestError::BadFormat), Event::Version], "{line:?}");
    }
}

#[test]
fn a_malformed_length_leaves_no_block_to_skip() {
    let lengths =
        ["abc", "1x", "-1", "+1", "2147483646", "4294967296", "99999999999999999999", "000000000001", "noreply"];
    for length in lengths {
        let request = format!("set k 0 0 {length} noreply\r\nversion\r\n");
        assert_eq!(decode(request.as_bytes()), [answered(RequestError::BadFormat), Event::Version], "{length}");
    }
}

#[test]
fn a_block_of_known_length_is_skipped_before_the_error() {
    let long_key = format!("set {} 0 0 9", "k".repeat(251));
    for line in
        ["set k abc 0 9", "set k -1 0 9", "set k 0 1.5 9", "cas k 0 0 9", "cas k 0 0 9 x", "cas k 0 0 9 -1", &long_key]
    {
        let request = format!("{line}\r\nversion\r\n\r\nversion\r\n");
        assert_eq!(decode(request.as_bytes()), [answered(RequestError::BadFormat), Event::Version], "{line}");
    }
}

#[test]
fn an_error_after_a_known_length_honours_noreply() {
    let long_key = format!("set {} 0 0 2", "k".repeat(251));
    for line in ["set k abc 0 2", "cas k 0 0 2", "cas k 0 0 2 x", &long_key] {
        let request = format!("{line} noreply\r\nhi\r\n");
        assert_eq!(decode(request.as_bytes()), [silent(RequestError::BadFormat)], "{line}");
    }
}

#[test]
fn a_bad_data_chunk_consumes_its_length_and_two_bytes() {
    let bad = answered(RequestError::BadDataChunk);
    assert_eq!(decode(b"set k 0 0 5\r\nhello\n\rversion\r\n"), [bad.clone(), Event::Version]);
    assert_eq!(decode(b"set k 0 0 3\r\nabc\n\nversion\r\n"), [bad.clone(), Event::Version]);
    assert_eq!(decode(b"set k 0 0 2\r\nab\r\r\n"), [bad.clone(), answered(RequestError::BadFormat)]);
    assert_eq!(decode(b"set k 0 0 0\r\nhello\r\n"), [bad, answered(RequestError::UnknownCommand)]);
    let expected = [silent(RequestError::BadDataChunk), answered(RequestError::UnknownCommand)];
    assert_eq!(decode(b"set k 0 0 2 noreply\r\ntoolong\r\n"), expected);
}

#[test]
fn a_value_over_the_limit_is_refused_after_it_was_skipped() {
    let value = "v".repeat(65);
    let seen = Event::TooLarge { key: b"k".to_vec(), replaces: false, is_base64: false };
    for line in ["add k 0 0 65", "append k 0 0 65", "replace k 0 0 65", "cas k 0 0 65 1"] {
        let request = format!("{line}\r\n{value}\r\nversion\r\n");
        assert_eq!(
            decode(request.as_bytes()),
            [seen.clone(), answered(RequestError::TooLarge), Event::Version],
            "{line}"
        );
    }
    let request = format!("set k 0 0 64\r\n{}\r\n", &value[1..]);
    assert_eq!(decode(request.as_bytes()), [stored(StoreVerb::Set, 0, 0, &value.as_bytes()[1..])]);
}

#[test]
fn a_set_over_the_limit_removes_the_old_value_at_once() {
    let old = Event::TooLarge { key: b"k".to_vec(), replaces: true, is_base64: false };
    assert_eq!(decode(b"set k 0 0 65\r\nvvv"), std::slice::from_ref(&old));
    let request = format!("set k 0 0 65\r\n{}\r\nversion\r\n", "v".repeat(65));
    assert_eq!(decode(request.as_bytes()), [old.clone(), answered(RequestError::TooLarge), Event::Version]);
    let request = format!("set k 0 0 65 noreply\r\n{}\r\n", "v".repeat(65));
    assert_eq!(decode(request.as_bytes()), [old, silent(RequestError::TooLarge)]);
}

#[test]
fn other_errors_precede_the_size() {
    let request = format!("set k x 0 65\r\n{}\r\n", "v".repeat(65));
    assert_eq!(decode(request.as_bytes()), [answered(RequestError::BadFormat)]);
}

#[test]
fn noreply_is_the_exact_last_word() {
    let silent = |line: &str| {
        let request = format!("{line}\r\nv\r\n");
        match decode(request.as_bytes()).as_slice() {
            [Event::Store { noreply, .. }] => *noreply,
            other => panic!("{line}: {other:?}"),
        }
    };
    assert!(silent("set k 0 0 1 noreply"));
    assert!(silent("set k 0 0 1 x y noreply  "));
    assert!(silent("cas k 0 0 1 5 noreply"));
    assert!(!silent("set noreply 0 0 1"));
    assert!(!silent("set k 0 0 1 noreply x"));
    assert!(!silent("set k 0 0 1 NOREPLY"));
    assert!(!silent("set k 0 0 1 noreplyx"));
}

/// A store is pending if its new item does not depend on the old one.
#[test]
fn a_store_is_pending_if_it_determines_its_item() {
    for (line, is_awaited) in [
        ("set k 0 0 10", true),
        ("cas k 0 0 10 5", true),
        ("append k 0 0 10", false),
        ("prepend k 0 0 10", false),
        ("ms k 10", true),
        ("ms k 10 MR I", true),
        ("ms k 10 C5", true),
        ("ms k 10 C5 I", false),
        ("ms k 10 MA", false),
        ("ms k 10 MP", false),
    ] {
        let mut decoder = Decoder::new(Limits::default());
        let input = format!("{line}\r\n12345");
        assert!(matches!(decoder.decode(input.as_bytes()), Decoded::Incomplete { .. }));
        let awaited = decoder.pending_store(input.as_bytes());
        assert_eq!(
            awaited.map(|awaited| (awaited.front, awaited.key)),
            is_awaited.then_some((line.len() + 2, &b"k"[..]))
        );
    }
}
