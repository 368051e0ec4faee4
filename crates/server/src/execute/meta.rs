//! The meta commands.
//!
//! The parts of a reply are in the order of the request's flags, so the flags are read again while
//! the reply is written.

mod arithmetic;
mod delete;
mod get;
mod set;

use super::CLASS;
use super::{Executor, Replies, Session};
use relativist_memcache::{Meta, MetaFlags, MetaVerb, encode_key};
use relativist_store::{Expiry, Lookup, Marks};
use std::io::Write as _;

/// A command with checked flags and decoded key.
struct Request<'m, 'b> {
    meta: &'m Meta<'b>,
    flags: MetaFlags,
    key: &'m [u8],
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ending {
    Done,
    NotFound,
    NotStored,
    Exists,
    NotANumber,
}

impl Request<'_, '_> {
    /// The marks of an item that this command creates.
    fn marks(&self) -> Marks {
        if self.flags.has_base64_key() { Marks::ENCODED_KEY } else { Marks::NONE }
    }

    /// The expiry of an item that this command creates: the last of the flags `N` and `T` sets it.
    fn created_expiry(&self, now: u32) -> Expiry {
        let exptimes = self.meta.words().filter_map(|word| match word[0] {
            b'N' => self.flags.vivify,
            b'T' => self.flags.exptime,
            _ => None,
        });
        exptimes.last().map_or(Expiry::NEVER, |exptime| Expiry::from_protocol(exptime, now))
    }

    /// The CAS value that the client sets for the new item. A client that sends 0 sets none.
    fn cas(&self) -> Option<u64> {
        self.flags.cas.filter(|cas| *cas != 0)
    }

    /// Appends a reply that describes no item: `code`, and those of the request's flags that such a
    /// reply includes.
    fn append_status(&self, code: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(code);
        for word in self.meta.words() {
            match word[0] {
                b'O' => append_word(out, word),
                b'k' => append_key(out, self.key, self.flags.has_base64_key()),
                b'c' if self.meta.verb == MetaVerb::Set => out.extend_from_slice(b" c0"),
                b's' if self.meta.verb == MetaVerb::Set => append_number(out, b's', self.meta.value.len() as u64),
                _ => (),
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}

impl Executor<'_> {
    pub(super) fn meta(&self, session: &Session, meta: &Meta<'_>, replies: &mut Replies) {
        let mut room = [0; _];
        let checked = meta.flags().and_then(|flags| Ok((flags, meta.key(&flags, &mut room)?)));
        let out = &mut replies.bytes;
        match checked {
            Err(error) => out.extend_from_slice(error.reply()),
            Ok((_, key)) if self.has_key_prefix && !self.allows(key) => self.refuse_key(out),
            Ok((flags, key)) => {
                let request = Request { meta, flags, key };
                match meta.verb {
                    MetaVerb::Get => self.meta_get(session, &request, replies),
                    MetaVerb::Set => self.meta_set(session, &request, out),
                    MetaVerb::Delete => self.meta_delete(session, &request, out),
                    MetaVerb::Arithmetic => self.meta_arithmetic(session, &request, out),
                }
            }
        }
    }

    pub(super) fn meta_debug(&self, session: &Session, key: &[u8], out: &mut Vec<u8>) {
        self.counters.cmd_meta.bump();
        self.record_lookup(session, key);
        let lookup = self.tenant.cache.peek(key, |hit| {
            out.extend_from_slice(b"ME ");
            if shows_encoded(key, hit.marks) {
                encode_key(out, key)
            } else {
                out.extend_from_slice(key)
            }
            let ttl = hit.ttl().map_or(-1, i64::from);
            let fetched = if hit.marks.has(Marks::FETCHED) { "yes" } else { "no" };
            let (idle, cas, size) = (hit.idle, self.visible(hit.cas()), hit.size);
            write!(out, " exp={ttl} la={idle} cas={cas} fetch={fetched} cls={CLASS} size={size}\r\n")
                .expect("writing to a Vec does not fail");
        });
        if lookup != Lookup::Hit {
            out.extend_from_slice(b"EN\r\n");
        }
    }
}

fn append_word(out: &mut Vec<u8>, word: &[u8]) {
    out.push(b' ');
    out.extend_from_slice(word);
}

/// Appends a space, the letter (unless that is a space, too) and the number.
fn append_number(out: &mut Vec<u8>, letter: u8, number: u64) {
    out.push(b' ');
    if letter != b' ' {
        out.push(letter);
    }
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// The time to live that an expiry of the protocol sets, in seconds; none if it is unlimited.
fn ttl_of(exptime: i32, now: u32) -> Option<u32> {
    let expiry = Expiry::from_protocol(exptime, now);
    (expiry != Expiry::NEVER).then(|| expiry.to_bits().saturating_sub(now))
}

fn append_ttl(out: &mut Vec<u8>, ttl: Option<u32>) {
    match ttl {
        Some(ttl) => append_number(out, b't', ttl.into()),
        None => out.extend_from_slice(b" t-1"),
    }
}

/// Whether replies show the key of an item in base64, because a client stored it so, or because the
/// key would end the word or the line. (Only the binary protocol can store such a key.)
fn shows_encoded(key: &[u8], marks: Marks) -> bool {
    marks.has(Marks::ENCODED_KEY) || would_end_word(key)
}

fn would_end_word(key: &[u8]) -> bool {
    key.iter().any(|byte| matches!(byte, b' ' | b'\n'))
}

fn append_key(out: &mut Vec<u8>, key: &[u8], is_encoded: bool) {
    out.extend_from_slice(b" k");
    if is_encoded || would_end_word(key) {
        encode_key(out, key);
        out.extend_from_slice(b" b");
    } else {
        out.extend_from_slice(key);
    }
}
