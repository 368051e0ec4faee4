//! Lines, their ends and their limits, and input that is split into pieces.

use relativist_memcache::{
    Decoded, Decoder, Limits, MAX_UNFINISHED_LINE, Protocol, Rejection, RequestError, StoreVerb,
};

use crate::event::{Connection, Event, cut, events};

/// A small limit, so that refused values are small, too.
pub const LIMITS: Limits = Limits { max_value: 64 };

/// Decodes a stream that arrives in one piece, with a new decoder.
pub fn decode(stream: &[u8]) -> Vec<Event> {
    events(LIMITS, [stream])
}

/// Returns a rejection that is answered.
pub fn answered(error: RequestError) -> Event {
    Event::Reject(Rejection { error, noreply: false })
}

/// Returns a rejection that is not answered.
pub fn silent(error: RequestError) -> Event {
    Event::Reject(Rejection { error, noreply: true })
}

#[test]
fn a_line_ends_in_lf_with_or_without_cr() {
    assert_eq!(decode(b"version\r\nversion\n"), [Event::Version, Event::Version]);
    assert_eq!(decode(b"version\r\r\n"), [answered(RequestError::UnknownCommand)]);
    assert_eq!(decode(b"version\r"), []);
}

#[test]
fn lines_under_four_bytes_are_malformed() {
    for line in ["\r\n", "\n", "a\r\n", "ab\n", "mn\n"] {
        assert_eq!(decode(line.as_bytes()), [answered(RequestError::BadFormat)], "{line:?}");
    }
    assert_eq!(decode(b"ab\r\n"), [answered(RequestError::UnknownCommand)]);
}

#[test]
fn the_verb_is_exact_and_comes_first() {
    for line in [" get k", "GET k", "get\tk", "get\0k", "get:k", "ge k", "getx k", "version1", "    ", "version\0"] {
        assert_eq!(decode(format!("{line}\r\n").as_bytes()), [answered(RequestError::UnknownCommand)], "{line:?}");
    }
}

#[test]
fn an_unfinished_line_needs_one_more_byte() {
    let mut decoder = Decoder::new(LIMITS);
    assert_eq!(decoder.decode(b""), Decoded::Incomplete { consumed: 0, needed: 1 });
    assert_eq!(decoder.decode(b"vers"), Decoded::Incomplete { consumed: 0, needed: 5 });
}

#[test]
fn an_unfinished_value_needs_all_its_bytes() {
    let mut decoder = Decoder::new(LIMITS);
    let line = b"set k 0 0 5\r\n";
    let needed = line.len() + 5 + 2;
    assert_eq!(decoder.decode(line), Decoded::Incomplete { consumed: 0, needed });
    assert_eq!(decoder.decode(b"set k 0 0 5\r\nhello\r"), Decoded::Incomplete { consumed: 0, needed });
    assert!(
        matches!(decoder.decode(b"set k 0 0 5\r\nhello\r\n"), Decoded::Command { consumed, .. } if consumed == needed)
    );
}

#[test]
fn a_refused_value_is_consumed_as_it_arrives() {
    let mut decoder = Decoder::new(LIMITS);
    let seen = Decoded::TooLarge { consumed: 15, key: b"k", replaces: false, is_base64: false };
    assert_eq!(decoder.decode(b"add k 0 0 100\r\nabc"), seen);
    assert_eq!(decoder.decode(b"abc"), Decoded::Incomplete { consumed: 3, needed: 1 });
    assert_eq!(decoder.decode(b""), Decoded::Incomplete { consumed: 0, needed: 1 });
    assert_eq!(decoder.decode(&[b'x'; 90]), Decoded::Incomplete { consumed: 90, needed: 1 });
    let rejection = Rejection { error: RequestError::TooLarge, noreply: false };
    assert_eq!(decoder.decode(b"1234567\r\nversion\r\n"), Decoded::Reject { consumed: 9, rejection });
    assert!(matches!(decoder.decode(b"version\r\n"), Decoded::Command { consumed: 9, .. }));
}

/// This test changes the bytes that the decoder has searched. A decoder that searched them again
/// would find the change.
#[test]
fn bytes_are_not_searched_twice() {
    let mut decoder = Decoder::new(LIMITS);
    assert_eq!(decoder.decode(b"get abcd"), Decoded::Incomplete { consumed: 0, needed: 9 });
    assert!(matches!(decoder.decode(b"\n\n\n\n\n\n\n\nefg\n"), Decoded::Reject { consumed: 12, .. }));
}

