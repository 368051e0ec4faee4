//! Requests: what they do, and how they are sent to the secondary.

use relativist_check::client::reply::Encoding;
use relativist_memcache::binary::{self, Opcode};
use relativist_memcache::{Command, MAX_KEY, Meta, MetaMode, MetaVerb, StoreVerb};

/// What a request does to the items of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    GetAndTouch,
    Set,
    Add,
    Replace,
    Append,
    Count,
    Delete,
    Touch,
    /// Something else that depends on the item or changes it.
    Other,
    Flush,
    /// A request without a key, such as one with an error.
    Keyless,
}

/// The destination of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Both,
    /// Replies differ by design, or the request is for one server, such as `stats` and `shutdown`.
    PrimaryOnly,
    /// The connection ends (`quit`), or would end without the mirror.
    Last,
}

/// A request, independent of the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) encoding: Encoding,
    pub(super) route: Route,
    pub(super) verb: Verb,
    pub(super) keys: Vec<Vec<u8>>,
    /// Whether an item that the request stores or touches expires.
    pub(super) expires: bool,
    /// Whether the item must have a CAS value, which the client got from the primary.
    pub(super) compares: bool,
    /// The number that a count creates if the item is missing.
    pub(super) initial: Option<u64>,
    /// Whether the request is the one that the mirror itself uses to find the end of replies.
    pub(super) is_fence: bool,
    /// The bytes that the client sent. Empty if the request goes only to the primary.
    pub(super) bytes: Vec<u8>,
}

impl Verb {
    pub(super) fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::Keyless)
    }

    /// Returns the name for the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::GetAndTouch => "get and touch",
            Self::Set => "set",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Count => "count",
            Self::Delete => "delete",
            Self::Touch => "touch",
            Self::Other => "meta",
            Self::Flush => "flush",
            Self::Keyless => "without key",
        }
    }
}

