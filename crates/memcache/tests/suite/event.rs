//! Decodes a whole stream to owned values that can be compared. The tests and the fuzz targets use
//! this module.
//!
//! [`events`] plays the connection: it buffers, calls the decoder, drops the consumed bytes,
//! collects some values separately, and asserts what must hold for any input.

use relativist_memcache::{
    Admin, Arithmetic, Command, Decoded, Decoder, Limits, MAX_KEY, Meta, MetaFlags, MetaVerb, Rejection, RequestError,
    StoreVerb,
};

/// An owned [`Decoded`], without the numbers of consumed bytes. `Incomplete` has no event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    Fetch {
        exptime: Option<i32>,
        keys: Vec<Vec<u8>>,
        with_cas: bool,
    },
    Store {
        verb: StoreVerb,
        key: Vec<u8>,
        flags: u32,
        exptime: i32,
        value: Vec<u8>,
        noreply: bool,
    },
    Arithmetic {
        key: Vec<u8>,
        op: Arithmetic,
        delta: u64,
        noreply: bool,
    },
    Delete {
        key: Vec<u8>,
        noreply: bool,
    },
    Touch {
        key: Vec<u8>,
        exptime: i32,
        noreply: bool,
    },
    FlushAll {
        exptime: i32,
        noreply: bool,
    },
    Version,
    Verbosity {
        level: u32,
        noreply: bool,
    },
    Stats {
        args: Vec<Vec<u8>>,
    },
    Quit,
    Meta {
        verb: MetaVerb,
        key: Vec<u8>,
        words: Vec<Vec<u8>>,
        value: Vec<u8>,
        flags: MetaFlags,
    },
    /// A meta command whose flags or key are invalid.
    BadMeta(RequestError),
    MetaNoop,
    MetaDebug {
        key: Vec<u8>,
    },
    Admin {
        verb: Admin,
        args: Vec<Vec<u8>>,
    },
    TooLarge {
        key: Vec<u8>,
        replaces: bool,
        is_base64: bool,
    },
    Reject(Rejection),
    Close,
}

impl Event {
    fn from_command(command: Command<'_>) -> Self {
        match command {
            Command::Get { keys, with_cas } => Self::Fetch { exptime: None, keys: owned(keys), with_cas },
            Command::GetAndTouch { exptime, keys, with_cas } => {
                Self::Fetch { exptime: Some(exptime), keys: owned(keys), with_cas }
            }
            Command::Store { verb, key, flags, exptime, value, noreply } => {
                Self::Store { verb, key: key.to_vec(), flags, exptime, value: value.to_vec(), noreply }
            }
            Command::Arithmetic { key, op, delta, noreply } => {
                Self::Arithmetic { key: key.to_vec(), op, delta, noreply }
            }
            Command::Delete { key, noreply } => Self::Delete { key: key.to_vec(), noreply },
            Command::Touch { key, exptime, noreply } => Self::Touch { key: key.to_vec(), exptime, noreply },
            Command::FlushAll { exptime, noreply } => Self::FlushAll { exptime, noreply },
            Command::Version => Self::Version,
            Command::Verbosity { level, noreply } => Self::Verbosity { level, noreply },
            Command::Stats { args } => Self::Stats { args: owned(args) },
            Command::Quit => Self::Quit,
            Command::Meta(meta) => Self::from_meta(&meta),
            Command::MetaNoop => Self::MetaNoop,
            Command::MetaDebug { key } => Self::MetaDebug { key: key.to_vec() },
            Command::Admin { verb, args } => Self::Admin { verb, args: owned(args) },
        }
    }

    fn from_meta(meta: &Meta<'_>) -> Self {
        let mut room = [0; MAX_KEY];
        let checked = meta.flags().and_then(|flags| Ok((flags, meta.key(&flags, &mut room)?.to_vec())));
        match checked {
            Ok((flags, key)) => {
                Self::Meta { verb: meta.verb, key, words: owned(meta.words()), value: meta.value.to_vec(), flags }
            }
            Err(error) => Self::BadMeta(error),
        }
    }

