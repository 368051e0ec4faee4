//! The incremental decoder of the text protocol.
//!
//! A connection's input is a sequence of lines, some of which are followed by a data block of
//! announced length. The decoder is in one of three states: looking for the end of a line, waiting
//! for a data block whose line it has parsed, or skipping a data block that was refused. It
//! proceeds only when a line or a block is complete, with one exception: it consumes refused blocks
//! as they arrive, because they may be larger than any buffer.
//!
//! The result does not depend on how the input is split into pieces, except for lines of more than
//! [`MAX_UNFINISHED_LINE`] bytes: like memcached, the decoder accepts such a line if its end has
//! arrived before the decoder checks the limit.

use memchr::memchr;

use crate::command::{Admin, Arithmetic, Command, StoreVerb};
use crate::error::{Rejection, RequestError};
use crate::meta::{MetaMode, MetaVerb};
use crate::parse::store::{Header, Refused};
use crate::parse::{admin, fetch, meta, store, update};
use crate::words::Words;

/// The maximum length of a line whose LF has not arrived, in bytes. The connection is closed on a
/// longer one, unless it begins a `get` or `gets`.
pub const MAX_UNFINISHED_LINE: usize = 2048;
/// The maximum length of a line that begins a `get` or `gets` and whose LF has not arrived, in
/// bytes. The connection is closed on a longer one.
pub const MAX_GET_LINE: usize = 1 << 20;
/// The minimum length of a line, with its line end. A shorter line is malformed.
const MIN_LINE: usize = 4;
/// The maximum number of words after the verb that are read. Only the keys of `get`, `gets`, `gat`
/// and `gats` may be more.
const MAX_ARGS: usize = 22;

/// Limits on what a client can make the server buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The maximum length of a value, in bytes. The decoder skips a longer one without buffering
    /// it, and rejects the request.
    pub max_value: usize,
}

impl Default for Limits {
    /// Accepts values of up to 1 MiB.
    fn default() -> Self {
        Self { max_value: 1 << 20 }
    }
}

/// The result of [`Decoder::decode`].
///
/// The caller drops exactly the first `consumed` bytes before the next call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Decoded<'b> {
    /// A command for the server to execute and answer.
    Command {
        /// The number of consumed bytes.
        consumed: usize,
        /// The command.
        command: Command<'b>,
    },
    /// A request that the decoder rejected. The server answers it with [`Rejection::reply`].
    Reject {
        /// The number of consumed bytes.
        consumed: usize,
        /// Why the request was rejected.
        rejection: Rejection,
    },
    /// A store whose value exceeds [`Limits::max_value`]. The server sends no reply yet: a
    /// [`Reject`](Self::Reject) follows once the client has sent the whole value.
    TooLarge {
        /// The number of consumed bytes: the command line.
        consumed: usize,
        /// The store's key, as sent.
        key: &'b [u8],
        /// Whether the server must remove the old item now. True for `set` and `ms`.
        replaces: bool,
        /// Whether the key is in base64, see [`decode_key`](crate::decode_key).
        is_base64: bool,
    },
    /// The request is incomplete: the decoder needs more bytes.
    Incomplete {
        /// The number of consumed bytes: part of a value that is being skipped; otherwise 0.
        consumed: usize,
        /// The length of input, after `consumed` was dropped, at which the next call can make
        /// progress. It is always more than has arrived, and is a hint for the size of the next
        /// read. The client alone determines it, so the caller should allocate memory only as bytes
        /// arrive.
        needed: usize,
    },
    /// The server must close the connection without a reply to this request. It still sends earlier
    /// replies.
    Close,
}

