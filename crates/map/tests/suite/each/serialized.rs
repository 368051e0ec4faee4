//! Maps and sets through serde.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde_test::{Token, assert_tokens};

use super::{HashMap, HashSet};
use crate::alongside::alongside;

/// The number of entries is known beforehand, which formats that are not self-describing need.
#[test]
fn keep_their_form() {
    assert_tokens(
        &HashMap::<_, _>::from([(1u8, 'a')]),
        &[Token::Map { len: Some(1) }, Token::U8(1), Token::Char('a'), Token::MapEnd],
    );
    assert_tokens(&HashSet::<_>::from([1u8]), &[Token::Seq { len: Some(1) }, Token::U8(1), Token::SeqEnd]);
    assert_tokens(&HashMap::<u8, u8>::new(), &[Token::Map { len: Some(0) }, Token::MapEnd]);
}

#[test]
fn come_back_as_they_were() {
    let map: HashMap<String, Vec<u32>> = (0..1000).map(|n| (n.to_string(), vec![n; 3])).collect();
    let back: HashMap<String, Vec<u32>> = serde_json::from_str(&serde_json::to_string(&map).unwrap()).unwrap();
    assert!(back == map);
    let set: HashSet<u64> = (0..1000).collect();
    let back: HashSet<u64> = serde_json::from_str(&serde_json::to_string(&set).unwrap()).unwrap();
    assert!(back == set);
}

#[test]
fn keep_the_last_of_equal_keys() {
    let map: HashMap<String, u8> = serde_json::from_str(r#"{"a": 1, "b": 2, "a": 3}"#).unwrap();
    assert_eq!((map.len(), map.pin().get("a")), (2, Some(&3)));
}

#[test]
fn refuse_what_is_no_map() {
    let error = serde_json::from_str::<HashMap<u8, u8>>("[1, 2]").unwrap_err();
    assert!(error.to_string().contains("expected a map"), "{error}");
    let error = serde_json::from_str::<HashSet<u8>>(r#"{"a": 1}"#).unwrap_err();
    assert!(error.to_string().contains("expected a set"), "{error}");
    assert!(serde_json::from_str::<HashMap<String, u8>>(r#"{"a": 1, "b": 256}"#).is_err());
}

/// Claims to yield 2^40 items, and yields none.
struct Liar;

impl Iterator for Liar {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (1 << 40, Some(1 << 40))
    }
}

/// A large announced size is not trusted: memory is allocated when entries arrive.
#[test]
fn believe_no_size() {
    let map = HashMap::<u64, u64>::deserialize(MapDeserializer::<_, Error>::new(Liar)).unwrap();
    assert_eq!(map.len(), 0);
    assert!(map.capacity() <= 8192 * 5);
    let keys = Liar.map(|(key, _)| key);
    let set = HashSet::<u64>::deserialize(SeqDeserializer::<_, Error>::new(keys)).unwrap();
    assert_eq!(set.len(), 0);
    assert!(set.as_map().capacity() <= 8192 * 5);
}

#[test]
fn hold_what_is_always_there_while_others_update() {
    let map: HashMap<u64, u64> = (0..100).map(|n| (n, n)).collect();
    let mut n = 100;
    let update = || {
        n += 1;
        map.pin().insert(n % 500 + 100, n);
        map.pin().remove(&((n + 250) % 500 + 100));
    };
    alongside(update, || {
        for _ in 0..50 {
            let json = serde_json::to_string(&map).unwrap();
            let seen: BTreeMap<u64, u64> = serde_json::from_str(&json).unwrap();
            assert!((0..100).all(|n| seen.get(&n) == Some(&n)), "B7: an entry that is always there is missing");
        }
    });
}
