//! What goes over the Unix socket: headers, and descriptors of sockets.

use crate::process::inherited::Passed;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use nix::unistd::Uid;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const MAGIC: [u8; 8] = *b"\x89RELHAND";

/// The version of the hand-over.
pub(super) const VERSION: u32 = 1;

/// Bytes of a header.
pub(super) const HEADER: usize = 16;

/// The most descriptors that the kernel passes at a time (`SCM_MAX_FD`).
pub(super) const MAX_SOCKETS: usize = 253;

/// How long each side waits for the other to go on.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The same for the server, while its clients wait.
pub(super) const SHORT_PATIENCE: Duration = Duration::from_secs(10);

/// The time that all items together may take for each GiB of memory, besides twice
/// [`SHORT_PATIENCE`]. It is a few times as long as small items need.
pub(super) const PATIENCE_PER_GIB: Duration = Duration::from_secs(20);

/// How often a wait is interrupted to look whether it should end.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// The first message of each side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Header {
    pub(super) version: u32,
    /// The number of sockets that come with it, and how many of them, from the first on, systemd
    /// has opened.
    pub(super) sockets: u16,
    pub(super) of_systemd: u16,
}

impl Header {
    pub(super) fn of(passed: &Passed) -> Header {
        Header { version: VERSION, sockets: passed.sockets.len() as u16, of_systemd: passed.of_systemd as u16 }
    }

    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.sockets.to_le_bytes());
        bytes[14..].copy_from_slice(&self.of_systemd.to_le_bytes());
        bytes
    }

    /// Parses the header of this version.
    ///
    /// # Errors
    /// When it has another version, or is no header.
    pub(super) fn parse(bytes: &[u8; HEADER]) -> io::Result<Header> {
        let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let version = u32::from(number(8)) | u32::from(number(10)) << 16;
        let header = Header { version, sockets: number(12), of_systemd: number(14) };
        if bytes[..8] != MAGIC {
            Err(invalid("the other side does not speak the protocol of the hand-over".into()))
        } else if header.version != VERSION {
            Err(invalid(format!("the other side has version {} of the hand-over, not {VERSION}", header.version)))
        } else if usize::from(header.sockets) > MAX_SOCKETS {
            Err(invalid(format!("{} sockets are too many", header.sockets)))
        } else if header.of_systemd > header.sockets {
            Err(invalid(format!("{} of {} sockets are of systemd", header.of_systemd, header.sockets)))
        } else {
            Ok(header)
        }
    }
}

/// The connection between both processes.
pub(super) struct Wire<F> {
    stream: UnixStream,
    /// How long the other side may be silent.
    pub(super) patience: Duration,
    /// When all must be done, even if the other side is never silent for long.
    pub(super) deadline: Option<Instant>,
    /// Whether this process is about to stop.
    is_over: F,
}

impl<F: Fn() -> bool> Wire<F> {
    /// Uses a connection until `is_over`.
    pub(super) fn new(stream: UnixStream, is_over: F) -> io::Result<Wire<F>> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(TICK))?;
        Ok(Wire { stream, patience: PATIENCE, deadline: None, is_over })
    }

    /// Fails unless the other process belongs to root, to the user of this one, or to `friend`.
    /// Returns its id, if the system reports it.
    pub(super) fn check_peer(&self, friend: Option<Uid>) -> io::Result<i32> {
        let (uid, pid) = peer(&self.stream)?;
        if uid.is_root() || uid == Uid::effective() || Some(uid) == friend {
            return Ok(pid);
        }
        Err(io::Error::new(ErrorKind::PermissionDenied, format!("process {pid} belongs to user {uid}")))
    }

    /// Sends a header with the sockets.
    pub(super) fn send_header(&mut self, passed: &Passed) -> io::Result<()> {
        let header = Header::of(passed).to_bytes();
        let sockets: Vec<RawFd> = passed.sockets.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&sockets)];
        let rights = if sockets.is_empty() { &[] } else { &rights[..] };
        let descriptor = self.stream.as_raw_fd();
        let sent = self.patiently(|_| {
            sendmsg::<()>(descriptor, &[IoSlice::new(&header)], rights, MsgFlags::MSG_NOSIGNAL, None)
                .map_err(io::Error::from)
        })?;
        self.write_all(&header[sent..])
    }

    /// Receives the header of the other side, and its sockets.
    pub(super) fn receive_header(&mut self) -> io::Result<Passed> {
        let (mut header, mut sockets) = ([0; HEADER], Vec::new());
        let descriptor = self.stream.as_raw_fd();
        let count = self.patiently(|_| receive(descriptor, &mut header, &mut sockets))?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.read_exact(&mut header[count..])?;
        let header = Header::parse(&header)?;
        if usize::from(header.sockets) != sockets.len() {
            return Err(invalid(format!("{} sockets were announced, and {} came", header.sockets, sockets.len())));
        }
        Ok(Passed { sockets, of_systemd: header.of_systemd.into() })
    }

    /// Waits for this message.
    pub(super) fn expect(&mut self, message: u8) -> io::Result<()> {
        let mut received = [0];
        self.read_exact(&mut received)?;
        if received == [message] { Ok(()) } else { Err(invalid("an unexpected message".into())) }
    }

    /// Repeats `attempt` while it would block, for as long as the patience lasts, and not after the
    /// deadline.
    fn patiently<T>(&mut self, mut attempt: impl FnMut(&mut UnixStream) -> io::Result<T>) -> io::Result<T> {
        let end = Instant::now() + self.patience;
        loop {
            if self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Err(io::Error::new(ErrorKind::TimedOut, "the other side is too slow"));
            }
            match attempt(&mut self.stream) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    if (self.is_over)() {
                        return Err(io::Error::other("this server is stopping"));
                    }
                    if Instant::now() > end {
                        return Err(io::Error::new(ErrorKind::TimedOut, "the other side has stalled"));
                    }
                }
                outcome => return outcome,
            }
        }
    }
}

impl<F: Fn() -> bool> Read for Wire<F> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.patiently(|stream| stream.read(bytes))
    }
}

impl<F: Fn() -> bool> Write for Wire<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.is_over)() {
            return Err(io::Error::other("this server is stopping"));
        }
        self.patiently(|stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn receive(descriptor: RawFd, bytes: &mut [u8], sockets: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut room = nix::cmsg_space!([RawFd; MAX_SOCKETS]);
    let mut pieces = [IoSliceMut::new(bytes)];
    #[cfg(target_os = "linux")]
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = MsgFlags::empty();
    let message = recvmsg::<()>(descriptor, &mut pieces, Some(&mut room), flags)?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            // SAFETY: the kernel has just made these descriptors for this process, and nothing else
            // knows them.
            sockets.extend(descriptors.into_iter().map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }));
        }
    }
    Ok(message.bytes)
}

#[cfg(target_os = "linux")]
fn peer(stream: &UnixStream) -> io::Result<(Uid, i32)> {
    let peer = nix::sys::socket::getsockopt(stream, nix::sys::socket::sockopt::PeerCredentials)?;
    Ok((Uid::from_raw(peer.uid()), peer.pid()))
}

#[cfg(not(target_os = "linux"))]
fn peer(stream: &UnixStream) -> io::Result<(Uid, i32)> {
    let (uid, _) = nix::unistd::getpeereid(stream)?;
    Ok((uid, 0))
}

pub(super) fn invalid(problem: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, problem)
}
