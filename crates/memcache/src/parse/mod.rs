//! Parsers for the arguments of each verb.
//!
//! One function per verb, grouped in submodules. A line with too few words, or with a malformed
//! value length, is refused with an answer even if it ends in `noreply`. Every later refusal
//! honours `noreply`, which is the last of the words read. Surplus words are ignored.

pub(crate) mod admin;
pub(crate) mod fetch;
pub(crate) mod meta;
pub(crate) mod store;
pub(crate) mod update;

use crate::error::{Rejection, RequestError};
use crate::words::MAX_KEY;

/// Too few words on the line.
const MISSING_ARGUMENT: Rejection = Rejection::answered(RequestError::BadFormat);

#[inline]
fn is_noreply(word: &[u8]) -> bool {
    word == b"noreply"
}

#[inline]
fn is_key(word: &[u8]) -> bool {
    word.len() <= MAX_KEY
}
