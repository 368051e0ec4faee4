//! Meta commands: their flags, keys and values.

use relativist_memcache::{MAX_KEY, MetaMode, MetaVerb, RequestError, decode_key, encode_key};

use crate::event::{Event, cut, events};
use crate::framing::{LIMITS, answered, decode};

/// Decodes a valid command on one line.
fn meta(line: &str) -> Event {
    match decode(format!("{line}\r\n").as_bytes()).as_slice() {
        [event @ Event::Meta { .. }] => event.clone(),
        other => panic!("{line}: {other:?}"),
    }
}

/// Decodes a line, and returns the error in its flags or its key.
fn error(line: &str) -> RequestError {
    match decode(format!("{line}\r\n").as_bytes()).as_slice() {
        [Event::BadMeta(error)] => *error,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn tokens_are_decoded() {
    let Event::Meta { verb, key, flags, words, .. } = meta("mg key v T-30 N0 R5 C7 E8 k Oopaque q") else { panic!() };
    assert_eq!((verb, key.as_slice(), words.len()), (MetaVerb::Get, &b"key"[..], 9));
    assert_eq!((flags.exptime, flags.vivify, flags.recache), (Some(-30), Some(0), Some(5)));
    assert_eq!((flags.compare, flags.cas), (Some(7), Some(8)));
    assert!(flags.has(b'v') && flags.has(b'q') && !flags.has(b's') && !flags.has(b'5'));
    let Event::Meta { flags, .. } = meta("ma n D18446744073709551615 J9 M-") else { panic!() };
    assert_eq!((flags.delta, flags.initial, flags.mode), (u64::MAX, 9, MetaMode::Decrement));
}

#[test]
fn defaults() {
    let Event::Meta { flags, .. } = meta("ma n") else { panic!() };
    assert_eq!((flags.delta, flags.initial, flags.mode, flags.exptime), (1, 0, MetaMode::Increment, None));
}

#[test]
fn each_bad_flag_has_its_error() {
    assert_eq!(error("mg a v v"), RequestError::DuplicateFlag);
    assert_eq!(error("mg a z"), RequestError::InvalidFlag);
    assert_eq!(error("mg a 5"), RequestError::InvalidFlag);
    assert_eq!(error("mg a !"), RequestError::BadFormat);
    assert_eq!(error("mg a Tx"), RequestError::BadToken);
    assert_eq!(error("mg a Fx"), RequestError::BadFormat);
    assert_eq!(error("mg a D"), RequestError::InvalidDeltaToken);
    assert_eq!(error("mg a Jx"), RequestError::InvalidInitialToken);
    assert_eq!(error(&format!("mg a O{}", "x".repeat(32))), RequestError::OpaqueTooLong);
    assert_eq!(error(&format!("mg {}", "k".repeat(251))), RequestError::BadFormat);
    assert_eq!(error(&format!("mg a{}", " v".repeat(19))), RequestError::TooManyFlags);
    assert_eq!(error("ma a v v"), RequestError::InvalidOrDuplicateFlag);
    assert_eq!(error("ma a Mx"), RequestError::InvalidArithmeticMode);
    assert_eq!(error("mg a b"), RequestError::BadKeyEncoding);
}

#[test]
fn of_several_errors_one_is_reported() {
    assert_eq!(error("mg a Cx v v"), RequestError::DuplicateFlag);
    assert_eq!(error("mg a Cx z"), RequestError::InvalidFlag);
    assert_eq!(error("mg a z v v"), RequestError::InvalidFlag);
    assert_eq!(error("mg a v v z"), RequestError::DuplicateFlag);
    assert_eq!(error("mg a Cx Dx"), RequestError::InvalidDeltaToken);
    assert_eq!(error("mg a Dx Cx"), RequestError::BadToken);
    assert_eq!(error("mg a Cx b"), RequestError::BadKeyEncoding);
    assert_eq!(error("mg a b Cx"), RequestError::BadToken);
    let opaque = format!("O{}", "x".repeat(32));
    assert_eq!(error(&format!("ma a {opaque} Mx")), RequestError::InvalidArithmeticMode);
    assert_eq!(error(&format!("ma a {opaque} v v")), RequestError::InvalidOrDuplicateFlag);
    assert_eq!(error(&format!("mg a {opaque} b")), RequestError::BadKeyEncoding);
}

#[test]
fn a_value_follows_the_line_of_ms() {
    let stream = b"ms a 3 T5 k\r\n1\r\n\r\nmn\r\n";
    let whole = decode(stream);
    let [Event::Meta { verb: MetaVerb::Set, value, .. }, Event::MetaNoop] = whole.as_slice() else {
        panic!("{whole:?}")
    };
    assert_eq!(value, b"1\r\n");
    for at in 0..stream.len() {
        assert_eq!(events(LIMITS, cut(stream, &[at])), whole, "cut at {at}");
    }
}

#[test]
fn the_error_in_an_ms_decides_what_is_skipped() {
    let mn = Event::MetaNoop;
    assert_eq!(decode(b"ms a 2 z\r\nhi\r\nmn\r\n"), [answered(RequestError::InvalidFlag), mn.clone()]);
    assert_eq!(decode(b"ms a 2 MX\r\nhi\r\nmn\r\n"), [answered(RequestError::InvalidSetMode), mn.clone()]);
    assert_eq!(decode(b"ms a 2 !\r\nmn\r\n"), [answered(RequestError::BadFormat), mn.clone()]);
    assert_eq!(decode(b"ms a x\r\nmn\r\n"), [answered(RequestError::BadFormat), mn.clone()]);
    assert_eq!(decode(b"ms a 2\r\nhixx\r\n")[0], answered(RequestError::BadDataChunk));
    let large = format!("ms YWJj 65 b\r\n{}\r\nmn\r\n", "v".repeat(65));
    let old = Event::TooLarge { key: b"YWJj".to_vec(), replaces: true, is_base64: true };
    assert_eq!(decode(large.as_bytes()), [old, answered(RequestError::TooLarge), mn]);
}

#[test]
fn keys_in_base64() {
    let decoded = |text: &str| decode_key(text.as_bytes(), &mut [0; MAX_KEY]).map(<[u8]>::to_vec);
    assert_eq!(decoded("aGVsbG8=").as_deref(), Some(&b"hello"[..]));
    assert_eq!(decoded("ab!cd"), decoded("abcd"), "bytes outside the alphabet are skipped");
    for bad in ["", "a", "abc", "abcde", "====", "a===", "!!!!", "====abcd"] {
        assert_eq!(decoded(bad), None, "{bad}");
    }
    for key in [&b"\0\r\n \xff"[..], b"k", &[7; 186]] {
        let mut encoded = Vec::new();
        encode_key(&mut encoded, key);
        assert_eq!(decode_key(&encoded, &mut [0; MAX_KEY]), Some(key));
    }
}
