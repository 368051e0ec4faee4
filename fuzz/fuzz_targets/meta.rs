//! Encodes any sequence of meta requests. The decoder must return exactly these requests.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use relativist_memcache::{Limits, MAX_KEY, MetaVerb, encode_key};

#[path = "../../crates/memcache/tests/suite/event.rs"]
mod event;

use event::{Event, cut, events};

const LIMITS: Limits = Limits { max_value: 4096 };
/// The maximum number of flags in a line.
const MAX_FLAGS: usize = 17;
/// Flags without a token.
const BARE: &[u8; 12] = b"cfhklqstuvxI";

#[derive(Arbitrary, Debug, Clone, Copy)]
enum Verb {
    Get,
    Set,
    Delete,
    Arithmetic,
}

/// A flag and its token. All of these are valid with each verb.
#[derive(Arbitrary, Debug, Clone)]
enum Flag {
    ClientFlags(u32),
    Exptime(i32),
    Vivify(i32),
    Recache(i32),
    Compare(u64),
    Unique(u64),
    Delta(u64),
    Initial(u64),
    Opaque(Vec<u8>),
    Bare(u8),
}

#[derive(Arbitrary, Debug)]
struct Request {
    verb: Verb,
    key: Vec<u8>,
    is_base64: bool,
    flags: Vec<Flag>,
    value: Vec<u8>,
}

impl Flag {
    fn word(&self) -> Vec<u8> {
        match self {
            Self::ClientFlags(number) => format!("F{number}").into_bytes(),
            Self::Exptime(number) => format!("T{number}").into_bytes(),
            Self::Vivify(number) => format!("N{number}").into_bytes(),
            Self::Recache(number) => format!("R{number}").into_bytes(),
            Self::Compare(number) => format!("C{number}").into_bytes(),
            Self::Unique(number) => format!("E{number}").into_bytes(),
            Self::Delta(number) => format!("D{number}").into_bytes(),
            Self::Initial(number) => format!("J{number}").into_bytes(),
            Self::Opaque(token) => [b"O", &*without_separators(token.clone(), 31)].concat(),
            Self::Bare(letter) => vec![BARE[usize::from(*letter) % BARE.len()]],
        }
    }
}

impl Request {
    /// Makes keys and values valid, and removes repeated flags.
    fn shaped(mut self) -> Request {
        self.value.truncate(LIMITS.max_value);
        // Base64 encodes three bytes as four.
        self.key = if self.is_base64 { self.key } else { without_separators(self.key, MAX_KEY) };
        self.key.truncate(MAX_KEY * 3 / 4 - 2);
        if self.key.is_empty() {
            self.key.push(b'k');
        }
        let mut seen = if self.is_base64 { vec![b'b'] } else { Vec::new() };
        self.flags.retain(|flag| {
            let letter = flag.word()[0];
            let is_new = !seen.contains(&letter) && seen.len() < MAX_FLAGS;
            seen.extend(is_new.then_some(letter));
            is_new
        });
        self
    }

    fn words(&self) -> Vec<Vec<u8>> {
        let encoding = self.is_base64.then(|| b"b".to_vec());
        encoding.into_iter().chain(self.flags.iter().map(Flag::word)).collect()
    }

    fn verb(&self) -> (&'static str, MetaVerb) {
        match self.verb {
            Verb::Get => ("mg", MetaVerb::Get),
            Verb::Set => ("ms", MetaVerb::Set),
            Verb::Delete => ("md", MetaVerb::Delete),
            Verb::Arithmetic => ("ma", MetaVerb::Arithmetic),
        }
    }

    fn value(&self) -> &[u8] {
        if matches!(self.verb, Verb::Set) { &self.value } else { b"" }
    }

    fn encode(&self) -> Vec<u8> {
        let mut line = format!("{} ", self.verb().0).into_bytes();
        if self.is_base64 {
            encode_key(&mut line, &self.key);
        } else {
            line.extend(&self.key);
        }
        if matches!(self.verb, Verb::Set) {
            line.extend(format!(" {}", self.value.len()).into_bytes());
        }
        self.words().iter().for_each(|word| line.extend([b" ", &**word].concat()));
        line.extend(b"\r\n");
        if matches!(self.verb, Verb::Set) {
            line.extend([&*self.value, b"\r\n"].concat());
        }
        line
    }

    fn assert_meant(&self, event: &Event) {
        let Event::Meta { verb, key, words, value, flags } = event else { panic!("{self:?}: {event:?}") };
        assert_eq!((*verb, key, words, &**value), (self.verb().1, &self.key, &self.words(), self.value()));
        for flag in &self.flags {
            match *flag {
                Flag::ClientFlags(number) => assert_eq!(flags.client_flags, Some(number)),
                Flag::Exptime(number) => assert_eq!(flags.exptime, Some(number)),
                Flag::Vivify(number) => assert_eq!(flags.vivify, Some(number)),
                Flag::Recache(number) => assert_eq!(flags.recache, Some(number)),
                Flag::Compare(number) => assert_eq!(flags.compare, Some(number)),
                Flag::Unique(number) => assert_eq!(flags.cas, Some(number)),
                Flag::Delta(number) => assert_eq!(flags.delta, number),
                Flag::Initial(number) => assert_eq!(flags.initial, number),
                Flag::Opaque(_) | Flag::Bare(_) => assert!(flags.has(flag.word()[0])),
            }
        }
    }
}

/// Replaces separators, and also CR, which might end the line.
fn without_separators(mut bytes: Vec<u8>, most: usize) -> Vec<u8> {
    bytes.truncate(most);
    bytes.iter_mut().filter(|byte| b" \r\n".contains(byte)).for_each(|byte| *byte = b'_');
    bytes
}

fuzz_target!(|input: (Vec<Request>, [u16; 4])| {
    let (requests, places) = input;
    let requests: Vec<Request> = requests.into_iter().map(Request::shaped).collect();
    let stream: Vec<u8> = requests.iter().flat_map(Request::encode).collect();
    let whole = events(LIMITS, [stream.as_slice()]);
    assert_eq!(whole.len(), requests.len(), "{whole:?}");
    requests.iter().zip(&whole).for_each(|(request, event)| request.assert_meant(event));
    assert_eq!(events(LIMITS, cut(&stream, &places.map(usize::from))), whole);
});
