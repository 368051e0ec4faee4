//! Which types can be sent to other threads, shared with them, used after a panic, and shown, and
//! which are covariant. Checked at compile time.
//!
//! `+` and `-` stand for `Send`, `Sync`, `UnwindSafe` and `RefUnwindSafe`.

use std::cell::Cell;
use std::fmt::Debug;
use std::hash::RandomState;

use relativist::{
    AllocError, Boxed, Builder, Change, CompareExchangeError, Drain, ExtractIf, FlatMap, FlatSet, HashMap, HashSet,
    Inline, IntoIter, Iter, IterMut, Keys, OccupiedError, ParIter, Pinned, PinnedSet, Private, PrivateMap, Values,
    ValuesMut,
};
use relativist_testing::{OnlySend, OnlySync, auto_traits};

type S = RandomState;
type Map<K, V, S = RandomState> = HashMap<K, V, S>;
type Exclusive = &'static mut u64;
type Decide = fn(&u64, &u64) -> bool;

auto_traits! {
    // Any thread that has a map may take keys and values by reference and by value. So they must be
    // `Send` and `Sync`. The hasher stays in the map.
    Map<u64, u64> => + + + +,
    Map<OnlySend, u64> => - - + +,
    Map<OnlySync, u64> => - - + +,
    Map<u64, OnlySend> => - - + +,
    Map<u64, OnlySync> => - - + +,
    Map<u64, u64, OnlySend> => + - + +,
    Map<u64, u64, OnlySync> => - + + +,
    Map<u64, Cell<u64>> => - - + -,
    Map<u64, Exclusive> => + + - +,
    HashSet<u64> => + + + +,
    HashSet<OnlySend> => - - + +,
    HashSet<OnlySync> => - - + +,
    HashSet<u64, OnlySend> => + - + +,
    FlatMap<u64, u64> => + + + +,
    FlatMap<OnlySend, u64> => - - + +,
    FlatMap<u64, OnlySync> => - - + +,
    FlatMap<u64, u64, OnlySend> => + - + +,
    FlatMap<u64, Cell<u64>> => - - + -,
    FlatMap<u64, Exclusive> => + + - +,
    FlatSet<u64> => + + + +,
    PrivateMap<u64, u64> => + + + +,
    PrivateMap<OnlySend, u64> => - - + +,
    PrivateMap<u64, OnlySync> => - - + +,
    PrivateMap<u64, u64, OnlySend> => + - + +,
    PrivateMap<u64, Cell<u64>> => - - + -,
    PrivateMap<u64, Exclusive> => + + - +,

    // Their guard may go to another thread. So may a reference to the map, if that is `Sync`.
    Pinned<'static, u64, u64, S, Private> => + + + +,
    Pinned<'static, u64, OnlySend, S, Private> => - - + +,
    Pinned<'static, OnlySync, u64, S, Private> => - - + +,
    Pinned<'static, u64, u64, OnlySend, Private> => - - + +,
    Pinned<'static, u64, u64, OnlySync, Private> => + + + +,
    Pinned<'static, u64, Cell<u64>, S, Private> => - - - -,
    Drain<'static, u64, u64, S, Private> => + + + +,
    ExtractIf<'static, u64, u64, S, Private, Decide> => + + + +,

    // They have a guard of the process, and stay on its thread.
    Pinned<'static, u64, u64, S, Boxed> => - - + +,
    Pinned<'static, u64, u64, S, Inline> => - - + +,
    Pinned<'static, u64, Cell<u64>, S, Boxed> => - - - -,
    PinnedSet<'static, u64, S, Boxed> => - - + +,
    PinnedSet<'static, u64, S, Inline> => - - + +,
    Drain<'static, u64, u64, S, Boxed> => - - + +,
    ExtractIf<'static, u64, u64, S, Inline, Decide> => - - + +,

    // They borrow a section, which lasts longer, whichever thread has it. Threads that iterate in
    // parallel take no sections of their own.
    Iter<'static, u64, u64, S, Boxed> => + + + +,
    Iter<'static, u64, u64, S, Inline> => + + + +,
    Iter<'static, u64, u64, S, Private> => + + + +,
    Iter<'static, u64, OnlySync, S, Boxed> => + + + +,
    Iter<'static, u64, OnlySend, S, Boxed> => - - + +,
    Iter<'static, u64, u64, OnlySend, Boxed> => - - + +,
    Iter<'static, u64, Cell<u64>, S, Boxed> => - - - -,
    Keys<'static, u64, u64, S, Boxed> => + + + +,
    Values<'static, u64, u64, S, Private> => + + + +,
    ParIter<'static, u64, u64, S, Boxed> => + + + +,
    ParIter<'static, u64, OnlySend, S, Inline> => - - + +,
    ParIter<'static, u64, OnlySync, S, Inline> => + + + +,

    // Own entries, or have the only reference to them.
    IntoIter<u64, u64, Boxed> => + + + +,
    IntoIter<u64, OnlySend, Boxed> => + - + +,
    IntoIter<u64, OnlySync, Inline> => - + + +,
    IterMut<'static, u64, u64, Boxed> => + + - +,
    IterMut<'static, u64, OnlySend, Boxed> => + - - +,
    ValuesMut<'static, u64, OnlySync, Inline> => - + - +,

    // References and values, nothing else.
    Change<'static, u64> => + + + +,
    Change<'static, OnlySend> => - - + +,
    OccupiedError<'static, u64> => + + + +,
    OccupiedError<'static, OnlySync> => - + + +,
    CompareExchangeError<'static, u64> => + + + +,
    CompareExchangeError<'static, OnlySync> => - + + +,
    Builder<OnlySync, OnlySync> => + + + +,
    Builder<u64, u64, OnlySend> => + - + +,
    AllocError => + + + +,
}

/// Types that only return entries are covariant. (Doctests that must not compile show that maps are
/// invariant.)
#[test]
fn types_vary_as_they_should() {
    type Of<'a, T> = Iter<'a, T, T, RandomState, Boxed>;
    fn iter<'a>(iter: Of<'a, &'static str>) -> Of<'a, &'a str> {
        iter
    }
    let map = HashMap::from([("c", "d")]);
    assert_eq!(iter(map.pin().iter()).count(), 1);
}

#[test]
fn types_can_be_shown() {
    fn shown<T: Debug>() {}
    shown::<Pinned<'_, u64, String>>();
    shown::<Iter<'_, u64, String, RandomState, Inline>>();
    shown::<IntoIter<u64, String, Private>>();
    shown::<OccupiedError<'_, String>>();
    shown::<Builder<u64, String>>();
    let map = HashMap::from([(1, "one")]);
    assert_eq!(format!("{map:?} {:?}", map.pin()), r#"{1: "one"} {1: "one"}"#);
}
