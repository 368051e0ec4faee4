//! The meta commands `mg`, `ms`, `md` and `ma`: a key, and flags of one letter each.
//!
//! The words of a line are read twice. [`Meta::flags`] checks them and collects what they request.
//! The server reads them again for the reply ([`Meta::words`]), because the parts of the reply are
//! in the order of the flags.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::error::RequestError;
use crate::number::{signed_32, unsigned_32, unsigned_64};
use crate::words::{MAX_KEY, Words};

/// The maximum length of an opaque token, with its letter.
const MAX_OPAQUE: usize = 32;
/// The maximum number of words on a line, with verb and key.
const MAX_WORDS: usize = 20;
/// Padding is required. The superfluous bits of the last letter are ignored.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// The verb of a meta command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetaVerb {
    /// `mg`
    Get,
    /// `ms`
    Set,
    /// `md`
    Delete,
    /// `ma`
    Arithmetic,
}

/// The mode of an `ms` or `ma`: its flag `M`, or the default.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetaMode {
    /// `S` of `ms`: store.
    Set,
    /// `E` of `ms`: store if there is no item.
    Add,
    /// `A` of `ms`: append to the value of an item.
    Append,
    /// `P` of `ms`: prepend to the value of an item.
    Prepend,
    /// `R` of `ms`: store if there is an item.
    Replace,
    /// `I` or `+` of `ma`: count up.
    Increment,
    /// `D` or `-` of `ma`: count down.
    Decrement,
}

/// A meta command whose flags are not yet checked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Meta<'b> {
    /// The command.
    pub verb: MetaVerb,
    /// The key as sent; see [`key`](Self::key).
    pub sent_key: &'b [u8],
    /// The value of an `ms`; empty for the other commands.
    pub value: &'b [u8],
    words: Words<'b>,
}

/// The flags of a meta command. Flags with a token are fields, the others are methods.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MetaFlags {
    letters: u64,
    /// `F`: client flags.
    pub client_flags: Option<u32>,
    /// `T`: the new expiry.
    pub exptime: Option<i32>,
    /// `N`: the expiry of an item to be created on a miss.
    pub vivify: Option<i32>,
    /// `R`: renew the item if it expires within this number of seconds.
    pub recache: Option<i32>,
    /// `C`: the CAS value to compare with.
    pub compare: Option<u64>,
    /// `E`: the CAS value of the new item.
    pub cas: Option<u64>,
    /// `D`: the number to add or subtract.
    pub delta: u64,
    /// `J`: the value of an item created on a miss.
    pub initial: u64,
    /// `M`: the mode of `ms` and `ma`.
    pub mode: MetaMode,
}

impl MetaFlags {
    /// Whether the flag with this letter was sent. The methods below name the flags without a
    /// token.
    pub fn has(&self, letter: u8) -> bool {
        self.letters & bit(letter) != 0
    }

    /// `b`: the key is sent in base64.
    pub fn has_base64_key(&self) -> bool {
        self.has(b'b')
    }

    /// `q`: the usual outcome gets no reply.
    pub fn is_quiet(&self) -> bool {
        self.has(b'q')
    }

    /// `u` of `mg`: the fetch does not count as an access.
    pub fn is_peek(&self) -> bool {
        self.has(b'u')
    }

    /// `v`: the reply includes the value.
    pub fn returns_value(&self) -> bool {
        self.has(b'v')
    }

    /// `I` of `md`: the item becomes stale instead of being removed.
    pub fn marks_stale(&self) -> bool {
        self.has(b'I')
    }

    /// `I` and `C` of `ms`: a store with an older CAS value succeeds, but leaves the item stale.
    pub fn stores_stale(&self) -> bool {
        self.has(b'I') && self.compare.is_some()
    }

    /// `x` of `md`: the item stays, without its value.
    pub fn removes_value_only(&self) -> bool {
        self.has(b'x')
    }
}

impl<'b> Meta<'b> {
    pub(crate) fn new(verb: MetaVerb, mut args: Words<'b>) -> Result<Self, RequestError> {
        let sent_key = args.next().ok_or(RequestError::BadFormat)?;
        Ok(Self { verb, sent_key, value: b"", words: args })
    }

