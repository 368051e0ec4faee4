//! Tests of what comes over the socket: headers and items that are cut off, changed, or random.

use super::wire::{HEADER, Header, VERSION, Wire};
use crate::process::inherited::Passed;
use crate::snapshot;
use relativist_store::{Cache, Clock, Content, Mode, Ticker};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

fn cache() -> Cache {
    Cache::new(Arc::new(Clock::new(1_000)), 16 << 20, 1 << 20).unwrap()
}

/// Receives items into an empty cache.
fn receive(mut sent: &[u8]) -> std::io::Result<(u64, u64)> {
    let cache = cache();
    snapshot::receive(&mut sent, |name| name.is_empty().then_some(&cache), &Ticker::new())
}

/// A sequence of numbers that looks random.
fn numbers(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    }
}

#[test]
fn only_headers_of_this_version_are_accepted() {
    let good = Header { version: VERSION, sockets: 7, of_systemd: 2 };
    assert_eq!(Header::parse(&good.to_bytes()).unwrap(), good);
    for (place, byte) in (0..HEADER).flat_map(|place| (0..=255).map(move |byte| (place, byte))) {
        let mut bytes = good.to_bytes();
        bytes[place] = byte;
        // Only the numbers of sockets may differ, up to what the kernel can pass.
        let may_differ = place == 12 && (2..=253).contains(&byte) || place == 14 && byte <= 7;
        let is_good = bytes == good.to_bytes() || may_differ;
        assert_eq!(Header::parse(&bytes).is_ok(), is_good, "{place} {byte}");
    }
    let mut next = numbers(1);
    for _ in 0..10_000 {
        let bytes: [u8; HEADER] = std::array::from_fn(|_| next() as u8);
        assert!(Header::parse(&bytes).is_err(), "{bytes:?}");
    }
    assert!(Header::parse(&Header { version: VERSION + 1, ..good }.to_bytes()).is_err());
}

/// The clocks of both processes may be behind, because no thread drives them meanwhile.
#[test]
fn items_keep_the_second_in_which_they_expire() {
    for (behind, successor_behind) in [(0, 0), (1, 0), (0, 1), (3, 1)] {
        let [old, new] = [Ticker::new(), Ticker::new()];
        let cache = |ticker: &Ticker| Cache::new(Arc::clone(ticker.clock()), 16 << 20, 1 << 20).unwrap();
        let [items, copies] = [cache(&old), cache(&new)];
        let expiry = |cache: &Cache| {
            let mut expiry = 0;
            cache.peek(b"key", |hit| expiry = hit.expiry.to_bits());
            expiry
        };
        items.store(Mode::Set, b"key", Content { flags: 0, exptime: 100, value: b"value" });
        old.clock().set(old.clock().now() - behind);
        new.clock().set(new.clock().now() - successor_behind);
        let mut sent = Vec::new();
        assert_eq!(snapshot::send(&mut sent, &[("", &items)], &old).unwrap(), 1);
        snapshot::receive(&mut &sent[..], |name| name.is_empty().then_some(&copies), &new).unwrap();
        assert!(expiry(&items) > 0);
        assert_eq!(expiry(&copies), expiry(&items), "{behind} {successor_behind}");
    }
}

#[test]
fn items_that_are_cut_off_or_changed_are_refused() {
    let old = cache();
    for n in 0..20 {
        let key = format!("key {n}");
        old.store(Mode::Set, key.as_bytes(), Content { flags: n, exptime: 0, value: key.as_bytes() });
    }
    let mut sent = Vec::new();
    assert_eq!(snapshot::send(&mut sent, &[("", &old)], &Ticker::new()).unwrap(), 20);
    assert_eq!(receive(&sent).unwrap(), (20, 0));
    for length in 0..sent.len() {
        let error = receive(&sent[..length]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{length}: {error}");
    }
    for place in 0..sent.len() {
        let mut changed = sent.clone();
        changed[place] ^= 0x40;
        // A frame that is announced to be longer than any is no reason to allocate as much.
        assert!(receive(&changed).is_err(), "{place}");
    }
    let mut next = numbers(2);
    for _ in 0..2_000 {
        let random: Vec<u8> = (0..next() % 200).map(|_| next() as u8).collect();
        // After a good header, too.
        let joined = [&sent[..56], &random].concat();
        assert!(receive(&random).is_err());
        assert!(receive(&joined).is_err());
    }
}

#[test]
fn sockets_arrive_with_the_header() {
    let (one, other) = UnixStream::pair().unwrap();
    let (mut near, far) = UnixStream::pair().unwrap();
    let never: fn() -> bool = || false;
    let mut wire = Wire::new(one, never).unwrap();
    wire.send_header(&Passed { sockets: vec![far.into()], of_systemd: 1 }).unwrap();
    let Passed { mut sockets, of_systemd } = Wire::new(other, never).unwrap().receive_header().unwrap();
    assert_eq!(of_systemd, 1);
    let mut received = UnixStream::from(sockets.pop().unwrap());
    assert!(sockets.is_empty());
    received.write_all(b"x").unwrap();
    near.read_exact(&mut [0]).unwrap();
}

/// A deadline holds however lively the other side is.
#[test]
fn nothing_is_sent_or_received_after_the_deadline() {
    let (one, mut other) = UnixStream::pair().unwrap();
    let mut wire = Wire::new(one, || false).unwrap();
    other.write_all(b"xx").unwrap();
    wire.deadline = Some(Instant::now() + Duration::from_secs(1_000));
    wire.expect(b'x').unwrap();
    wire.write_all(b"x").unwrap();
    wire.deadline = Some(Instant::now() - Duration::from_millis(1));
    assert_eq!(wire.expect(b'x').unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(wire.write_all(b"x").unwrap_err().kind(), ErrorKind::TimedOut);
}

#[test]
fn a_wait_ends_when_this_side_stops() {
    let (one, other) = UnixStream::pair().unwrap();
    let mut wire = Wire::new(one, || true).unwrap();
    assert!(wire.receive_header().unwrap_err().to_string().contains("stopping"));
    assert!(wire.write_all(b"x").is_err());
    thread::spawn(move || drop(other)).join().unwrap();
}
