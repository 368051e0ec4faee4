//! A connected socket, TCP or Unix.

use super::buffer::Input;
use crate::observability::stats::Counters;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;

/// A non-blocking connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The result of receiving.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Received {
    /// Bytes were received.
    Bytes,
    /// Nothing has arrived.
    Nothing,
    /// Nothing more will arrive: the client has closed its side.
    End,
}

impl Stream {
    /// The connection's number in statistics and log lines: its descriptor.
    pub(super) fn id(&self) -> i32 {
        match self {
            Stream::Tcp(stream) => stream.as_raw_fd(),
            Stream::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// Reads into `input` once. Notes whether there may be more to read that will not be announced,
    /// and adds the number of bytes to `received`.
    pub(super) fn receive(
        &mut self,
        input: &mut Input,
        is_readable: &mut bool,
        received: &mut u64,
        counters: &Counters,
    ) -> io::Result<Received> {
        match input.fill_from(self) {
            Ok((0, _)) => {
                *is_readable = false;
                Ok(Received::End)
            }
            Ok((count, is_filled)) => {
                counters.bytes_read.add(count as u64);
                *received += count as u64;
                // A short read has emptied the socket, and the next byte will be announced. Another
                // read would only return "would block".
                *is_readable = is_filled;
                Ok(Received::Bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                *is_readable = false;
                Ok(Received::Nothing)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Received::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Shuts the connection down, but keeps the socket.
    pub(super) fn shut_down(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        }
    }

    /// The number of bytes that the peer's kernel has acknowledged, if ours reports it.
    #[cfg(target_os = "linux")]
    pub(super) fn acknowledged(&self) -> Option<u64> {
        /// The offset of `tcpi_bytes_acked` in `struct tcp_info`. The C library's definition ends
        /// before it.
        const BYTES_ACKED: usize = 120;
        let Stream::Tcp(stream) = self else { return None };
        let mut info = [0_u64; BYTES_ACKED / 8 + 1];
        let mut length = size_of_val(&info) as libc::socklen_t;
        let (place, socket) = (info.as_mut_ptr().cast(), stream.as_raw_fd());
        // SAFETY: writes at most `length` bytes into an array of integers, for which all bits are
        // valid.
        let result = unsafe { libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut length) };
        // An emulated kernel may not report it.
        (result == 0).then_some(info[BYTES_ACKED / 8]).filter(|bytes| *bytes > 0)
    }

    /// Not reported by this system.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn acknowledged(&self) -> Option<u64> {
        None
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read_vectored(buffers),
            Stream::Unix(stream) => stream.read_vectored(buffers),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write_vectored(slices),
            Stream::Unix(stream) => stream.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Source for Stream {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.register(registry, token, interests),
            Stream::Unix(stream) => stream.register(registry, token, interests),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.reregister(registry, token, interests),
            Stream::Unix(stream) => stream.reregister(registry, token, interests),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.deregister(registry),
            Stream::Unix(stream) => stream.deregister(registry),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use socket2::SockRef;
    use std::net;
    use std::os::unix;
    use std::thread::yield_now;

    /// A connection, and its peer with a receive buffer of `room` bytes.
    fn pair(room: usize) -> (Stream, net::TcpStream) {
        let listener = net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let peer = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        SockRef::from(&peer).set_recv_buffer_size(room).unwrap();
        let ours = listener.accept().unwrap().0;
        ours.set_nonblocking(true).unwrap();
        (Stream::Tcp(TcpStream::from_std(ours)), peer)
    }

    fn becomes(stream: &Stream, is_fine: impl Fn(Option<u64>) -> bool) -> bool {
        (0..10_000_000).any(|_| {
            yield_now();
            is_fine(stream.acknowledged())
        })
    }

    #[test]
    fn the_kernel_reports_acknowledged_bytes() {
        let (mut stream, mut peer) = pair(1 << 20);
        assert_eq!(stream.acknowledged(), None, "nothing was sent");
        for sent in [1_000, 2_000] {
            stream.write_all(&[0; 1_000]).unwrap();
            peer.read_exact(&mut [0; 1_000]).unwrap();
            assert!(becomes(&stream, |bytes| bytes == Some(sent)));
        }
        let (ours, _peer) = unix::net::UnixStream::pair().unwrap();
        assert_eq!(Stream::Unix(UnixStream::from_std(ours)).acknowledged(), None);
    }

    #[test]
    fn bytes_in_our_kernel_are_not_acknowledged() {
        let (mut stream, _peer) = pair(4 << 10);
        let mut sent = 0;
        while let Ok(count) = stream.write(&[0; 100_000]) {
            sent += count as u64;
        }
        assert!(becomes(&stream, |bytes| bytes.is_some()));
        assert!(stream.acknowledged() < Some(sent));
    }
}
