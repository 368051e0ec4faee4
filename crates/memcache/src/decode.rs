//! The incremental decoder.
//!
//! A connection's input is a sequence of lines, some of which are followed by a data block of
//! announced length. The decoder is in one of three states: looking for the end of a line, waiting
//! for a data block whose line it has parsed, or skipping a data block that was refused. It moves
//! on only when a line or a block is complete, with one exception: refused blocks are consumed as
//! they arrive, because they may be larger than any buffer.
//!
//! The result does not depend on how requests are cut into pieces, except for lines of more than
//! [`MAX_UNFINISHED_LINE`] bytes: as in memcached, such a line is accepted if its end arrives
//! before the limit is noticed.

use memchr::memchr;

use crate::command::{Admin, Arithmetic, Command, StoreVerb};
use crate::error::{Rejection, RequestError};
use crate::meta::{MetaMode, MetaVerb};
use crate::parse::store::{Header, Refused};
use crate::parse::{admin, fetch, meta, store, update};
use crate::words::Words;

/// More bytes than this without an LF close the connection, unless they begin a `get` or `gets`.
pub const MAX_UNFINISHED_LINE: usize = 2048;
/// More bytes than this without an LF close the connection even if they begin a `get` or `gets`.
pub const MAX_GET_LINE: usize = 1 << 20;
/// A line shorter than this, counting its end, is malformed whatever it says.
const MIN_LINE: usize = 4;
/// The words read behind the verb. Only the keys of `get` and similar commands may be more.
const MAX_ARGS: usize = 22;

/// Limits on what a client can make a connection buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The longest value accepted, in bytes; a longer one is skipped without being buffered, and
    /// refused.
    pub max_value: usize,
}

impl Default for Limits {
    /// Values up to 1 MiB.
    fn default() -> Self {
        Self { max_value: 1 << 20 }
    }
}

/// What a [`Decoder`] made of its input.
///
/// Before the next call the caller drops the first `consumed` bytes, and nothing else.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Decoded<'b> {
    /// A command to be executed and answered.
    Command {
        /// Bytes done with.
        consumed: usize,
        /// What to execute.
        command: Command<'b>,
    },
    /// A request to be answered with [`Rejection::reply`].
    Reject {
        /// Bytes done with.
        consumed: usize,
        /// The answer.
        rejection: Rejection,
    },
    /// A value that is too large. Do not answer yet: a [`Reject`](Self::Reject) follows when the
    /// client has sent all of it.
    TooLarge {
        /// Bytes done with: the command line.
        consumed: usize,
        /// Where it was to be stored.
        key: &'b [u8],
        /// Whether to remove the old value now: a `set` or `ms` would have replaced it.
        replaces: bool,
        /// Whether the key is in base64, for [`decode_key`](crate::decode_key).
        is_base64: bool,
    },
    /// Nothing more can be done until further bytes have arrived.
    Incomplete {
        /// Bytes done with: part of a value that is being skipped; otherwise 0.
        consumed: usize,
        /// How long the input must be, after `consumed` was dropped, for the next call to do
        /// something. Always more than what is there; a hint for the size of the next read. It
        /// rests on the client's word alone: memory is better provided as bytes arrive.
        needed: usize,
    },
    /// Close the connection without an answer. (Earlier answers are still sent.)
    Close,
}

/// A store whose value has not arrived completely, so that it can be collected elsewhere:
/// [`Decoder::pending_store`],
/// [`binary::Decoder::pending_store`](crate::binary::Decoder::pending_store).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PendingStore<'b> {
    /// Bytes of the input before the value.
    pub front: usize,
    /// Bytes of the value.
    pub length: usize,
    /// The key as it was sent.
    pub key: &'b [u8],
    /// Whether it is in base64, for [`decode_key`](crate::decode_key).
    pub is_base64: bool,
    /// The client flags of the new item.
    pub flags: u32,
    /// Whether the client gives the CAS value of the new item.
    pub has_cas: bool,
}

