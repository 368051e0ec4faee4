//! `delete`, `incr`, `decr` and `touch`: commands that change one item and have no value.

use super::{MISSING_ARGUMENT, is_key, is_noreply};
use crate::command::{Arithmetic, Command};
use crate::error::{Rejection, RequestError};
use crate::number;
use crate::words::Words;

/// `delete KEY [anything] [noreply]`; the key itself may be `noreply`.
pub(crate) fn delete(mut args: Words<'_>) -> Result<Command<'_>, Rejection> {
    let key = args.next().ok_or(MISSING_ARGUMENT)?;
    let noreply = is_noreply(args.last().unwrap_or(key));
    if !is_key(key) {
        return Err(Rejection { error: RequestError::BadFormat, noreply });
    }
    Ok(Command::Delete { key, noreply })
}

/// `incr KEY DELTA [noreply]`, `decr KEY DELTA [noreply]`
pub(crate) fn arithmetic(args: Words<'_>, op: Arithmetic) -> Result<Command<'_>, Rejection> {
    let (key, delta, noreply) = key_and_number(args)?;
    let delta = number::unsigned_64(delta).ok_or(Rejection { error: RequestError::InvalidDelta, noreply })?;
    Ok(Command::Arithmetic { key, op, delta, noreply })
}

/// `touch KEY EXPTIME [noreply]`
pub(crate) fn touch(args: Words<'_>) -> Result<Command<'_>, Rejection> {
    let (key, exptime, noreply) = key_and_number(args)?;
    let exptime = number::signed_32(exptime).ok_or(Rejection { error: RequestError::InvalidExptime, noreply })?;
    Ok(Command::Touch { key, exptime, noreply })
}

/// Returns the key, the word after it, and whether the last word is `noreply`.
fn key_and_number(mut args: Words<'_>) -> Result<(&[u8], &[u8], bool), Rejection> {
    let key = args.next().ok_or(MISSING_ARGUMENT)?;
    let number = args.next().ok_or(MISSING_ARGUMENT)?;
    let noreply = is_noreply(args.last().unwrap_or(number));
    if !is_key(key) {
        return Err(Rejection { error: RequestError::BadFormat, noreply });
    }
    Ok((key, number, noreply))
}