impl Request {
    /// Whether the request reads items: its reply is a hit or a miss.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.verb, Verb::Get | Verb::GetAndTouch)
    }

    /// Whether the reply is a list of items.
    pub(super) fn is_classic_read(&self) -> bool {
        self.encoding == Encoding::Text && self.is_read() && !self.bytes.starts_with(b"m")
    }

    pub(super) fn new(encoding: Encoding, verb: Verb, route: Route) -> Self {
        Self {
            encoding,
            route,
            verb,
            keys: Vec::new(),
            expires: false,
            compares: false,
            initial: None,
            is_fence: false,
            bytes: Vec::new(),
        }
    }

    fn keyed(encoding: Encoding, verb: Verb, key: &[u8]) -> Self {
        Self { keys: vec![key.to_vec()], ..Self::new(encoding, verb, Route::Both) }
    }

    pub(super) fn of_text(command: &Command<'_>) -> Self {
        let keyed = |verb, key: &[u8]| Self::keyed(Encoding::Text, verb, key);
        let plain = |verb, route| Self::new(Encoding::Text, verb, route);
        match *command {
            Command::Get { ref keys, .. } => {
                Self { keys: keys.clone().map(<[u8]>::to_vec).collect(), ..plain(Verb::Get, Route::Both) }
            }
            Command::GetAndTouch { ref keys, exptime, .. } => Self {
                keys: keys.clone().map(<[u8]>::to_vec).collect(),
                expires: exptime != 0,
                ..plain(Verb::GetAndTouch, Route::Both)
            },
            Command::Store { verb, key, exptime, .. } => {
                let (verb, compares) = match verb {
                    StoreVerb::Set => (Verb::Set, false),
                    StoreVerb::Add => (Verb::Add, false),
                    StoreVerb::Replace => (Verb::Replace, false),
                    StoreVerb::Append | StoreVerb::Prepend => (Verb::Append, false),
                    StoreVerb::Cas(_) => (Verb::Replace, true),
                };
                Self { expires: exptime != 0, compares, ..keyed(verb, key) }
            }
            Command::Arithmetic { key, .. } => keyed(Verb::Count, key),
            Command::Delete { key, .. } => keyed(Verb::Delete, key),
            Command::Touch { key, exptime, .. } => Self { expires: exptime != 0, ..keyed(Verb::Touch, key) },
            Command::FlushAll { .. } => plain(Verb::Flush, Route::Both),
            Command::Meta(ref meta) => Self::of_meta(meta),
            Command::MetaNoop => Self { is_fence: true, ..plain(Verb::Keyless, Route::PrimaryOnly) },
            Command::Quit => plain(Verb::Keyless, Route::Last),
            Command::Admin { verb: relativist_memcache::Admin::Watch, .. } => plain(Verb::Keyless, Route::Last),
            Command::Version
            | Command::Verbosity { .. }
            | Command::Stats { .. }
            | Command::MetaDebug { .. }
            | Command::Admin { .. } => plain(Verb::Keyless, Route::PrimaryOnly),
        }
    }

    fn of_meta(meta: &Meta<'_>) -> Self {
        // An invalid request changes no item, but its reply can be compared.
        let Ok(flags) = meta.flags() else { return Self::new(Encoding::Text, Verb::Keyless, Route::Both) };
        let has = |letters: &[u8]| letters.iter().any(|&letter| flags.has(letter));
        let verb = match meta.verb {
            MetaVerb::Get if has(b"NRE") => Verb::Other,
            MetaVerb::Get if has(b"T") => Verb::GetAndTouch,
            MetaVerb::Get => Verb::Get,
            MetaVerb::Set if has(b"I") => Verb::Other,
            MetaVerb::Set => match flags.mode {
                MetaMode::Add => Verb::Add,
                MetaMode::Replace => Verb::Replace,
                MetaMode::Append | MetaMode::Prepend if has(b"N") => Verb::Other,
                MetaMode::Append | MetaMode::Prepend => Verb::Append,
                // With a CAS value, `ms` fails if there is no item.
                _ if flags.compare.is_some() => Verb::Replace,
                _ => Verb::Set,
            },
            MetaVerb::Delete if has(b"ITx") => Verb::Other,
            MetaVerb::Delete => Verb::Delete,
            MetaVerb::Arithmetic if has(b"NT") => Verb::Other,
            MetaVerb::Arithmetic => Verb::Count,
        };
        let expires = flags.exptime.is_some_and(|exptime| exptime != 0);
        let mut room = [0; MAX_KEY];
        let Ok(key) = meta.key(&flags, &mut room) else { return Self::new(Encoding::Text, Verb::Keyless, Route::Both) };
        let request = Self::keyed(Encoding::Text, verb, key);
        let initial = (meta.verb == MetaVerb::Arithmetic && has(b"N")).then_some(flags.initial);
        Self { expires, compares: flags.compare.is_some_and(|cas| cas != 0), initial, ..request }
    }

    pub(super) fn of_binary(request: &binary::Request<'_>) -> Self {
        let is_never = |at| request.extra_32(at) == 0;
        let plain = |verb, route| Self::new(Encoding::Binary, verb, route);
        let compares = request.header.cas != 0;
        let keyed = |verb| Self { compares, ..Self::keyed(Encoding::Binary, verb, request.key) };
        match request.opcode {
            Opcode::Get | Opcode::GetKey => keyed(Verb::Get),
            Opcode::Set if compares => Self { expires: !is_never(4), ..keyed(Verb::Replace) },
            Opcode::Set => Self { expires: !is_never(4), ..keyed(Verb::Set) },
            Opcode::Add => Self { expires: !is_never(4), ..keyed(Verb::Add) },
            Opcode::Replace => Self { expires: !is_never(4), ..keyed(Verb::Replace) },
            Opcode::Append | Opcode::Prepend => keyed(Verb::Append),
            Opcode::Delete => keyed(Verb::Delete),
            Opcode::Increment | Opcode::Decrement if request.extra_32(16) == u32::MAX => keyed(Verb::Count),
            Opcode::Increment | Opcode::Decrement => Self { initial: Some(request.extra_64(8)), ..keyed(Verb::Other) },
            Opcode::Touch => Self { expires: !is_never(0), ..keyed(Verb::Touch) },
            Opcode::GetAndTouch | Opcode::GetAndTouchKey => Self { expires: !is_never(0), ..keyed(Verb::GetAndTouch) },
            Opcode::Flush => plain(Verb::Flush, Route::Both),
            Opcode::Noop => Self { is_fence: true, ..plain(Verb::Keyless, Route::PrimaryOnly) },
            Opcode::Quit => plain(Verb::Keyless, Route::Last),
            Opcode::Version | Opcode::Stat | Opcode::SaslList | Opcode::SaslAuth | Opcode::SaslStep => {
                plain(Verb::Keyless, Route::PrimaryOnly)
            }
        }
    }

    /// Returns the bytes of the request without its CAS value.
    pub(super) fn without_cas(&self) -> Vec<u8> {
        if self.encoding == Encoding::Binary {
            let mut bytes = self.bytes.clone();
            bytes[16..binary::HEADER].fill(0);
            return bytes;
        }
        let end = self.bytes.iter().position(|&byte| byte == b'\n').map_or(self.bytes.len(), |end| end + 1);
        let (line, value) = self.bytes.split_at(end);
        let mut words: Vec<&[u8]> = line.trim_ascii_end().split(|&byte| byte == b' ').collect();
        words.retain(|word| !word.is_empty());
        if words[0] == b"cas" {
            // cas KEY FLAGS EXPTIME LENGTH CAS [noreply]
            words[0] = b"set";
            words.remove(5);
        } else {
            // The key of a meta command may begin with a C, too.
            words = words
                .into_iter()
                .enumerate()
                .filter(|(at, word)| *at < 2 || word[0] != b'C')
                .map(|(_, word)| word)
                .collect();
        }
        [&words.join(&b' ')[..], b"\r\n", value].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relativist_memcache::{Decoded, Decoder, Limits};

    fn text(bytes: &[u8]) -> Request {
        let Decoded::Command { command, .. } = Decoder::new(Limits::default()).decode(bytes) else { panic!() };
        Request { bytes: bytes.to_vec(), ..Request::of_text(&command) }
    }

    #[test]
    fn meta_requests_are_those_of_the_classic_protocol() {
        for (bytes, verb) in [
            ("mg k v\r\n", Verb::Get),
            ("mg k v T30\r\n", Verb::GetAndTouch),
            ("mg k v R30\r\n", Verb::Other),
            ("ms k 1\r\nx\r\n", Verb::Set),
            ("ms k 1 C7\r\nx\r\n", Verb::Replace),
            ("ms k 1 C7 I\r\nx\r\n", Verb::Other),
            ("ms k 1 ME\r\nx\r\n", Verb::Add),
            ("ms k 1 MA\r\nx\r\n", Verb::Append),
            ("md k\r\n", Verb::Delete),
            ("md k I T30\r\n", Verb::Other),
            ("ma k\r\n", Verb::Count),
            ("ma k N0\r\n", Verb::Other),
            ("mg k v v\r\n", Verb::Keyless),
        ] {
            assert_eq!(text(bytes.as_bytes()).verb, verb, "{bytes}");
        }
    }

    #[test]
    fn cas_values_are_removed() {
        for (bytes, removed) in [
            ("cas C1 1 2 1 7\r\nx\r\n", "set C1 1 2 1\r\nx\r\n"),
            ("cas k 1 2 1 7 noreply\r\nx\r\n", "set k 1 2 1 noreply\r\nx\r\n"),
            ("ms C7 1 T0 C7 c\r\nC\r\n", "ms C7 1 T0 c\r\nC\r\n"),
            ("md C1 C7\r\n", "md C1\r\n"),
        ] {
            let request = text(bytes.as_bytes());
            assert!(request.compares && request.without_cas() == removed.as_bytes(), "{bytes}");
        }
    }
}
