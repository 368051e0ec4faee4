//! Lazy iterators over the words of a command line, which collect and copy nothing.
//!
//! Words are separated by one or more spaces (0x20 only: a tab or any other byte is part of a
//! word).

use std::fmt;
use std::iter::FusedIterator;

use memchr::memchr;

use crate::error::RequestError;

/// The longest key, in bytes.
pub const MAX_KEY: usize = 250;

/// An iterator over the words of a command line.
#[derive(Clone, Eq, PartialEq)]
pub struct Words<'b> {
    /// The rest of the line: empty, or starting with a word.
    rest: &'b [u8],
    /// The maximum number of words still to return.
    left: usize,
}

impl<'b> Words<'b> {
    /// Returns an iterator over the first `limit` words of `text`.
    #[inline]
    #[must_use]
    pub fn new(text: &'b [u8], limit: usize) -> Self {
        Self { rest: trim_start(text), left: limit }
    }

    /// Returns the text after the words returned so far, even if it has more words than the limit.
    #[inline]
    pub(crate) fn into_rest(self) -> &'b [u8] {
        self.rest
    }
}

impl<'b> Iterator for Words<'b> {
    type Item = &'b [u8];

    #[inline]
    fn next(&mut self) -> Option<&'b [u8]> {
        self.left = self.left.checked_sub(1)?;
        take_word(&mut self.rest)
    }
}

impl FusedIterator for Words<'_> {}

impl fmt::Debug for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_list(self.clone(), f)
    }
}

/// An iterator over the keys of a `get`, `gets`, `gat` or `gats`: at least one, none longer than
/// [`MAX_KEY`].
///
/// A clone continues at the original's position, so it can iterate over the keys again.
#[derive(Clone, Eq, PartialEq)]
pub struct Keys<'b> {
    /// The keys not yet returned: empty, or starting with a key.
    rest: &'b [u8],
}

impl<'b> Keys<'b> {
    /// Returns the words of `text` as keys, if all of them are valid keys.
    #[inline]
    pub(crate) fn new(text: &'b [u8]) -> Result<Self, RequestError> {
        let keys = Self { rest: trim_start(text) };
        let are_valid = match keys.rest.len() {
            0 => false,
            // No word is longer than the text that contains it.
            1..=MAX_KEY => true,
            _ => keys.clone().all(|key| key.len() <= MAX_KEY),
        };
        if are_valid { Ok(keys) } else { Err(RequestError::BadFormat) }
    }

    /// Returns the key if there is exactly one.
    #[inline]
    #[must_use]
    pub fn only(&self) -> Option<&'b [u8]> {
        let mut keys = self.clone();
        let key = keys.next();
        key.filter(|_| keys.rest.is_empty())
    }
}

impl<'b> Iterator for Keys<'b> {
    type Item = &'b [u8];

    #[inline]
    fn next(&mut self) -> Option<&'b [u8]> {
        take_word(&mut self.rest)
    }
}

impl FusedIterator for Keys<'_> {}

impl fmt::Debug for Keys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_list(self.clone(), f)
    }
}

/// Removes and returns the word that `rest` begins with. Also removes the spaces after it.
#[inline]
fn take_word<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    if rest.is_empty() {
        return None;
    }
    let end = memchr(b' ', rest).unwrap_or(rest.len());
    let (word, tail) = rest.split_at(end);
    *rest = trim_start(tail);
    Some(word)
}

#[inline]
fn trim_start(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    text
}

fn debug_list<'b>(words: impl Iterator<Item = &'b [u8]>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_list().entries(words.map(|word| word.escape_ascii().to_string())).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stop_at_their_limit() {
        let mut words = Words::new(b"  a b  c ", 2);
        assert_eq!(words.clone().into_rest(), b"a b  c ");
        assert_eq!((words.next(), words.next(), words.next()), (Some(&b"a"[..]), Some(&b"b"[..]), None));
        assert_eq!(words.into_rest(), b"c ");
    }

    #[test]
    fn debug_output_is_readable() {
        assert_eq!(format!("{:?}", Words::new(b"on off", 22)), r#"["on", "off"]"#);
        assert_eq!(format!("{:?}", Keys::new(b"a b")), r#"Ok(["a", "b"])"#);
    }
}
