//! `set`, `add`, `replace`, `append`, `prepend` and `cas`: the line before a data block.
//!
//! If the length is valid, the block is part of the request: an error in another word is reported
//! only after the block was skipped. A line with a malformed length has no block.

use super::{MISSING_ARGUMENT, is_key, is_noreply};
use crate::command::StoreVerb;
use crate::error::{Rejection, RequestError};
use crate::number;
use crate::words::Words;

/// A parsed storage line. A value of `length` bytes follows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header<'b> {
    pub(crate) verb: StoreVerb,
    pub(crate) key: &'b [u8],
    pub(crate) flags: u32,
    pub(crate) exptime: i32,
    pub(crate) length: usize,
    pub(crate) noreply: bool,
}

/// A storage line that was rejected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) rejection: Rejection,
    /// The length of the value to skip before the rejection is sent, if it is known.
    pub(crate) length: Option<usize>,
}

/// `VERB KEY FLAGS EXPTIME LENGTH [noreply]`
#[inline]
pub(crate) fn store(args: Words<'_>, verb: StoreVerb) -> Result<Header<'_>, Refused> {
    header(args, |_| Some(verb))
}

/// `cas KEY FLAGS EXPTIME LENGTH UNIQUE [noreply]`
pub(crate) fn cas(args: Words<'_>) -> Result<Header<'_>, Refused> {
    header(args, |mut further| further.next().and_then(number::unsigned_64).map(StoreVerb::Cas))
}

/// Parses a storage line. `verb` parses the words after the length.
#[inline]
fn header<'b>(mut args: Words<'b>, verb: impl FnOnce(Words<'b>) -> Option<StoreVerb>) -> Result<Header<'b>, Refused> {
    let (Some(key), Some(flags), Some(exptime), Some(length)) = (args.next(), args.next(), args.next(), args.next())
    else {
        return Err(Refused { rejection: MISSING_ARGUMENT, length: None });
    };
    let Some(length) = number::value_length(length) else {
        return Err(Refused { rejection: Rejection::answered(RequestError::BadFormat), length: None });
    };
    let noreply = args.clone().last().is_some_and(is_noreply);
    let parsed = || {
        is_key(key).then_some(Header {
            verb: verb(args)?,
            key,
            flags: number::lax_flags(flags)?,
            exptime: number::lax_exptime(exptime)?,
            length,
            noreply,
        })
    };
    let rejection = Rejection { error: RequestError::BadFormat, noreply };
    parsed().ok_or(Refused { rejection, length: Some(length) })
}
