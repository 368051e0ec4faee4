//! Properties that hold for any input, checked on generated input. The generator's seed is
//! constant, so every run is the same.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use relativist_memcache::{Arithmetic, MAX_UNFINISHED_LINE, StoreVerb};

use crate::event::{Event, cut, events};
use crate::framing::{LIMITS, decode};
use crate::request::encode;

fn config() -> ProptestConfig {
    ProptestConfig { cases: 500, rng_seed: RngSeed::Fixed(11211), failure_persistence: None, ..Default::default() }
}

/// Generates keys: most are short, some have the maximum length, and some look like other words of
/// the protocol.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("separators", |byte| !b" \r\n".contains(byte));
    prop_oneof![
        8 => vec(byte.clone(), 1..20),
        1 => vec(byte, 250),
        1 => prop_oneof![Just(b"0".to_vec()), Just(b"get".to_vec()), Just(b"HTTP/1.1".to_vec())],
    ]
}

fn verb() -> impl Strategy<Value = StoreVerb> {
    prop_oneof![
        Just(StoreVerb::Set),
        Just(StoreVerb::Add),
        Just(StoreVerb::Replace),
        Just(StoreVerb::Append),
        Just(StoreVerb::Prepend),
        any::<u64>().prop_map(StoreVerb::Cas),
    ]
}

/// Generates values within the limit, with many line ends.
fn value() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(b'\r'), Just(b'\n'), any::<u8>()], 0..=LIMITS.max_value)
}

/// Generates commands of all kinds.
fn command() -> impl Strategy<Value = Event> {
    prop_oneof![
        (any::<Option<i32>>(), vec(key(), 1..5), any::<bool>()).prop_map(|(exptime, keys, with_cas)| Event::Fetch {
            exptime,
            keys,
            with_cas
        }),
        (verb(), key(), any::<u32>(), any::<i32>(), value(), any::<bool>()).prop_map(
            |(verb, key, flags, exptime, value, noreply)| Event::Store { verb, key, flags, exptime, value, noreply }
        ),
        (key(), prop_oneof![Just(Arithmetic::Incr), Just(Arithmetic::Decr)], any::<u64>(), any::<bool>())
            .prop_map(|(key, op, delta, noreply)| Event::Arithmetic { key, op, delta, noreply }),
        (key(), any::<bool>()).prop_map(|(key, noreply)| Event::Delete { key, noreply }),
        (key(), any::<i32>(), any::<bool>()).prop_map(|(key, exptime, noreply)| Event::Touch { key, exptime, noreply }),
        (any::<i32>(), any::<bool>()).prop_map(|(exptime, noreply)| Event::FlushAll { exptime, noreply }),
        (any::<u32>(), any::<bool>()).prop_map(|(level, noreply)| Event::Verbosity { level, noreply }),
        vec(key(), 0..3).prop_map(|args| Event::Stats { args }),
        Just(Event::Version),
        Just(Event::Quit),
    ]
}

/// Generates bytes that resemble the protocol: its words in any order, and random bytes.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: &[&str] = &[
        "get ",
        "gets ",
        "gat ",
        "set ",
        "cas ",
        "add k 0 0 3\r\n",
        "incr ",
        "delete ",
        "touch ",
        "flush_all ",
        "version",
        "noreply",
        "k ",
        "0 ",
        "5 ",
        "70 ",
        "-1 ",
        "2147483645 ",
        " ",
        "\r\n",
        "\n",
        "\r",
        "abc\r\n",
        "HTTP/1.0",
    ];
    let word = prop_oneof![
        6 => prop::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..8),
    ];
    vec(word, 0..40).prop_map(|words| words.concat())
}

/// Generates places at which to cut a stream.
fn places() -> impl Strategy<Value = Vec<usize>> {
    vec(0..MAX_UNFINISHED_LINE, 0..12)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn commands_decode_to_what_was_encoded(commands in vec(command(), 0..6)) {
        let stream: Vec<u8> = commands.iter().flat_map(encode).collect();
        prop_assert_eq!(decode(&stream), commands);
    }

    #[test]
    fn commands_decode_the_same_however_they_are_cut(commands in vec(command(), 0..4), places in places()) {
        let stream: Vec<u8> = commands.iter().flat_map(encode).collect();
        prop_assert_eq!(events(LIMITS, cut(&stream, &places)), commands);
    }

    /// `events` asserts the limits, and that every result makes progress.
    #[test]
    fn any_bytes_decode_the_same_however_they_are_cut(stream in soup(), places in places()) {
        prop_assume!(stream.len() <= MAX_UNFINISHED_LINE);
        let whole = decode(&stream);
        prop_assert_eq!(&events(LIMITS, cut(&stream, &places)), &whole);
        prop_assert_eq!(&events(LIMITS, stream.chunks(1)), &whole);
    }
}
