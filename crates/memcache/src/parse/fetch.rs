//! `get`, `gets`, `gat` and `gats`: any number of keys. These commands have no `noreply`.

use super::MISSING_ARGUMENT;
use crate::command::Command;
use crate::error::{Rejection, RequestError};
use crate::number;
use crate::words::{Keys, Words};

/// `get KEY+`, `gets KEY+`
#[inline]
pub(crate) fn get(args: Words<'_>, with_cas: bool) -> Result<Command<'_>, Rejection> {
    let keys = Keys::new(args.into_rest()).map_err(Rejection::answered)?;
    Ok(Command::Get { keys, with_cas })
}

/// `gat EXPTIME KEY+`, `gats EXPTIME KEY+`
pub(crate) fn get_and_touch(mut args: Words<'_>, with_cas: bool) -> Result<Command<'_>, Rejection> {
    let exptime = args.next().ok_or(MISSING_ARGUMENT)?;
    let rest = args.into_rest();
    if rest.is_empty() {
        return Err(MISSING_ARGUMENT);
    }
    let exptime = number::signed_32(exptime).ok_or(Rejection::answered(RequestError::InvalidExptime))?;
    let keys = Keys::new(rest).map_err(Rejection::answered)?;
    Ok(Command::GetAndTouch { exptime, keys, with_cas })
}
