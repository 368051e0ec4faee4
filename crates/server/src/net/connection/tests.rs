//! The speed that a client must keep while it pins memory of items.

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

/// While there are replies, the client must take bytes; otherwise it must send bytes.
#[test]
fn a_client_that_pins_memory_must_transfer_bytes() {
    const LENGTH: usize = 1_000_000;
    let cache = Cache::new(Arc::new(Clock::new(1)), 8 << 20, 1 << 20).unwrap();
    let mut backend = Epoll::new(Arc::new(CachePadded::new(Counters::default()))).unwrap();
    let (ours, mut peer) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let key = backend.open(Stream::Unix(mio::net::UnixStream::from_std(ours))).unwrap();
    let limits = Limits::default();
    let terms = Terms { limits, binding: Binding::Auto, requires_text_login: false, requires_sasl: false };
    let session = Arc::new(Session::new(0, Transport::Unix("socket".into()), 0));
    let mut connection = Connection::new(key, session, terms, ConnectionLimit::new(1).admit().unwrap());
    let mut pool = Pool::default();
    assert!(!connection.is_too_slow(&backend, 5) && !connection.is_too_slow(&backend, 500), "nothing is pinned");

    // More than the socket takes at a time.
    let content = Content { flags: 0, exptime: 0, value: &[b'v'; LENGTH] };
    assert_eq!(cache.store(Mode::Set, b"k", content), Store::Stored);
    connection.output.bytes().extend_from_slice(b"VALUE");
    cache.get(b"k", |hit| connection.output.replies().append(hit.pin().unwrap()));
    assert!(!connection.send(&mut backend, &mut pool).unwrap());
    assert_eq!([600, 660, 661].map(|now| connection.is_too_slow(&backend, now)), [false, false, true]);
    let (_, taken) = backend.moved(key);
    let mut buffer = vec![0; taken as usize];
    peer.read_exact(&mut buffer).unwrap();
    assert!(!connection.send(&mut backend, &mut pool).unwrap());
    assert_eq!([662, 722, 723].map(|now| connection.is_too_slow(&backend, now)), [false, false, true]);
    while !connection.send(&mut backend, &mut pool).unwrap() {
        assert!(peer.read(&mut buffer).unwrap() > 0);
    }
    assert_eq!([800, 900].map(|now| connection.is_too_slow(&backend, now)), [false, false], "all is sent");

    let shape = ItemShape { key_len: 1, value_len: LENGTH, has_flags: false, has_cas: false };
    connection.input.expect(Box::new(cache.reserve(&shape).unwrap()));
    assert_eq!([901, 961, 962].map(|now| connection.is_too_slow(&backend, now)), [false, false, true]);
    peer.write_all(&[b'v'; 2 * MIN_BYTES as usize]).unwrap();
    let mut events = Vec::new();
    while backend.moved(key).0 < MIN_BYTES {
        backend.wait(None, &mut pool, &mut events).unwrap();
        backend.receive(key, &mut pool, &mut connection.input).unwrap();
    }
    assert_eq!([963, 1023, 1024].map(|now| connection.is_too_slow(&backend, now)), [false, false, true]);
}
