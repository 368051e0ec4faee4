//! Receive operations that end, and connections that send much.

use super::super::buffer::MAX_READ_BYTES;
use super::*;
use relativist_testing::{patience, wait_until};
use std::io::Write as _;
use std::os::unix::net::UnixStream;

/// None if the kernel has no io_uring.
fn ring_with_a_connection() -> Option<(Uring, usize, UnixStream)> {
    let Ok(mut uring) = Uring::new(Arc::default()) else {
        eprintln!("skipped: the kernel has no io_uring");
        return None;
    };
    uring.start().unwrap();
    let (ours, peer) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let key = uring.open(Stream::Unix(mio::net::UnixStream::from_std(ours))).unwrap();
    Some((uring, key, peer))
}

/// The kernel ends a receive operation if it has no buffer. Here it does so while the server
/// sends to the connection and receives nothing.
#[test]
fn a_receive_that_ended_during_a_send_is_started_again() {
    let Some((mut uring, key, mut peer)) = ring_with_a_connection() else { return };
    let (mut pool, mut events, mut input) = (Pool::default(), Vec::new(), Input::default());
    let mut output = Output::default();
    // More than the socket takes, so the sending lasts.
    output.bytes().resize(16 << 20, b'x');
    assert!(!uring.send(key, &mut pool, &mut output).unwrap());
    let reception = CancelBuilder::user_data((key as u64) << OPERATION_BITS | Operation::Receive as u64);
    // SAFETY: refers to no memory.
    unsafe { uring.push(opcode::AsyncCancel2::new(reception).build(), key, Operation::Cancel) }.unwrap();
    wait_until("the end of the receive operation", || {
        uring.wait(Some(patience()), &mut pool, &mut events).unwrap();
        !uring.lines[key].reception.may_deliver()
    });
    assert!(uring.lines[key].is_sending && !events.contains(&Event::Sent(key)));
    assert!(uring.is_readable(key), "no receive would follow when all is sent");
    assert_eq!(uring.receive(key, &mut pool, &mut input).unwrap(), Received::Nothing);
    assert!(!uring.is_readable(key), "arriving bytes will be announced");
    peer.write_all(b"y").unwrap();
    wait_until("a byte", || {
        uring.wait(Some(patience()), &mut pool, &mut events).unwrap();
        uring.is_readable(key)
    });
    assert_eq!(uring.receive(key, &mut pool, &mut input).unwrap(), Received::Bytes);
    assert_eq!(input.unread(), b"y");
}

#[test]
fn a_client_that_sends_much_is_read_by_system_calls_for_a_while() {
    let Some((mut uring, key, mut peer)) = ring_with_a_connection() else { return };
    let (mut pool, mut events, mut input) = (Pool::default(), Vec::new(), Input::default());
    let mut transfer = |uring: &mut Uring, bytes: &[u8]| {
        peer.write_all(bytes).unwrap();
        let mut largest = 0;
        wait_until("all bytes", || {
            let before = input.unread().len();
            if !uring.is_readable(key) {
                uring.wait(Some(patience()), &mut pool, &mut events).unwrap();
            }
            uring.receive(key, &mut pool, &mut input).unwrap();
            largest = largest.max(input.unread().len() - before);
            input.unread().len() >= bytes.len()
        });
        assert!(input.unread() == bytes);
        input.consume(bytes.len());
        largest
    };
    let much: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
    assert!(transfer(&mut uring, b"little") == 6 && uring.lines[key].reads_left == 0);
    assert!(transfer(&mut uring, &much) > MAX_DELIVERED, "all at once, before the other side can know");
    assert!(transfer(&mut uring, &much) <= MAX_READ_BYTES && uring.lines[key].reads_left > 0);
    for _ in 0..READS_AFTER_FLOOD {
        transfer(&mut uring, b"little");
    }
    assert_eq!(uring.lines[key].reads_left, 0);
    transfer(&mut uring, b"little");
    assert_eq!(uring.lines[key].reception, Reception::Delivering);
}
