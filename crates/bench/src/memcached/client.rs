//! One client: a connection, its requests, and the replies received so far.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use rustix::buffer::spare_capacity;
use socket2::Socket;

use super::items::Items;
use super::tally::{Tally, Window};
use super::workload::{MAX_KEY, Protocol, Workload};
use relativist_check::client::reply::{Answer, Code, Encoding, Received, read};
use relativist_check::client::shown;

pub const READ: usize = 256 << 10;

/// The output buffer keeps at most this many bytes that have been sent.
const KEPT: usize = 256 << 10;

/// The line that a server sends on a connection above its limit, before it closes the connection.
const TOO_MANY_CONNECTIONS: &[u8] = b"ERROR Too many open connections";

/// The parameters that all clients share.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    pub workload: &'a Workload,
    pub items: &'a Items,
    pub window: Window,
}

/// An unanswered request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// When the request was sent; in an open loop, when it was due.
    pub at: Instant,
    /// Whether the request is a SET. Otherwise it is a GET.
    pub is_set: bool,
    /// The number of requested keys without a reply so far.
    keys: u16,
}

/// The result of a send or receive.
#[derive(Debug)]
pub enum Attempt<T> {
    Done(T),
    /// The connection is broken. The text is the reason.
    Broken(String),
}

#[derive(Debug)]
pub struct Client {
    socket: Socket,
    is_broken: bool,
    /// Bytes to send; those before `written` have been sent.
    output: Vec<u8>,
    written: usize,
    /// The beginning of an incomplete reply.
    rest: Vec<u8>,
    requests: VecDeque<Request>,
    /// The keys of all unanswered requests, in order.
    keys: VecDeque<u64>,
    /// A buffer for the expected key.
    key: Vec<u8>,
    /// The number of requests queued so far.
    pub put: u64,
}

impl Client {
    /// Makes a client with a non-blocking socket, which is connected or connecting.
    pub fn new(socket: Socket) -> Self {
        Self {
            socket,
            is_broken: false,
            output: Vec::new(),
            written: 0,
            rest: Vec::new(),
            requests: VecDeque::new(),
            keys: VecDeque::new(),
            key: Vec::with_capacity(MAX_KEY),
            put: 0,
        }
    }

    /// Marks the connection as broken, and calls `lost` with each unanswered request.
    pub fn abandon(&mut self, lost: impl FnMut(Request)) {
        self.is_broken = true;
        self.output.clear();
        self.written = 0;
        self.rest.clear();
        self.keys.clear();
        self.requests.drain(..).for_each(lost);
    }

    #[inline]
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Replaces the connection by this non-blocking one, which may not be established yet.
    pub fn begin_to_connect(&mut self, socket: Socket) {
        self.socket = socket;
    }

    /// Finishes connecting. Returns success or the reason for failure.
    pub fn end_connecting(&mut self) -> Attempt<()> {
        match self.socket.take_error() {
            Ok(None) => {
                self.is_broken = false;
                Attempt::Done(())
            }
            Ok(Some(error)) | Err(error) => Attempt::Broken(format!("cannot connect to the server: {error}")),
        }
    }

    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns the unanswered requests, the oldest first.
    pub fn requests(&self) -> &VecDeque<Request> {
        &self.requests
    }

    /// Queues a request to store an item; [`Client::send`] sends it.
    #[inline]
    pub fn put_set(&mut self, setting: Setting<'_>, index: u64, at: Instant) {
        setting.workload.protocol.push_set(setting.items, index, &mut self.output);
        self.keys.push_back(index);
        self.requests.push_back(Request { at, is_set: true, keys: 1 });
        self.put += 1;
    }

    /// Queues a request for some items.
    #[inline]
    pub fn put_get(&mut self, setting: Setting<'_>, indices: impl Iterator<Item = u64>, at: Instant) {
        let before = self.keys.len();
        self.keys.extend(indices);
        let keys = (self.keys.len() - before) as u16;
        setting.workload.protocol.push_get(setting.items, self.keys.range(before..).copied(), &mut self.output);
        self.requests.push_back(Request { at, is_set: false, keys });
        self.put += 1;
    }

    /// Sends the queued requests by one write. Returns whether all bytes were sent.
    #[inline]
    pub fn send(&mut self) -> Attempt<bool> {
        if self.written < self.output.len() {
            match (&self.socket).write(&self.output[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Attempt::Broken(format!("cannot send to the server: {error}")),
            }
        }
        let all = self.written == self.output.len();
        // Sent bytes are dropped early, because in an open loop the output may never be sent
        // completely. They are dropped only when at least as many were sent as are left, so that
        // dropping moves at most one byte per sent byte.
        if all || self.written >= KEPT.max(self.output.len() / 2) {
            self.output.drain(..self.written);
            self.written = 0;
        }
        Attempt::Done(all)
    }

    /// Reads once and parses the replies. Returns the number of answered requests. All clients of a
    /// thread share `buffer`.
    #[inline]
    pub fn receive(
        &mut self,
        setting: Setting<'_>,
        buffer: &mut [u8; 2 * READ],
        tally: &mut Tally,
    ) -> Result<Attempt<usize>> {
        let before = self.rest.len();
        // If the first part of a reply is large, the rest is read directly behind it. If it is
        // small, it is copied to the shared buffer, so that clients need no large buffers of their
        // own.
        let is_large = before > READ;
        let read = if is_large {
            self.rest.reserve(READ);
            rustix::io::read(&self.socket, spare_capacity(&mut self.rest)).map_err(std::io::Error::from)
        } else {
            buffer[..before].copy_from_slice(&self.rest);
            (&self.socket).read(&mut buffer[before..])
        };
        let count = match read {
            Ok(0) => {
                let unanswered = self.requests.len();
                return Ok(Attempt::Broken(format!(
                    "the server closed a connection with {unanswered} requests unanswered"
                )));
            }
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(Attempt::Done(0));
            }
            Err(error) => return Ok(Attempt::Broken(format!("cannot receive from the server: {error}"))),
        };
        let mut rest = std::mem::take(&mut self.rest);
        let bytes = if is_large { &rest } else { &buffer[..before + count] };
        let (answered, taken) = match self.take_apart(setting, bytes, tally)? {
            Attempt::Done(done) => done,
            Attempt::Broken(reason) => return Ok(Attempt::Broken(reason)),
        };
        if is_large {
            rest.drain(..taken);
        } else {
            rest.clear();
            rest.extend_from_slice(&buffer[taken..before + count]);
        }
        self.rest = rest;
        Ok(Attempt::Done(answered))
    }

