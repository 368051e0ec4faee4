//! The login before the text protocol.

use relativist_memcache::{Login, LoginDecoder};

/// Decodes `input` with a new decoder.
fn decode(input: &[u8]) -> Login<'_> {
    LoginDecoder::default().decode(input)
}

#[test]
fn a_set_is_an_attempt_whatever_its_key() {
    let input = b"set any 7 100 12\r\nadmin secret\r\nget a\r\n";
    let attempt = Login::Attempt { consumed: input.len() - 7, user: b"admin", password: b"secret" };
    assert_eq!(decode(input), attempt);
    assert_eq!(decode(b"set a 0 0 5\r\na b c\r\n"), Login::Attempt { consumed: 20, user: b"a", password: b"b c" });
}

#[test]
fn an_attempt_may_come_in_pieces() {
    let mut decoder = LoginDecoder::default();
    let (line, value) = (b"set a 0 0 3\r\n", b"u p\r\n");
    assert_eq!(decoder.decode(&line[..5]), Login::Incomplete { consumed: 0 });
    assert_eq!(decoder.decode(line), Login::Incomplete { consumed: line.len() });
    assert_eq!(decoder.decode(&value[..4]), Login::Incomplete { consumed: 0 });
    assert_eq!(decoder.decode(value), Login::Attempt { consumed: value.len(), user: b"u", password: b"p" });
}

#[test]
fn other_requests_are_refused() {
    for line in ["get some key", "version", "add a 0 0 3", "set a 0 0 x", "set a 0 0", "set a 0 0 -1"] {
        let input = format!("{line}\r\n");
        let refusal = Login::Refuse { consumed: input.len(), reply: b"CLIENT_ERROR unauthenticated\r\n" };
        assert_eq!(decode(input.as_bytes()), refusal, "{line}");
    }
    let too_long = Login::Refuse { consumed: 17, reply: b"CLIENT_ERROR auth token too long\r\n" };
    assert_eq!(decode(b"set a 0 0 16385\r\n"), too_long);
    let no_end = Login::Refuse { consumed: 18, reply: b"CLIENT_ERROR bad command line termination\r\n" };
    assert_eq!(decode(b"set a 0 0 3\r\nu pass\r\n"), no_end);
}

#[test]
fn unauthenticated_clients_cannot_make_the_server_buffer_much() {
    assert_eq!(decode(b"hi\r\n"), Login::Close);
    assert_eq!(decode(&[b'x'; 2049]), Login::Close);
    assert_eq!(decode(&[b'x'; 2048]), Login::Incomplete { consumed: 0 });
}
