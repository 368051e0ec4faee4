//! Which process serves a connection, of a server that is replaced during the run.
//!
//! A server that hands over closes its connections, and its successor serves new ones. No
//! connection is refused.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};

use anyhow::{Context, Result, ensure};
use relativist_memcache::binary::HEADER;
use socket2::Socket;

use super::Plan;
use crate::client::reply::{Encoding, Received, read};
use crate::client::{self, Address, PATIENCE};

/// How many connections are tried in a row. Each may be closed without a reply, if the server is
/// replaced at that moment.
const MAX_ATTEMPTS: u32 = 10;

/// The maximum size of a statistic, in bytes.
const MAX_STATISTIC: usize = 1 << 16;

/// The opcode of a request for statistics.
const STAT: u8 = 0x10;

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
    socket.write_all(&[&[0x80, STAT][..], &[0; HEADER - 2]].concat())?;
    let (mut input, mut found) = (Vec::new(), Vec::new());
    loop {
        let arrived = input.len();
        match read(Encoding::Binary, &input, MAX_STATISTIC)? {
            Received::Part(needed) => {
                input.resize(needed, 0);
                socket.read_exact(&mut input[arrived..]).context("no reply to a request for statistics")?;
            }
            Received::Whole(answer, _) => {
                let is_statistic = answer.opcode_and_opaque().0 == STAT;
                ensure!(is_statistic, "not a statistic: {}", answer.head.escape_ascii());
                match answer.key {
                    b"" => return Ok(found),
                    key if key == name => found = answer.value.unwrap_or_default().to_vec(),
                    _ => (),
                }
                input.clear();
            }
        }
    }
}