/// Finds the commands in a connection's bytes.
///
/// The decoder holds no bytes itself, only how far it has looked: the connection's buffer must hold
/// a request as a whole, that is at most a line, a value of [`Limits::max_value`] and its line end.
/// Decoding is linear in the input however it is cut.
#[derive(Clone, Debug)]
pub struct Decoder {
    limits: Limits,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A line begins the input; its first bytes, this many, hold no LF.
    Line { searched: usize },
    /// A storage line begins the input; its value is not complete.
    Value(Pending),
    /// The line of a `ms`, of this length, begins the input; its value, of this length, is not
    /// complete.
    MetaValue { line: usize, length: usize },
    /// The rest of a refused value begins the input: its length, line end included.
    Skip { remaining: usize, rejection: Rejection },
}

/// The start of every line.
const FRESH: State = State::Line { searched: 0 };

/// A parsed storage line at the start of the input, in front of its value.
#[derive(Clone, Copy, Debug)]
struct Pending {
    line: usize,
    length: usize,
    key_start: usize,
    key_end: usize,
    verb: StoreVerb,
    flags: u32,
    exptime: i32,
    noreply: bool,
}

impl Pending {
    fn new(line: &[u8], header: &Header<'_>) -> Self {
        let key_start = header.key.as_ptr().addr() - line.as_ptr().addr();
        Self {
            line: line.len(),
            length: header.length,
            key_start,
            key_end: key_start + header.key.len(),
            verb: header.verb,
            flags: header.flags,
            exptime: header.exptime,
            noreply: header.noreply,
        }
    }

    /// Where the request ends, its value's line end included.
    fn end(&self) -> usize {
        self.line + self.length + LINE_END.len()
    }
}

const LINE_END: &[u8] = b"\r\n";