    /// Removes and returns the length of the value, which follows the key of an `ms`.
    pub(crate) fn take_length(&mut self) -> Option<&'b [u8]> {
        self.words.next()
    }

    /// Returns the flags as sent: each a letter and its token.
    pub fn words(&self) -> Words<'b> {
        self.words.clone()
    }

    /// Checks the whole line. If this returns an error, no value follows the line.
    pub(crate) fn check_line(&self) -> Result<(), RequestError> {
        let in_front = if self.verb == MetaVerb::Set { 3 } else { 2 };
        if self.words().count() + in_front > MAX_WORDS {
            return Err(RequestError::TooManyFlags);
        }
        let is_flag = |word: &[u8]| matches!(word[0], b'A'..=b'z' | b'0'..=b'9');
        if self.words().all(is_flag) { Ok(()) } else { Err(RequestError::BadFormat) }
    }

    /// Checks the flags.
    ///
    /// # Errors
    /// Returns the error in the flags or the key that memcached would report. Answer it with
    /// [`RequestError::reply`].
    pub fn flags(&self) -> Result<MetaFlags, RequestError> {
        self.check_line()?;
        if self.sent_key.len() > MAX_KEY {
            return Err(self.for_this_verb(RequestError::BadFormat));
        }
        let mut flags = MetaFlags {
            letters: 0,
            client_flags: None,
            exptime: None,
            vivify: None,
            recache: None,
            compare: None,
            cas: None,
            delta: 1,
            initial: 0,
            mode: if self.verb == MetaVerb::Arithmetic { MetaMode::Increment } else { MetaMode::Set },
        };
        self.take_words(&mut flags).map_err(|error| self.for_this_verb(error))?;
        // Errors in any other flag take precedence over errors in these two.
        for word in self.words().filter(|word| word[0] == b'M') {
            self.take_mode(&word[1..], &mut flags)?;
        }
        let is_too_long = |word: &[u8]| word[0] == b'O' && word.len() > MAX_OPAQUE;
        if self.words().any(is_too_long) { Err(RequestError::OpaqueTooLong) } else { Ok(flags) }
    }

    /// Reads all flags. Like memcached, stops at a flag that is unknown or was sent before. Of
    /// other errors the last one counts.
    fn take_words(&self, flags: &mut MetaFlags) -> Result<(), RequestError> {
        let mut outcome = Ok(());
        for word in self.words() {
            match flags.take(word) {
                Err(error @ (RequestError::DuplicateFlag | RequestError::InvalidFlag)) => return Err(error),
                Err(error) => outcome = Err(error),
                Ok(()) if word[0] == b'b' && decode_key(self.sent_key, &mut [0; MAX_KEY]).is_none() => {
                    outcome = Err(RequestError::BadKeyEncoding);
                }
                Ok(()) => (),
            }
        }
        outcome
    }

    fn take_mode(&self, token: &[u8], flags: &mut MetaFlags) -> Result<(), RequestError> {
        flags.mode = match (self.verb, token) {
            (MetaVerb::Set, [b'S', ..]) => MetaMode::Set,
            (MetaVerb::Set, [b'E', ..]) => MetaMode::Add,
            (MetaVerb::Set, [b'A', ..]) => MetaMode::Append,
            (MetaVerb::Set, [b'P', ..]) => MetaMode::Prepend,
            (MetaVerb::Set, [b'R', ..]) => MetaMode::Replace,
            (MetaVerb::Arithmetic, [b'I' | b'+', ..]) => MetaMode::Increment,
            (MetaVerb::Arithmetic, [b'D' | b'-', ..]) => MetaMode::Decrement,
            (MetaVerb::Set, _) => return Err(RequestError::InvalidSetMode),
            (MetaVerb::Arithmetic, _) => return Err(RequestError::InvalidArithmeticMode),
            _ => flags.mode,
        };
        Ok(())
    }

    /// Returns the key. With the flag `b`, decodes the sent key from base64.
    ///
    /// # Errors
    /// Returns an error if the sent key is not the base64 encoding of a key.
    pub fn key<'k>(&self, flags: &MetaFlags, room: &'k mut [u8; MAX_KEY]) -> Result<&'k [u8], RequestError>
    where
        'b: 'k,
    {
        if !flags.has_base64_key() {
            return Ok(self.sent_key);
        }
        decode_key(self.sent_key, room).ok_or(self.for_this_verb(RequestError::BadKeyEncoding))
    }

    /// Replaces any error of `ma` by the one that memcached sends for all of them.
    fn for_this_verb(&self, error: RequestError) -> RequestError {
        match self.verb {
            MetaVerb::Arithmetic => RequestError::InvalidOrDuplicateFlag,
            _ => error,
        }
    }
}

impl MetaFlags {
    fn take(&mut self, word: &[u8]) -> Result<(), RequestError> {
        let (letter, token) = (word[0], &word[1..]);
        if self.letters & bit(letter) != 0 {
            return Err(RequestError::DuplicateFlag);
        }
        self.letters |= bit(letter);
        match letter {
            b'C' => self.compare = Some(unsigned_64(token).ok_or(RequestError::BadToken)?),
            b'E' => self.cas = Some(unsigned_64(token).ok_or(RequestError::BadToken)?),
            b'T' => self.exptime = Some(signed_32(token).ok_or(RequestError::BadToken)?),
            b'N' => self.vivify = Some(signed_32(token).ok_or(RequestError::BadToken)?),
            b'R' => self.recache = Some(signed_32(token).ok_or(RequestError::BadToken)?),
            b'F' => self.client_flags = Some(unsigned_32(token).ok_or(RequestError::BadFormat)?),
            b'D' => self.delta = unsigned_64(token).ok_or(RequestError::InvalidDeltaToken)?,
            b'J' => self.initial = unsigned_64(token).ok_or(RequestError::InvalidInitialToken)?,
            b'b' | b'c' | b'f' | b'h' | b'k' | b'l' | b'q' | b's' | b't' | b'u' | b'v' | b'x' => (),
            b'I' | b'L' | b'M' | b'O' | b'P' => (),
            _ => return Err(RequestError::InvalidFlag),
        }
        Ok(())
    }
}

/// Returns the bit of a letter in a set of letters. Digits have none, because no flag is a digit.
fn bit(letter: u8) -> u64 {
    letter.checked_sub(b'A').map_or(0, |place| 1 << place)
}

/// Decodes a key from base64. Skips bytes outside the alphabet. Returns `None` if `text` does not
/// encode a key.
pub fn decode_key<'k>(text: &[u8], room: &'k mut [u8; MAX_KEY]) -> Option<&'k [u8]> {
    let mut letters = [0; MAX_KEY];
    let mut count = 0;
    for &byte in text.iter().filter(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(byte)) {
        *letters.get_mut(count)? = byte;
        count += 1;
    }
    let length = BASE64.decode_slice(&letters[..count], room).ok()?;
    (length > 0).then_some(&room[..length])
}

/// Appends the base64 encoding of `key`.
pub fn encode_key(out: &mut Vec<u8>, key: &[u8]) {
    let start = out.len();
    out.resize(start + key.len().div_ceil(3) * 4, 0);
    BASE64.encode_slice(key, &mut out[start..]).expect("there is room for three bytes in four");
}
