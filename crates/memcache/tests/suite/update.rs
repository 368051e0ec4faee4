//! `delete`, `incr`, `decr` and `touch`.

use relativist_memcache::{Arithmetic, RequestError};

use crate::event::Event;
use crate::framing::{answered, decode, silent};

fn key() -> Vec<u8> {
    b"k".to_vec()
}

#[test]
fn delete_ignores_surplus_words() {
    let deleted = |noreply| [Event::Delete { key: key(), noreply }];
    assert_eq!(decode(b"delete k\r\n"), deleted(false));
    assert_eq!(decode(b"delete k 0\r\n"), deleted(false));
    assert_eq!(decode(b"delete k 0 noreply extra\r\n"), deleted(false));
    assert_eq!(decode(b"delete k noreply\r\n"), deleted(true));
    assert_eq!(decode(b"delete k 0 noreply\r\n"), deleted(true));
}

#[test]
fn delete_noreply_deletes_that_key_silently() {
    assert_eq!(decode(b"delete noreply\r\n"), [Event::Delete { key: b"noreply".to_vec(), noreply: true }]);
}

#[test]
fn incr_and_decr_take_an_unsigned_64_bit_delta() {
    let expected = Event::Arithmetic { key: key(), op: Arithmetic::Incr, delta: u64::MAX, noreply: false };
    assert_eq!(decode(b"incr k 18446744073709551615 extra\r\n"), [expected]);
    let expected = Event::Arithmetic { key: key(), op: Arithmetic::Decr, delta: 1, noreply: true };
    assert_eq!(decode(b"decr k 1 noreply\r\n"), [expected]);
    for delta in ["abc", "-1", "+1", "1x", "18446744073709551616"] {
        assert_eq!(decode(format!("incr k {delta}\r\n").as_bytes()), [answered(RequestError::InvalidDelta)], "{delta}");
    }
    assert_eq!(decode(b"decr k x noreply\r\n"), [silent(RequestError::InvalidDelta)]);
    assert_eq!(decode(b"incr k noreply\r\n"), [silent(RequestError::InvalidDelta)]);
}

#[test]
fn touch_takes_a_32_bit_expiry() {
    assert_eq!(decode(b"touch k -1 extra\r\n"), [Event::Touch { key: key(), exptime: -1, noreply: false }]);
    assert_eq!(decode(b"touch k 0 noreply\r\n"), [Event::Touch { key: key(), exptime: 0, noreply: true }]);
    for exptime in ["abc", "2147483648", "99999999999999"] {
        let line = format!("touch k {exptime}\r\n");
        assert_eq!(decode(line.as_bytes()), [answered(RequestError::InvalidExptime)], "{exptime}");
    }
    assert_eq!(decode(b"touch k abc noreply\r\n"), [silent(RequestError::InvalidExptime)]);
}

#[test]
fn missing_words_are_answered_even_with_noreply() {
    for line in ["delete", "incr", "incr k", "decr noreply", "touch", "touch k", "touch noreply", "incr k  "] {
        assert_eq!(decode(format!("{line}\r\n").as_bytes()), [answered(RequestError::BadFormat)], "{line}");
    }
}

#[test]
fn long_keys_are_refused() {
    let (longest, too_long) = ("k".repeat(250), "k".repeat(251));
    assert!(matches!(&decode(format!("delete {longest}\r\n").as_bytes())[..], [Event::Delete { .. }]));
    for (verb, number) in [("delete", ""), ("incr", " 1"), ("decr", " 1"), ("touch", " 0")] {
        let line = format!("{verb} {too_long}{number}");
        assert_eq!(decode(format!("{line}\r\n").as_bytes()), [answered(RequestError::BadFormat)], "{verb}");
        assert_eq!(decode(format!("{line} noreply\r\n").as_bytes()), [silent(RequestError::BadFormat)], "{verb}");
    }
}
