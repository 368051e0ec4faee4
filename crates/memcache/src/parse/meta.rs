//! Parses the lines of `mg`, `ms`, `md`, `ma` and `me`, except their flags ([`Meta::flags`]).

use super::MISSING_ARGUMENT;
use crate::command::Command;
use crate::error::{Rejection, RequestError};
use crate::meta::{Meta, MetaVerb};
use crate::number;
use crate::words::{MAX_KEY, Words};

/// `VERB KEY FLAGS*`
pub(crate) fn plain(verb: MetaVerb, args: Words<'_>) -> Result<Command<'_>, Rejection> {
    Meta::new(verb, args).map(Command::Meta).map_err(Rejection::answered)
}

/// `ms KEY LENGTH FLAGS*`: returns the command and the length of its value. A line that is rejected
/// here has no value.
pub(crate) fn set(args: Words<'_>) -> Result<(Meta<'_>, usize), Rejection> {
    let mut meta = Meta::new(MetaVerb::Set, args).map_err(Rejection::answered)?;
    let length = meta.take_length().and_then(number::value_length);
    let length = length.ok_or(Rejection::answered(RequestError::BadFormat))?;
    meta.check_line().map_err(Rejection::answered)?;
    Ok((meta, length))
}

/// `me KEY`
pub(crate) fn debug(mut args: Words<'_>) -> Result<Command<'_>, Rejection> {
    let key = args.next().ok_or(MISSING_ARGUMENT)?;
    if key.len() > MAX_KEY {
        return Err(Rejection::answered(RequestError::BadFormat));
    }
    Ok(Command::MetaDebug { key })
}