/// A store whose value has not arrived completely. The caller may receive the value directly into
/// the new item. See [`Decoder::pending_store`] and
/// [`binary::Decoder::pending_store`](crate::binary::Decoder::pending_store).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PendingStore<'b> {
    /// The number of bytes of the input before the value.
    pub front: usize,
    /// The length of the value, in bytes.
    pub length: usize,
    /// The key, as sent.
    pub key: &'b [u8],
    /// Whether the key is in base64, see [`decode_key`](crate::decode_key).
    pub is_base64: bool,
    /// The client flags of the new item.
    pub flags: u32,
    /// Whether the client sets the CAS value of the new item.
    pub has_cas: bool,
}

/// Finds the commands in a connection's bytes.
///
/// The decoder buffers no bytes; it only remembers its position. The connection's buffer must have
/// room for a whole request: a line, a value of [`Limits::max_value`] bytes and its line end.
/// Decoding takes time linear in the length of the input, however the input is split.
#[derive(Clone, Debug)]
pub struct Decoder {
    limits: Limits,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The input begins with a line. Its first `searched` bytes contain no LF.
    Line { searched: usize },
    /// The input begins with a storage line. Its value is incomplete.
    Value(Pending),
    /// The input begins with the line of an `ms`, of `line` bytes. Its value of `length` bytes is
    /// incomplete.
    MetaValue { line: usize, length: usize },
    /// The input begins with the rest of a refused value: `remaining` bytes, with its line end.
    Skip { remaining: usize, rejection: Rejection },
}

/// The state at the start of every line.
const FRESH: State = State::Line { searched: 0 };

/// A parsed storage line at the start of the input, before its value.
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

    /// Returns the length of the request, with the line end of its value.
    fn end(&self) -> usize {
        self.line + self.length + LINE_END.len()
    }
}

const LINE_END: &[u8] = b"\r\n";

impl Decoder {
    /// Returns a decoder for a new connection.
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: FRESH }
    }

    /// Decodes the request that `input` begins with.
    ///
    /// `input` must be the previous call's input without the `consumed` bytes, possibly followed by
    /// more bytes. The result borrows only from `input`, so the caller can hold several commands of
    /// one buffer at once. Do not use the decoder after [`Decoded::Close`].
    ///
    /// Never panics and allocates nothing. Every result except [`Incomplete`](Decoded::Incomplete)
    /// and [`Close`](Decoded::Close) consumes at least one byte.
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

    /// Decodes the line of `consumed` bytes, with its line end, that the input begins with.
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
            b"config" => plain(consumed, Ok(Command::Admin { verb: Admin::Config, args })),
            b"debugtime" => plain(consumed, Ok(Command::Admin { verb: Admin::DebugTime, args })),
            _ => admin::unknown(verb, args).map_or(Decoded::Close, |rejection| Decoded::Reject { consumed, rejection }),
        }
    }

    /// Handles input without an LF.
    fn unfinished_line(&mut self, input: &[u8]) -> Decoded<'static> {
        if input.len() > MAX_UNFINISHED_LINE && !(is_get(input) && input.len() <= MAX_GET_LINE) {
            return Decoded::Close;
        }
        self.state = State::Line { searched: input.len() };
        Decoded::Incomplete { consumed: 0, needed: input.len() + 1 }
    }

    /// Handles a parsed storage line, or the error in it.
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

    /// Handles an `ms`. As with the classic commands, if the length is valid, an error is reported
    /// only after the value was skipped.
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

    /// Returns the store that `input` begins with, if its value has not yet arrived completely.
    /// Call this only after [`decode`](Self::decode) has returned
    /// [`Incomplete`](Decoded::Incomplete). Returns `None` if there is no such store, or if the new
    /// item depends on the old one: the store appends or prepends, or may mark the new item stale.
    ///
    /// The caller may then collect the value outside its input buffer. It keeps the first
    /// [`front`](PendingStore::front) bytes, collects the value and the two bytes after it, and
    /// passes all three to [`decode_apart`](Self::decode_apart), without another call to the
    /// decoder in between.
    ///
    /// ```
    /// use relativist_memcache::{Command, Decoded, Decoder, Limits};
    ///
    /// let mut decoder = Decoder::new(Limits::default());
    /// let input = b"set k 0 0 5\r\nhel";
    /// assert!(matches!(decoder.decode(input), Decoded::Incomplete { .. }));
    /// let pending = decoder.pending_store(input).unwrap();
    /// let (line, value) = input.split_at(pending.front);
    /// let value = [value, b"lo"].concat();
    /// assert_eq!(value.len(), pending.length);
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

    /// Decodes the [pending store](Self::pending_store), whose line, value and two bytes after the
    /// value the caller has collected separately. The next input begins with the next line.
    ///
    /// # Errors
    /// Returns a rejection if the two bytes are not CR LF.
    ///
    /// # Panics
    /// Panics if no store is pending.
    pub fn decode_apart<'b>(
        &mut self,
        line: &'b [u8],
        value: &'b [u8],
        end: &[u8; LINE_END.len()],
    ) -> Result<Command<'b>, Rejection> {
        match std::mem::replace(&mut self.state, FRESH) {
            State::Value(pending) => stored(pending, line, value, end),
            State::MetaValue { .. } => meta_stored(line, value, end),
            State::Line { .. } | State::Skip { .. } => panic!("no store is pending"),
        }
    }

    /// Makes the decoder skip a value over the limit.
    #[cold]
    fn skip_large(&mut self, length: usize, noreply: bool) {
        let rejection = Rejection { error: RequestError::TooLarge, noreply };
        self.state = State::Skip { remaining: length + LINE_END.len(), rejection };
    }

    /// Whether the next bytes are part of a store's value.
    pub fn is_receiving(&self) -> bool {
        matches!(self.state, State::Value(_) | State::MetaValue { .. })
    }

    /// Whether the next bytes are the rest of a rejected command.
    pub fn is_skipping(&self) -> bool {
        matches!(self.state, State::Skip { .. })
    }

    /// Skips the bytes that have arrived of the `remaining` bytes that begin at `start`.
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