/// This test changes the line that the decoder has parsed. A decoder that parsed it again would
/// find the change.
#[test]
fn a_storage_line_is_not_parsed_twice() {
    let mut decoder = Decoder::new(LIMITS);
    assert!(matches!(decoder.decode(b"set k 7 9 2\r\n"), Decoded::Incomplete { .. }));
    let Decoded::Command { command, .. } = decoder.decode(b"xxx k xxxxx\r\nhi\r\n") else {
        panic!("the line was parsed again");
    };
    let expected = relativist_memcache::Command::Store {
        verb: StoreVerb::Set,
        key: b"k",
        flags: 7,
        exptime: 9,
        value: b"hi",
        noreply: false,
    };
    assert_eq!(command, expected);
}

#[test]
fn input_that_shrinks_does_not_panic() {
    let mut decoder = Decoder::new(LIMITS);
    assert!(matches!(decoder.decode(b"get abcd"), Decoded::Incomplete { .. }));
    assert!(matches!(decoder.decode(b"get"), Decoded::Incomplete { .. }));
    let mut decoder = Decoder::new(LIMITS);
    assert!(matches!(decoder.decode(b"set k 0 0 5\r\nab"), Decoded::Incomplete { .. }));
    assert!(matches!(decoder.decode(b"set"), Decoded::Incomplete { .. }));
}

#[test]
fn commands_are_the_same_wherever_the_stream_is_split() {
    let too_large = "v".repeat(70);
    let stream = format!(
        "get a b\r\nset k 1 2 4 noreply\r\n\r\n\r\n\r\nadd k 0 0 70\r\n{too_large}\r\ncas k 0 0 1 5\r\nx\r\n\
         set k x 0 3\r\nabc\r\nset k 0 0 70 noreply\r\n{too_large}\r\nincr k x\r\nset k 0 0 9\r\nnot all"
    );
    let stream = stream.as_bytes();
    let whole = decode(stream);
    assert_eq!(whole.len(), 9, "{whole:?}");
    for place in 0..stream.len() {
        assert_eq!(events(LIMITS, cut(stream, &[place])), whole, "cut at {place}");
    }
    assert_eq!(events(LIMITS, stream.chunks(1)), whole, "byte by byte");
}

#[test]
fn a_line_may_have_2048_bytes_before_its_end_is_seen() {
    let mut connection = Connection::new(LIMITS);
    assert_eq!(connection.receive(&[b'x'; MAX_UNFINISHED_LINE]), []);
    assert_eq!(connection.receive(b"\r\n"), [answered(RequestError::UnknownCommand)]);
    assert_eq!(connection.receive(&[b'x'; MAX_UNFINISHED_LINE + 1]), [Event::Close]);
}

#[test]
fn a_longer_line_is_accepted_if_its_end_has_arrived() {
    let line = format!("delete k {}\r\n", "x".repeat(3000));
    assert_eq!(decode(line.as_bytes()), [Event::Delete { key: b"k".to_vec(), noreply: false }]);
}

#[test]
fn only_23_words_are_read() {
    // The verb and the key are two words, so the last of these 21 words is the last that is read.
    let twenty = "x ".repeat(20);
    let seen = format!("delete k {twenty}noreply x\r\n");
    assert_eq!(decode(seen.as_bytes()), [Event::Delete { key: b"k".to_vec(), noreply: true }]);
    let unseen = format!("delete k {twenty}x noreply\r\n");
    assert_eq!(decode(unseen.as_bytes()), [Event::Delete { key: b"k".to_vec(), noreply: false }]);
}

#[test]
fn the_first_byte_selects_the_protocol() {
    assert_eq!(Protocol::of_first_byte(0x80), Protocol::Binary);
    for byte in (0..=0xff).filter(|byte| *byte != 0x80) {
        assert_eq!(Protocol::of_first_byte(byte), Protocol::Text);
    }
}

#[test]
fn the_binary_magic_is_an_ordinary_byte_to_the_text_decoder() {
    let expected = [answered(RequestError::BadFormat), answered(RequestError::UnknownCommand)];
    assert_eq!(decode(b"\x80\x0a\0\0\r\n"), expected);
}
