//! The reply encoders.

use relativist_memcache::{Rejection, RequestError, reply};

/// Returns the bytes that an encoder appends to a buffer that is not empty.
fn appended(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = b"before ".to_vec();
    encode(&mut out);
    out.strip_prefix(b"before ").expect("the buffer is appended to").to_vec()
}

#[test]
fn values_have_a_unique_if_requested() {
    assert_eq!(appended(|out| reply::value(out, b"k", 0, None, b"")), b"VALUE k 0 0\r\n\r\n");
    assert_eq!(appended(|out| reply::value(out, b"k", 7, Some(0), b"ab")), b"VALUE k 7 2 0\r\nab\r\n");
    let widest = appended(|out| reply::value(out, &[b'k'; 250], u32::MAX, Some(u64::MAX), b"\r\n"));
    let expected = [b"VALUE ", &[b'k'; 250][..], b" 4294967295 2 18446744073709551615\r\n\r\n\r\n"].concat();
    assert_eq!(widest, expected);
}

#[test]
fn a_number_has_its_own_line() {
    assert_eq!(appended(|out| reply::number(out, 0)), b"0\r\n");
    assert_eq!(appended(|out| reply::number(out, u64::MAX)), b"18446744073709551615\r\n");
}

#[test]
fn statistics_take_anything_that_can_be_displayed() {
    assert_eq!(appended(|out| reply::stat(out, "threads", 4)), b"STAT threads 4\r\n");
    assert_eq!(appended(|out| reply::stat(out, format_args!("items:{}:number", 3), "x")), b"STAT items:3:number x\r\n");
}

#[test]
fn the_version_is_passed_by_the_server() {
    assert_eq!(appended(|out| reply::version(out, "1.6.45")), b"VERSION 1.6.45\r\n");
}

#[test]
fn rejections_are_answered_unless_the_client_sent_noreply() {
    let errors: [(RequestError, &[u8]); 6] = [
        (RequestError::UnknownCommand, b"ERROR\r\n"),
        (RequestError::BadFormat, b"CLIENT_ERROR bad command line format\r\n"),
        (RequestError::InvalidExptime, b"CLIENT_ERROR invalid exptime argument\r\n"),
        (RequestError::InvalidDelta, b"CLIENT_ERROR invalid numeric delta argument\r\n"),
        (RequestError::BadDataChunk, b"CLIENT_ERROR bad data chunk\r\n"),
        (RequestError::TooLarge, b"SERVER_ERROR object too large for cache\r\n"),
    ];
    for (error, line) in errors {
        assert_eq!(Rejection { error, noreply: false }.reply(), line);
        assert_eq!(Rejection { error, noreply: true }.reply(), b"");
        let text = error.to_string();
        assert!(error == RequestError::UnknownCommand || line.ends_with(format!(" {text}\r\n").as_bytes()), "{text}");
    }
}
