//! Parsers for the arguments of the text commands.
//!
//! There is one function per verb. All of them follow three rules, as memcached does. A line with
//! too few words, or with a malformed value length, is rejected with an error line even if it ends
//! in `noreply`. All other errors honour `noreply`, which is the last of the words that are read.
//! Surplus words are ignored.

pub(crate) mod admin;
pub(crate) mod fetch;
pub(crate) mod meta;
pub(crate) mod store;
pub(crate) mod update;

use crate::error::{Rejection, RequestError};
use crate::words::MAX_KEY;

/// The line has too few words.
const MISSING_ARGUMENT: Rejection = Rejection::answered(RequestError::BadFormat);

#[inline]
fn is_noreply(word: &[u8]) -> bool {
    word == b"noreply"
}

#[inline]
fn is_key(word: &[u8]) -> bool {
    word.len() <= MAX_KEY
}
