//! `get`, `gets`, `gat` and `gats`.

use relativist_memcache::{Command, Decoded, Decoder, MAX_GET_LINE, MAX_UNFINISHED_LINE, RequestError};

use crate::event::{Connection, Event};
use crate::framing::{LIMITS, answered, decode};

fn fetch(exptime: Option<i32>, keys: &[&[u8]], with_cas: bool) -> Event {
    Event::Fetch { exptime, keys: keys.iter().map(|key| key.to_vec()).collect(), with_cas }
}

#[test]
fn keys_keep_their_order_and_their_duplicates() {
    assert_eq!(decode(b"get a\r\n"), [fetch(None, &[b"a"], false)]);
    assert_eq!(decode(b"gets b a b\r\n"), [fetch(None, &[b"b", b"a", b"b"], true)]);
    assert_eq!(decode(b"gat 30 a b\r\n"), [fetch(Some(30), &[b"a", b"b"], false)]);
    assert_eq!(decode(b"gats -1 a\r\n"), [fetch(Some(-1), &[b"a"], true)]);
}

#[test]
fn keys_may_contain_any_byte_except_space_and_lf() {
    assert_eq!(decode(b"get a\tb\0\r\xff\r\n"), [fetch(None, &[b"a\tb\0\r\xff"], false)]);
}

#[test]
fn several_spaces_may_separate_and_end_words() {
    assert_eq!(decode(b"get  a   b  \r\n"), [fetch(None, &[b"a", b"b"], false)]);
    assert_eq!(decode(b"gat   5  a  \n"), [fetch(Some(5), &[b"a"], false)]);
}

#[test]
fn only_returns_the_key_if_there_is_exactly_one() {
    for (line, only) in [("get a\r\n", Some(&b"a"[..])), ("get  a  \r\n", Some(b"a")), ("get a a\r\n", None)] {
        let Decoded::Command { command: Command::Get { keys, .. }, .. } = Decoder::new(LIMITS).decode(line.as_bytes())
        else {
            panic!("{line:?} is a get")
        };
        assert_eq!(keys.only(), only, "{line:?}");
    }
}

#[test]
fn a_fetch_needs_a_key() {
    for line in ["get", "gets", "get  ", "gat", "gats", "gat 0", "gats 0 ", "gat x"] {
        assert_eq!(decode(format!("{line}\r\n").as_bytes()), [answered(RequestError::BadFormat)], "{line:?}");
    }
}

#[test]
fn a_fetch_may_have_more_keys_than_other_commands_have_words() {
    let keys: Vec<Vec<u8>> = (0..1000).map(|n| format!("key{n}").into_bytes()).collect();
    let line = [b"get ", keys.join(&b' ').as_slice(), b"\r\n"].concat();
    assert_eq!(decode(&line), [Event::Fetch { exptime: None, keys: keys.clone(), with_cas: false }]);
    let line = [b"gat 0 ", keys[..40].join(&b' ').as_slice(), b"\r\n"].concat();
    assert_eq!(decode(&line), [Event::Fetch { exptime: Some(0), keys: keys[..40].to_vec(), with_cas: false }]);
}

#[test]
fn one_long_key_makes_the_line_invalid() {
    let (longest, too_long) = ("k".repeat(250), "k".repeat(251));
    assert_eq!(decode(format!("get {longest} a\r\n").as_bytes()).len(), 1);
    assert!(matches!(decode(format!("get {longest} a\r\n").as_bytes())[0], Event::Fetch { .. }));
    for line in [format!("get {too_long}"), format!("gets a {too_long} b"), format!("gat 0 a b {too_long}")] {
        assert_eq!(decode(format!("{line}\r\n").as_bytes()), [answered(RequestError::BadFormat)]);
    }
}

#[test]
fn the_expiry_is_a_strict_number() {
    for exptime in ["abc", "1x", "+1", "2147483648"] {
        let line = format!("gat {exptime} k\r\n");
        assert_eq!(decode(line.as_bytes()), [answered(RequestError::InvalidExptime)], "{exptime}");
    }
    assert_eq!(decode(b"gats - k\r\n"), [fetch(Some(0), &[b"k"], true)]);
}

#[test]
fn noreply_is_a_key_like_any_other() {
    assert_eq!(decode(b"get k noreply\r\n"), [fetch(None, &[b"k", b"noreply"], false)]);
}

#[test]
fn an_unfinished_get_may_be_long_up_to_a_limit() {
    for start in ["get ", "gets ", "  get "] {
        let mut connection = Connection::new(LIMITS);
        let padding = "k ".repeat(MAX_UNFINISHED_LINE);
        assert_eq!(connection.receive(start.as_bytes()), []);
        assert_eq!(connection.receive(padding.as_bytes()), []);
        let rest = " ".repeat(MAX_GET_LINE - start.len() - padding.len());
        assert_eq!(connection.receive(rest.as_bytes()), []);
        assert_eq!(connection.receive(b" "), [Event::Close]);
    }
}

#[test]
fn other_unfinished_lines_may_not_be_long() {
    let too_many_spaces = format!("{}get ", " ".repeat(101));
    for start in ["gat 0 ", "gett ", "set ", "mg ", "getk", &too_many_spaces] {
        let mut connection = Connection::new(LIMITS);
        assert_eq!(connection.receive(start.as_bytes()), []);
        assert_eq!(connection.receive(" ".repeat(MAX_UNFINISHED_LINE - start.len()).as_bytes()), [], "{start}");
        assert_eq!(connection.receive(b" "), [Event::Close], "{start}");
    }
}