    /// Parses complete replies. Returns the number of answered requests and the number of parsed
    /// bytes.
    #[inline]
    fn take_apart(&mut self, setting: Setting<'_>, bytes: &[u8], tally: &mut Tally) -> Result<Attempt<(usize, usize)>> {
        let now = Instant::now();
        let (mut answered, mut taken) = (0, 0);
        while let Received::Whole(answer, length) =
            read(Encoding::Text, &bytes[taken..], setting.items.largest_value())?
        {
            taken += length;
            if answer.head == TOO_MANY_CONNECTIONS {
                ensure!(answered == 0, "a reply, and then {}", shown(answer.head));
                return Ok(Attempt::Broken(format!("the server turned a connection away: {}", shown(answer.head))));
            }
            if self.take(setting, answer, tally)? {
                let request = self.requests.pop_front().expect("it was answered");
                self.keys.drain(..usize::from(request.keys));
                tally.answered += u64::from(setting.window.has(now));
                if setting.window.has(request.at) {
                    tally.record(request.is_set, &setting.window, request.at, now);
                }
                answered += 1;
            }
        }
        Ok(Attempt::Done((answered, taken)))
    }

    /// Checks a part of a reply. Returns whether it completes the reply to the oldest request.
    #[inline]
    fn take(&mut self, setting: Setting<'_>, answer: Answer<'_>, tally: &mut Tally) -> Result<bool> {
        let Some(request) = self.requests.front().copied() else {
            bail!("a reply without a request: {}", shown(answer.head))
        };
        let Workload { protocol, keys_per_get, .. } = *setting.workload;
        let is_meta = protocol == Protocol::Meta;
        match (request.is_set, answer.code) {
            (true, Code::Done) if answer.head == if is_meta { &b"HD"[..] } else { b"STORED" } => Ok(true),
            (false, Code::Item | Code::Done) if let Some((key, data)) = item(is_meta, &answer) => {
                let position = self.expect(setting, key, data)?;
                let request = self.requests.front_mut().expect("it is still there");
                tally.asked += position as u64 + 1;
                tally.found += 1;
                request.keys -= position as u16 + 1;
                self.keys.drain(..=position);
                Ok(is_meta && keys_per_get == 1)
            }
            (false, Code::End | Code::NotFound | Code::Fence) if is_meta != (answer.code == Code::End) => {
                tally.asked += u64::from(request.keys);
                Ok(true)
            }
            (true, Code::NotStored) | (_, Code::Error | Code::TooLarge | Code::OutOfMemory | Code::Midway)
                if !answer.head.starts_with(b"CLIENT_") && answer.head != b"ERROR" =>
            {
                tally.refused += 1;
                tally.refusal.get_or_insert_with(|| shown(answer.head));
                Ok(true)
            }
            (_, Code::Error | Code::Other) => bail!("not a reply: {}", shown(answer.head)),
            (is_set, _) => {
                let asked = if is_set { "SET" } else { "GET" };
                bail!("a reply to something else than a {asked}: {}", shown(answer.head))
            }
        }
    }

    /// Returns the position of an item among the keys that the oldest request waits for. The items
    /// before it are missing from the reply.
    #[inline]
    fn expect(&mut self, setting: Setting<'_>, key: &[u8], data: &[u8]) -> Result<usize> {
        let waiting = usize::from(self.requests.front().expect("the caller saw it").keys);
        for (position, &index) in self.keys.iter().take(waiting).enumerate() {
            self.key.clear();
            setting.items.push_key(index, &mut self.key);
            if self.key == key {
                let expected = setting.items.value(index);
                ensure!(
                    data == expected,
                    "a wrong value of {}: {} instead of {}",
                    shown(key),
                    shown(data),
                    shown(expected)
                );
                return Ok(position);
            }
        }
        bail!("a key that was not requested, or was already answered: {}", shown(key))
    }
}

/// Returns the key and the value of an item, in a reply of this protocol to a GET.
#[inline]
fn item<'a>(is_meta: bool, answer: &Answer<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let key = if is_meta { answer.words().next()?.strip_prefix(b"k")? } else { answer.key };
    let is_expected = is_meta || answer.code == Code::Item && answer.flags == Some(0);
    Some((key, answer.value.filter(|_| is_expected)?))
}
