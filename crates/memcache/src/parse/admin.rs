//! Commands for the server as a whole, and unknown commands.

use super::{MISSING_ARGUMENT, is_noreply};
use crate::command::Command;
use crate::error::{Rejection, RequestError};
use crate::number;
use crate::words::Words;

/// `flush_all [EXPTIME] [noreply]`
pub(crate) fn flush_all(mut args: Words<'_>) -> Result<Command<'_>, Rejection> {
    let Some(first) = args.next() else {
        return Ok(Command::FlushAll { exptime: 0, noreply: false });
    };
    let last = args.last();
    let noreply = is_noreply(last.unwrap_or(first));
    if noreply && last.is_none() {
        return Ok(Command::FlushAll { exptime: 0, noreply });
    }
    let exptime = number::signed_32(first).ok_or(Rejection { error: RequestError::InvalidExptime, noreply })?;
    Ok(Command::FlushAll { exptime, noreply })
}

/// `verbosity LEVEL [noreply]`
pub(crate) fn verbosity(mut args: Words<'_>) -> Result<Command<'_>, Rejection> {
    let level = args.next().ok_or(MISSING_ARGUMENT)?;
    let noreply = is_noreply(args.last().unwrap_or(level));
    match number::unsigned_32(level) {
        Some(level) => Ok(Command::Verbosity { level, noreply }),
        None => Err(Rejection { error: RequestError::BadFormat, noreply }),
    }
}

/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// Rejects an unknown command. Returns `None` for a request of HTTP, or the beginning of TLS: the
/// connection must be closed, because what a browser sends next could contain commands.
pub(crate) fn unknown(verb: &[u8], args: Words<'_>) -> Option<Rejection> {
    let last = args.last().unwrap_or(verb);
    let is_foreign = last.starts_with(b"HTTP/") || verb.first() == Some(&HANDSHAKE);
    (!is_foreign).then(|| Rejection { error: RequestError::UnknownCommand, noreply: is_noreply(last) })
}
