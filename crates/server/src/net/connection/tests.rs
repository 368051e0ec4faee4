//! The speed that a client must keep while it holds memory that others need.

use super::super::epoll::Epoll;
use super::super::stream::Stream;
use super::*;
use crate::execute::Transport;
use crate::limits::connections::ConnectionLimit;
use crate::limits::slow_clients::MIN_BYTES;
use crate::observability::stats::Counters;
use crossbeam_utils::CachePadded;
use relativist_store::Clock;
use relativist_store::{Cache, Content, ItemShape, Mode, Store};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

fn connected() -> (Epoll, Connection, UnixStream) {
    let mut backend = Epoll::new(Arc::new(CachePadded::new(Counters::default()))).unwrap();
    let (ours, peer) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let key = backend.open(Stream::Unix(mio::net::UnixStream::from_std(ours))).unwrap();
    let limits = Limits::default();
    let terms = Terms { limits, binding: Binding::Auto, requires_text_login: false, requires_sasl: false };
    let session = Arc::new(Session::new(0, Transport::Unix("socket".into()), 0));
    let connection = Connection::new(key, session, terms, ConnectionLimit::new(1).admit().unwrap());
    (backend, connection, peer)
}

/// A client that does not take its replies is closed only while buffers are short.
#[test]
fn a_client_that_takes_no_replies_must_not_keep_buffers_that_are_short() {
    let (mut backend, mut connection, peer) = connected();
    connection.output.bytes().resize(4 << 20, b'v');
    assert!(!connection.send(&mut backend, &mut Pool::default()).unwrap());
    assert_eq!([100, 200].map(|now| connection.is_too_slow(&backend, false, now)), [false, false]);
    assert_eq!([201, 203].map(|now| connection.is_too_slow(&backend, true, now)), [false, false]);
    assert!(!connection.is_stalled());
    assert_eq!([204, 261, 262].map(|now| connection.is_too_slow(&backend, true, now)), [false, false, true]);
    assert!(connection.is_stalled());
    assert!(!connection.is_too_slow(&backend, false, 263) && !connection.is_stalled());
    drop(peer);
}

/// While there are replies, the client must take bytes; otherwise it must send bytes.
#[test]
fn a_client_that_pins_memory_must_transfer_bytes() {
    const LENGTH: usize = 1_000_000;
    let cache = Cache::new(Arc::new(Clock::new(1)), 8 << 20, 1 << 20).unwrap();
    let (mut backend, mut connection, mut peer) = connected();
    let (mut pool, key) = (Pool::default(), connection.key);
    assert!(
        !connection.is_too_slow(&backend, false, 5) && !connection.is_too_slow(&backend, false, 500),
        "nothing is pinned"
    );

    // More than the socket takes at a time.
    let content = Content { flags: 0, exptime: 0, value: &[b'v'; LENGTH] };
    assert_eq!(cache.store(Mode::Set, b"k", content), Store::Stored);
    connection.output.bytes().extend_from_slice(b"VALUE");
    cache.get(b"k", |hit| connection.output.replies().append(hit.pin().unwrap()));
    assert!(!connection.send(&mut backend, &mut pool).unwrap());
    assert_eq!([600, 660, 661].map(|now| connection.is_too_slow(&backend, false, now)), [false, false, true]);
    let (_, taken) = backend.moved(key);
    let mut buffer = vec![0; taken as usize];
    peer.read_exact(&mut buffer).unwrap();
    assert!(!connection.send(&mut backend, &mut pool).unwrap());
    assert_eq!([662, 722, 723].map(|now| connection.is_too_slow(&backend, false, now)), [false, false, true]);
    while !connection.send(&mut backend, &mut pool).unwrap() {
        assert!(peer.read(&mut buffer).unwrap() > 0);
    }
    assert_eq!([800, 900].map(|now| connection.is_too_slow(&backend, false, now)), [false, false], "all is sent");

    let shape = ItemShape { key_len: 1, value_len: LENGTH, has_flags: false, has_cas: false };
    connection.input.expect(Box::new(cache.reserve(&shape).unwrap()));
    assert_eq!([901, 961, 962].map(|now| connection.is_too_slow(&backend, false, now)), [false, false, true]);
    peer.write_all(&[b'v'; 2 * MIN_BYTES as usize]).unwrap();
    let mut events = Vec::new();
    while backend.moved(key).0 < MIN_BYTES {
        backend.wait(None, &mut pool, &mut events).unwrap();
        backend.receive(key, &mut pool, &mut connection.input).unwrap();
    }
    assert_eq!([963, 1023, 1024].map(|now| connection.is_too_slow(&backend, false, now)), [false, false, true]);
}