impl Decoder {
    /// A decoder for a fresh connection.
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: FRESH }
    }

    /// Decodes what `input` begins with.
    ///
    /// `input` must start where the previous call left off: its input less the `consumed` bytes,
    /// with or without more bytes behind. What is returned borrows from `input` alone, so that
    /// several commands of one buffer can be held at once. After [`Decoded::Close`] the decoder is
    /// of no further use.
    ///
    /// Never panics and allocates nothing. Whatever is not [`Incomplete`](Decoded::Incomplete) or
    /// [`Close`](Decoded::Close) consumes at least one byte.
    #[inline]
    #[must_use]
    pub fn decode<'b>(&mut self, input: &'b [u8]) -> Decoded<'b> {
        match self.state {
            State::Line { searched } => self.line(input, searched),
            State::Value(pending) => self.value(input, pending),
            State::MetaValue { line, length } => self.meta_value(input, line, length),
            State::Skip { remaining, rejection } => self.skip(input, 0, remaining, rejection),
        }
    }

    #[inline]
    fn line<'b>(&mut self, input: &'b [u8], searched: usize) -> Decoded<'b> {
        let unsearched = input.get(searched..).unwrap_or_default();
        let Some(lf) = memchr(b'\n', unsearched) else {
            return self.unfinished_line(input);
        };
        self.state = FRESH;
        self.finished_line(input, searched + lf + 1)
    }

    /// The input begins with a line of `consumed` bytes, its end included.
    #[inline]
    fn finished_line<'b>(&mut self, input: &'b [u8], consumed: usize) -> Decoded<'b> {
        let line = &input[..consumed];
        if line.len() < MIN_LINE {
            return Decoded::Reject { consumed, rejection: Rejection::answered(RequestError::BadFormat) };
        }
        let (verb, args) = split_line(line);
        match verb {
            b"get" => plain(consumed, fetch::get(args, false)),
            b"gets" => plain(consumed, fetch::get(args, true)),
            b"gat" => plain(consumed, fetch::get_and_touch(args, false)),
            b"gats" => plain(consumed, fetch::get_and_touch(args, true)),
            b"set" => self.storage(input, line, store::store(args, StoreVerb::Set)),
            b"add" => self.storage(input, line, store::store(args, StoreVerb::Add)),
            b"replace" => self.storage(input, line, store::store(args, StoreVerb::Replace)),
            b"append" => self.storage(input, line, store::store(args, StoreVerb::Append)),
            b"prepend" => self.storage(input, line, store::store(args, StoreVerb::Prepend)),
            b"cas" => self.storage(input, line, store::cas(args)),
            b"delete" => plain(consumed, update::delete(args)),
            b"incr" => plain(consumed, update::arithmetic(args, Arithmetic::Incr)),
            b"decr" => plain(consumed, update::arithmetic(args, Arithmetic::Decr)),
            b"touch" => plain(consumed, update::touch(args)),
            b"flush_all" => plain(consumed, admin::flush_all(args)),
            b"verbosity" => plain(consumed, admin::verbosity(args)),
            b"version" => plain(consumed, Ok(Command::Version)),
            b"stats" => plain(consumed, Ok(Command::Stats { args })),
            b"quit" => plain(consumed, Ok(Command::Quit)),
            b"mg" => plain(consumed, meta::plain(MetaVerb::Get, args)),
            b"ms" => self.meta_set(input, line, args),
            b"md" => plain(consumed, meta::plain(MetaVerb::Delete, args)),
            b"ma" => plain(consumed, meta::plain(MetaVerb::Arithmetic, args)),
            b"mn" => plain(consumed, Ok(Command::MetaNoop)),
            b"me" => plain(consumed, meta::debug(args)),
            b"shutdown" => plain(consumed, Ok(Command::Admin { verb: Admin::Shutdown, args })),
            b"cache_memlimit" => plain(consumed, Ok(Command::Admin { verb: Admin::MemoryLimit, args })),
            b"slabs" => plain(consumed, Ok(Command::Admin { verb: Admin::Slabs, args })),
            b"lru" => plain(consumed, Ok(Command::Admin { verb: Admin::Lru, args })),
            b"lru_crawler" => plain(consumed, Ok(Command::Admin { verb: Admin::LruCrawler, args })),
            b"watch" => plain(consumed, Ok(Command::Admin { verb: Admin::Watch, args })),
            b"refresh_certs" => plain(consumed, Ok(Command::Admin { verb: Admin::RefreshCerts, args })),
            b"debugtime" => plain(consumed, Ok(Command::Admin { verb: Admin::DebugTime, args })),
            _ => admin::unknown(verb, args).map_or(Decoded::Close, |rejection| Decoded::Reject { consumed, rejection }),
        }
    }

    /// No LF in the whole input.
    fn unfinished_line(&mut self, input: &[u8]) -> Decoded<'static> {
        if input.len() > MAX_UNFINISHED_LINE && !(is_get(input) && input.len() <= MAX_GET_LINE) {
            return Decoded::Close;
        }
        self.state = State::Line { searched: input.len() };
        Decoded::Incomplete { consumed: 0, needed: input.len() + 1 }
    }

    /// A storage line, or what is wrong with it.
    #[inline]
    fn storage<'b>(&mut self, input: &'b [u8], line: &[u8], parsed: Result<Header<'b>, Refused>) -> Decoded<'b> {
        match parsed {
            Ok(header) if header.length > self.limits.max_value => {
                self.skip_large(header.length, header.noreply);
                let replaces = header.verb == StoreVerb::Set;
                Decoded::TooLarge { consumed: line.len(), key: header.key, replaces, is_base64: false }
            }
            Ok(header) => self.value(input, Pending::new(line, &header)),
            Err(Refused { rejection, length: None }) => Decoded::Reject { consumed: line.len(), rejection },
            Err(Refused { rejection, length: Some(length) }) => {
                self.skip(input, line.len(), length + LINE_END.len(), rejection)
            }
        }
    }

    #[inline]
    fn value<'b>(&mut self, input: &'b [u8], pending: Pending) -> Decoded<'b> {
        let consumed = pending.end();
        let Some(block) = input.get(pending.line..consumed) else {
            self.state = State::Value(pending);
            return Decoded::Incomplete { consumed: 0, needed: consumed };
        };
        self.state = FRESH;
        let (value, end) = block.split_at(pending.length);
        plain(consumed, stored(pending, input, value, end))
    }

    /// An `ms`, or its error. As with the classic commands, an error found after the length is
    /// known is reported when the value was skipped.
    fn meta_set<'b>(&mut self, input: &'b [u8], line: &'b [u8], args: Words<'b>) -> Decoded<'b> {
        let (meta, length) = match meta::set(args) {
            Ok(parsed) => parsed,
            Err(rejection) => return Decoded::Reject { consumed: line.len(), rejection },
        };
        match meta.flags() {
            Err(error) => self.skip(input, line.len(), length + LINE_END.len(), Rejection::answered(error)),
            Ok(flags) if length > self.limits.max_value => {
                self.skip_large(length, false);
                let is_base64 = flags.has_base64_key();
                Decoded::TooLarge { consumed: line.len(), key: meta.sent_key, replaces: true, is_base64 }
            }
            Ok(_) => self.meta_value(input, line.len(), length),
        }
    }

    fn meta_value<'b>(&mut self, input: &'b [u8], line: usize, length: usize) -> Decoded<'b> {
        let consumed = line + length + LINE_END.len();
        let Some(block) = input.get(line..consumed) else {
            self.state = State::MetaValue { line, length };
            return Decoded::Incomplete { consumed: 0, needed: consumed };
        };
        self.state = FRESH;
        let (value, end) = block.split_at(length);
        plain(consumed, meta_stored(&input[..line], value, end))
    }

    /// The store that `input` begins with, if its value has not arrived completely. Call this after
    /// [`decode`](Self::decode) has returned `Incomplete`. None if there is no such store, or if
    /// the result depends on the present item: the value is joined to another one, or stored as
    /// stale.
    ///
    /// To collect the value elsewhere, keep the first [`front`](PendingStore::front) bytes, collect
    /// the value and the two bytes behind it, and pass all three to
    /// [`decode_apart`](Self::decode_apart), without another call in between.
    ///
    /// ```
    /// use relativist_memcache::{Command, Decoded, Decoder, Limits};
    ///
    /// let mut decoder = Decoder::new(Limits::default());
    /// let input = b"set k 0 0 5\r\nhel";
    /// assert!(matches!(decoder.decode(input), Decoded::Incomplete { .. }));
    /// let awaited = decoder.pending_store(input).unwrap();
    /// let (line, value) = input.split_at(awaited.front);
    /// let value = [value, b"lo"].concat();
    /// assert_eq!(value.len(), awaited.length);
    /// assert!(matches!(decoder.decode_apart(line, &value, b"\r\n"), Ok(Command::Store { value: b"hello", .. })));
    /// ```
    pub fn pending_store<'b>(&self, input: &'b [u8]) -> Option<PendingStore<'b>> {
        match self.state {
            State::Value(Pending { verb: StoreVerb::Append | StoreVerb::Prepend, .. }) => None,
            State::Value(pending) => Some(PendingStore {
                front: pending.line,
                length: pending.length,
                key: input.get(pending.key_start..pending.key_end)?,
                is_base64: false,
                flags: pending.flags,
                has_cas: false,
            }),
            State::MetaValue { line, length } => {
                let (_, args) = split_line(input.get(..line)?);
                let (meta, _) = meta::set(args).ok()?;
                let flags = meta.flags().ok()?;
                let joins = matches!(flags.mode, MetaMode::Append | MetaMode::Prepend);
                (!flags.stores_stale() && !joins).then(|| PendingStore {
                    front: line,
                    length,
                    key: meta.sent_key,
                    is_base64: flags.has_base64_key(),
                    flags: flags.client_flags.unwrap_or(0),
                    has_cas: flags.cas.is_some_and(|cas| cas != 0),
                })
            }
            State::Line { .. } | State::Skip { .. } => None,
        }
    }

    /// Decodes the [pending store](Self::pending_store), whose line, value and line end were
    /// collected separately. The input continues with the next line.
    ///
    /// # Errors
    /// What the request is to be answered with, when the two bytes do not end a line.
    ///
    /// # Panics
    /// If no store is awaited.
    pub fn decode_apart<'b>(
        &mut self,
        line: &'b [u8],
        value: &'b [u8],
        end: &[u8; LINE_END.len()],
    ) -> Result<Command<'b>, Rejection> {
        match std::mem::replace(&mut self.state, FRESH) {
            State::Value(pending) => stored(pending, line, value, end),
            State::MetaValue { .. } => meta_stored(line, value, end),
            State::Line { .. } | State::Skip { .. } => panic!("no store is awaited"),
        }
    }

    /// Skips a value over the limit.
    #[cold]
    fn skip_large(&mut self, length: usize, noreply: bool) {
        let rejection = Rejection { error: RequestError::TooLarge, noreply };
        self.state = State::Skip { remaining: length + LINE_END.len(), rejection };
    }

    /// Whether the next bytes belong to the value of a store.
    pub fn is_receiving(&self) -> bool {
        matches!(self.state, State::Value(_) | State::MetaValue { .. })
    }

    /// Whether what comes next belongs to a command that is refused, and does not begin one.
    pub fn is_skipping(&self) -> bool {
        matches!(self.state, State::Skip { .. })
    }

    /// Skips what is there of the `remaining` bytes that begin at `start`.
    #[cold]
    fn skip(&mut self, input: &[u8], start: usize, remaining: usize, rejection: Rejection) -> Decoded<'static> {
        let available = input.len() - start;
        if available < remaining {
            self.state = State::Skip { remaining: remaining - available, rejection };
            return Decoded::Incomplete { consumed: input.len(), needed: 1 };
        }
        self.state = FRESH;
        Decoded::Reject { consumed: start + remaining, rejection }
    }
}

