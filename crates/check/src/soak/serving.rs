//! Which process serves a connection, of a server that is replaced during the run.
//!
//! A server that hands over closes its connections, and its successor serves new ones. No
//! connection is refused.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};

use anyhow::{Context, Result, ensure};
use socket2::Socket;

use super::Plan;
use super::binary::HEADER;
use crate::client::{self, Address, PATIENCE};

/// How many connections are tried in a row. Each may be closed without a reply, if the server is
/// replaced at that moment.
const MAX_ATTEMPTS: u32 = 10;

/// The maximum size of a statistic, in bytes.
const MAX_STATISTIC: u32 = 1 << 16;

/// Returns how many new connections to try until one is served.
pub(super) fn attempts(plan: &Plan) -> u32 {
    if plan.is_replaced() { MAX_ATTEMPTS } else { 1 }
}

/// Calls `ask` with a new connection, and returns both. If the server is replaced during the run,
/// it may close the connection first; then calls `ask` with another one.
pub(super) fn connect<T>(
    plan: &Plan,
    address: &Address,
    ask: impl Fn(&mut Socket) -> Result<T>,
) -> Result<(Socket, T)> {
    let mut left = attempts(plan);
    loop {
        let mut socket = address.connect()?;
        socket.set_read_timeout(Some(PATIENCE))?;
        left -= 1;
        match ask(&mut socket) {
            Ok(answer) => return Ok((socket, answer)),
            Err(error) if left == 0 || is_timeout(&error) => return Err(error),
            Err(_) => (),
        }
    }
}

/// Returns whether the server has not replied in time. A server that stalls is a fault, unlike one
/// that has closed the connection.
fn is_timeout(error: &anyhow::Error) -> bool {
    let mut kinds = error.chain().filter_map(|cause| Some(cause.downcast_ref::<io::Error>()?.kind()));
    kinds.any(|kind| matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// Sends `request` on a new connection, and returns the statistics in the reply, by name.
pub(super) fn statistics(plan: &Plan, address: &Address, request: &str) -> Result<BTreeMap<String, String>> {
    Ok(connect(plan, address, |socket| client::statistics(socket, request))?.1)
}

/// Asks for the id of the process that serves this connection, by the binary protocol or in text.
/// Returns 0 without asking if the server is not replaced during the run.
pub(super) fn process(plan: &Plan, socket: &mut Socket, is_binary: bool) -> Result<u64> {
    if !plan.is_replaced() {
        return Ok(0);
    }
    let process = if is_binary {
        binary_statistic(socket, b"pid")?
    } else {
        client::statistics(socket, "stats")?.remove("pid").unwrap_or_default().into_bytes()
    };
    let process = std::str::from_utf8(&process).ok().and_then(|process| process.parse().ok());
    process.context("the server does not report its process")
}

/// Returns the value of a statistic; empty if the server does not have it. A reply without a name
/// ends the list.
fn binary_statistic(socket: &mut Socket, name: &[u8]) -> Result<Vec<u8>> {
    socket.write_all(&[&[0x80, 0x10][..], &[0; HEADER - 2]].concat())?;
    let mut found = Vec::new();
    loop {
        let mut header = [0; HEADER];
        socket.read_exact(&mut header).context("no reply to a request for statistics")?;
        ensure!(header[..2] == [0x81, 0x10], "not a statistic: {}", header.escape_ascii());
        let length = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        ensure!(length <= MAX_STATISTIC, "a statistic of {length} bytes");
        let mut body = vec![0; length as usize];
        socket.read_exact(&mut body).context("not a whole statistic")?;
        match usize::from(u16::from_be_bytes([header[2], header[3]])) {
            0 => return Ok(found),
            length if body.get(..length) == Some(name) => found = body.split_off(length),
            _ => (),
        }
    }
}
