//! Encodes any sequence of requests. The decoder must return exactly these requests.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use relativist_memcache::{Arithmetic, Limits, MAX_KEY, StoreVerb};

#[path = "../../crates/memcache/tests/suite/event.rs"]
mod event;
#[path = "../../crates/memcache/tests/suite/request.rs"]
mod request;

use event::{Event, cut, events};

const LIMITS: Limits = Limits { max_value: 4096 };

/// A request, before its keys and values are made valid.
#[derive(Arbitrary, Debug)]
enum Request {
    Fetch { exptime: Option<i32>, keys: Vec<Vec<u8>>, with_cas: bool },
    Store { condition: Condition, key: Vec<u8>, flags: u32, exptime: i32, value: Vec<u8>, noreply: bool },
    Arithmetic { key: Vec<u8>, is_incr: bool, delta: u64, noreply: bool },
    Delete { key: Vec<u8>, noreply: bool },
    Touch { key: Vec<u8>, exptime: i32, noreply: bool },
    FlushAll { exptime: i32, noreply: bool },
    Verbosity { level: u32, noreply: bool },
    Version,
    Quit,
}

#[derive(Arbitrary, Debug)]
enum Condition {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas(u64),
}

impl Request {
    fn into_event(self) -> Event {
        match self {
            Self::Fetch { exptime, keys, with_cas } => {
                let mut keys: Vec<Vec<u8>> = keys.into_iter().map(shaped).collect();
                keys.truncate(7);
                keys.resize_with(keys.len().max(1), || shaped(Vec::new()));
                Event::Fetch { exptime, keys, with_cas }
            }
            Self::Store { condition, key, flags, exptime, mut value, noreply } => {
                value.truncate(LIMITS.max_value);
                Event::Store { verb: condition.into_verb(), key: shaped(key), flags, exptime, value, noreply }
            }
            Self::Arithmetic { key, is_incr, delta, noreply } => {
                let op = if is_incr { Arithmetic::Incr } else { Arithmetic::Decr };
                Event::Arithmetic { key: shaped(key), op, delta, noreply }
            }
            // In `delete noreply`, the decoder takes the only word for the key and for the noreply.
            Self::Delete { key, noreply } if key != b"noreply" => Event::Delete { key: shaped(key), noreply },
            Self::Touch { key, exptime, noreply } => Event::Touch { key: shaped(key), exptime, noreply },
            Self::FlushAll { exptime, noreply } => Event::FlushAll { exptime, noreply },
            Self::Verbosity { level, noreply } => Event::Verbosity { level, noreply },
            Self::Version | Self::Delete { .. } => Event::Version,
            Self::Quit => Event::Quit,
        }
    }
}

impl Condition {
    fn into_verb(self) -> StoreVerb {
        match self {
            Self::Set => StoreVerb::Set,
            Self::Add => StoreVerb::Add,
            Self::Replace => StoreVerb::Replace,
            Self::Append => StoreVerb::Append,
            Self::Prepend => StoreVerb::Prepend,
            Self::Cas(cas) => StoreVerb::Cas(cas),
        }
    }
}

/// Makes a valid key of any bytes: replaces separators, and also CR, which might end the line.
fn shaped(mut key: Vec<u8>) -> Vec<u8> {
    key.truncate(MAX_KEY);
    key.iter_mut().filter(|byte| b" \r\n".contains(byte)).for_each(|byte| *byte = b'_');
    if key.is_empty() { b"k".to_vec() } else { key }
}

fuzz_target!(|input: (Vec<Request>, [u16; 4])| {
    let (requests, places) = input;
    let expected: Vec<Event> = requests.into_iter().map(Request::into_event).collect();
    let stream: Vec<u8> = expected.iter().flat_map(request::encode).collect();
    assert_eq!(events(LIMITS, [stream.as_slice()]), expected);
    assert_eq!(events(LIMITS, cut(&stream, &places.map(usize::from))), expected);
});