/// A store whose line `input` begins with.
#[inline]
fn stored<'b>(pending: Pending, input: &'b [u8], value: &'b [u8], end: &[u8]) -> Result<Command<'b>, Rejection> {
    let Pending { verb, flags, exptime, noreply, .. } = pending;
    if end != LINE_END {
        return Err(Rejection { error: RequestError::BadDataChunk, noreply });
    }
    let key = &input[pending.key_start..pending.key_end];
    Ok(Command::Store { verb, key, flags, exptime, value, noreply })
}

/// The `ms` whose line is `line`.
fn meta_stored<'b>(line: &'b [u8], value: &'b [u8], end: &[u8]) -> Result<Command<'b>, Rejection> {
    if end != LINE_END {
        return Err(Rejection::answered(RequestError::BadDataChunk));
    }
    let (_, args) = split_line(line);
    let (mut meta, _) = meta::set(args)?;
    meta.value = value;
    Ok(Command::Meta(meta))
}

/// The outcome of a line that is a request on its own, or of one with its value.
#[inline]
fn plain<'b>(consumed: usize, parsed: Result<Command<'b>, Rejection>) -> Decoded<'b> {
    match parsed {
        Ok(command) => Decoded::Command { consumed, command },
        Err(rejection) => Decoded::Reject { consumed, rejection },
    }
}

/// The first word of a line, and those behind it. A line that starts with a space has an empty
/// first word.
#[inline]
fn split_line(line: &[u8]) -> (&[u8], Words<'_>) {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let end = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    let (verb, args) = text.split_at(end);
    (verb, Words::new(args, MAX_ARGS))
}

/// Whether an unfinished line is, or may become, a `get` or `gets`.
fn is_get(line: &[u8]) -> bool {
    const MAX_LEADING_SPACES: usize = 100;
    let spaces = line.iter().take_while(|byte| **byte == b' ').count();
    let text = &line[spaces..];
    spaces <= MAX_LEADING_SPACES && (text.starts_with(b"get ") || text.starts_with(b"gets "))
}