    /// Panics if the event exceeds a limit of the protocol.
    fn assert_limits(&self, limits: Limits) {
        let keys = match self {
            Self::Fetch { keys, .. } => keys.as_slice(),
            Self::Store { key, .. }
            | Self::Arithmetic { key, .. }
            | Self::Delete { key, .. }
            | Self::Touch { key, .. }
            | Self::MetaDebug { key }
            | Self::TooLarge { key, is_base64: false, .. } => std::slice::from_ref(key),
            // A decoded key may contain any byte.
            Self::Meta { key, value, .. } => {
                assert!((1..=MAX_KEY).contains(&key.len()), "a key of {} bytes", key.len());
                assert!(value.len() <= limits.max_value, "a value of {} bytes", value.len());
                return;
            }
            _ => return,
        };
        assert!(!keys.is_empty(), "no key");
        for key in keys {
            assert!((1..=MAX_KEY).contains(&key.len()), "a key of {} bytes", key.len());
            assert!(!key.contains(&b' ') && !key.contains(&b'\n'), "a separator in a key");
        }
        if let Self::Store { value, .. } = self {
            assert!(value.len() <= limits.max_value, "a value of {} bytes", value.len());
        }
    }
}

fn owned<'b>(words: impl Iterator<Item = &'b [u8]>) -> Vec<Vec<u8>> {
    words.map(<[u8]>::to_vec).collect()
}

/// A decoder and the bytes it has not consumed.
pub struct Connection {
    limits: Limits,
    decoder: Decoder,
    input: Vec<u8>,
    /// The line of a store whose value is collected separately, and the value's length.
    apart: Option<(Vec<u8>, usize)>,
}

impl Connection {
    pub fn new(limits: Limits) -> Self {
        Self { limits, decoder: Decoder::new(limits), input: Vec::new(), apart: None }
    }

    /// Passes `bytes` to the decoder, after those received before, and returns the new events.
    pub fn receive(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.input.extend_from_slice(bytes);
        let mut start = 0;
        let mut events = Vec::new();
        loop {
            let input = &self.input[start..];
            if let Some((line, length)) = self.apart.take() {
                let Some(end) = input.get(length..).and_then(<[u8]>::first_chunk) else {
                    self.apart = Some((line, length));
                    self.input.drain(..start);
                    return events;
                };
                let command = self.decoder.decode_apart(&line, &input[..length], end);
                let event = command.map_or_else(Event::Reject, Event::from_command);
                event.assert_limits(self.limits);
                events.push(event);
                start += length + end.len();
                continue;
            }
            let (consumed, event) = match self.decoder.decode(input) {
                Decoded::Command { consumed, command } => (consumed, Event::from_command(command)),
                Decoded::Reject { consumed, rejection } => (consumed, Event::Reject(rejection)),
                Decoded::TooLarge { consumed, key, replaces, is_base64 } => {
                    (consumed, Event::TooLarge { key: key.to_vec(), replaces, is_base64 })
                }
                Decoded::Incomplete { consumed, needed } => {
                    assert!(consumed <= input.len(), "consumed more than the input");
                    assert!(needed > input.len() - consumed, "needs no more than the input has");
                    // The length decides which values are collected separately.
                    let pending = self.decoder.pending_store(input);
                    if let Some(pending) = pending.filter(|_| input.len() % 2 == 0) {
                        assert_eq!(pending.front + pending.length + 2, needed);
                        self.apart = Some((input[..pending.front].to_vec(), pending.length));
                        start += pending.front;
                        continue;
                    }
                    self.input.drain(..start + consumed);
                    return events;
                }
                Decoded::Close => {
                    events.push(Event::Close);
                    return events;
                }
            };
            assert!((1..=input.len()).contains(&consumed), "no progress, or consumed more than the input");
            event.assert_limits(self.limits);
            events.push(event);
            start += consumed;
        }
    }
}

/// Decodes a stream that arrives in `pieces`, with a new decoder. Sends nothing after an
/// [`Event::Close`].
pub fn events<'p>(limits: Limits, pieces: impl IntoIterator<Item = &'p [u8]>) -> Vec<Event> {
    let mut connection = Connection::new(limits);
    let mut all = Vec::new();
    for piece in pieces {
        all.extend(connection.receive(piece));
        if all.last() == Some(&Event::Close) {
            break;
        }
    }
    all
}

/// Cuts a stream at the given places, which may be in any order, repeated, or past its end.
pub fn cut<'s>(stream: &'s [u8], places: &[usize]) -> Vec<&'s [u8]> {
    let mut places: Vec<usize> = places.iter().copied().filter(|place| *place < stream.len()).collect();
    places.push(stream.len());
    places.sort_unstable();
    let mut start = 0;
    places.into_iter().map(|end| &stream[std::mem::replace(&mut start, end)..end]).collect()
}