/// Returns the store whose line `input` begins with.
#[inline]
fn stored<'b>(pending: Pending, input: &'b [u8], value: &'b [u8], end: &[u8]) -> Result<Command<'b>, Rejection> {
    let Pending { verb, flags, exptime, noreply, .. } = pending;
    if end != LINE_END {
        return Err(Rejection { error: RequestError::BadDataChunk, noreply });
    }
    let key = &input[pending.key_start..pending.key_end];
    Ok(Command::Store { verb, key, flags, exptime, value, noreply })
}

/// Returns the `ms` on `line`.
fn meta_stored<'b>(line: &'b [u8], value: &'b [u8], end: &[u8]) -> Result<Command<'b>, Rejection> {
    if end != LINE_END {
        return Err(Rejection::answered(RequestError::BadDataChunk));
    }
    let (_, args) = split_line(line);
    let (mut meta, _) = meta::set(args)?;
    meta.value = value;
    Ok(Command::Meta(meta))
}

/// Converts a parsed request, with its value if it has one.
#[inline]
fn plain<'b>(consumed: usize, parsed: Result<Command<'b>, Rejection>) -> Decoded<'b> {
    match parsed {
        Ok(command) => Decoded::Command { consumed, command },
        Err(rejection) => Decoded::Reject { consumed, rejection },
    }
}

/// Splits a line into its first word and the others. The first word is empty if the line starts
/// with a space.
#[inline]
fn split_line(line: &[u8]) -> (&[u8], Words<'_>) {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let end = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    let (verb, args) = text.split_at(end);
    (verb, Words::new(args, MAX_ARGS))
}

/// Whether memcached treats an unfinished line as a `get` or `gets`.
fn is_get(line: &[u8]) -> bool {
    const MAX_LEADING_SPACES: usize = 100;
    let spaces = line.iter().take_while(|byte| **byte == b' ').count();
    let text = &line[spaces..];
    spaces <= MAX_LEADING_SPACES && (text.starts_with(b"get ") || text.starts_with(b"gets "))
}
