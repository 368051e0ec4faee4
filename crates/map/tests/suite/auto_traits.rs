//! Which types can be sent to other threads, shared with them, and used after a panic. Checked at
//! compile time.
//!
//! `+` and `-` stand for `Send`, `Sync`, `UnwindSafe` and `RefUnwindSafe`.

use std::cell::Cell;
use std::hash::RandomState;

use relativist::{
    BuildError, Builder, Change, CompareExchangeError, Drain, ExhaustedError, ExtractIf, FlatMap, FlatSet, HashMap,
    HashSet, IntoIter, Iter, Keys, OccupiedError, ParIter, Pinned, PinnedSet, PrivateMap, Values, flat, private,
};

use relativist_testing::{OnlySend, OnlySync, auto_traits};

type Map<K, V, S = RandomState> = HashMap<K, V, S>;
type Exclusive = &'static mut u64;

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
    HashSet<u64, OnlySync> => - + + +,
    HashSet<Cell<u64>> => - - + -,

    FlatMap<u64, u64> => + + + +,
    FlatMap<OnlySend, u64> => - - + +,
    FlatMap<OnlySync, u64> => - - + +,
    FlatMap<u64, OnlySend> => - - + +,
    FlatMap<u64, OnlySync> => - - + +,
    FlatMap<u64, u64, OnlySend> => + - + +,
    FlatMap<u64, u64, OnlySync> => - + + +,
    FlatMap<u64, Cell<u64>> => - - + -,
    FlatMap<u64, Exclusive> => + + - +,
    FlatSet<u64> => + + + +,
    FlatSet<OnlySend> => - - + +,
    FlatSet<OnlySync> => - - + +,
    FlatSet<u64, OnlySend> => + - + +,
    FlatSet<u64, OnlySync> => - + + +,
    FlatSet<Cell<u64>> => - - + -,

    PrivateMap<u64, u64> => + + + +,
    PrivateMap<OnlySend, u64> => - - + +,
    PrivateMap<OnlySync, u64> => - - + +,
    PrivateMap<u64, OnlySend> => - - + +,
    PrivateMap<u64, OnlySync> => - - + +,
    PrivateMap<u64, u64, OnlySend> => + - + +,
    PrivateMap<u64, u64, OnlySync> => - + + +,
    PrivateMap<u64, Cell<u64>> => - - + -,
    PrivateMap<u64, Exclusive> => + + - +,

    // Their guard may go to another thread. So may a reference to the map, if that is `Sync`.
    private::Pinned<'static, u64, u64, RandomState> => + + + +,
    private::Pinned<'static, u64, OnlySend, RandomState> => - - + +,
    private::Pinned<'static, OnlySync, u64, RandomState> => - - + +,
    private::Pinned<'static, u64, u64, OnlySend> => - - + +,
    private::Pinned<'static, u64, u64, OnlySync> => + + + +,
    private::Pinned<'static, u64, Cell<u64>, RandomState> => - - - -,
    private::Iter<'static, u64, u64> => + + + +,
    private::Iter<'static, u64, OnlySync> => + + + +,
    private::Iter<'static, u64, OnlySend> => - - + +,
    private::Keys<'static, u64, u64> => + + + +,
    private::Values<'static, u64, u64> => + + + +,
    private::Drain<'static, u64, u64, RandomState> => + + + +,
    private::ExtractIf<'static, u64, u64, RandomState, fn(&u64, &u64) -> bool> => + + + +,
    private::ExtractIf<'static, u64, OnlySync, RandomState, fn(&u64, &OnlySync) -> bool> => - - + +,
    private::IntoIter<u64, u64, RandomState> => + + + +,
    private::IntoIter<u64, OnlySend, RandomState> => - - + +,
    private::IntoIter<u64, OnlySync, RandomState> => - - + +,

    // They have a guard, or borrow one, and stay on its thread.
    Pinned<'static, u64, u64, RandomState> => - - + +,
    PinnedSet<'static, u64, RandomState> => - - + +,
    Iter<'static, u64, u64> => - - + +,
    Keys<'static, u64, u64> => - - + +,
    Values<'static, u64, u64> => - - + +,
    Drain<'static, u64, u64, RandomState> => - - + +,
    ExtractIf<'static, u64, u64, RandomState, fn(&u64, &u64) -> bool> => - - + +,
    Pinned<'static, u64, Cell<u64>, RandomState> => - - - -,
    Iter<'static, u64, Cell<u64>> => - - - -,

    flat::Pinned<'static, u64, u64, RandomState> => - - + +,
    flat::PinnedSet<'static, u64, RandomState> => - - + +,
    flat::Iter<'static, u64, u64, RandomState> => - - + +,
    flat::Keys<'static, u64, u64, RandomState> => - - + +,
    flat::Values<'static, u64, u64, RandomState> => - - + +,
    flat::Drain<'static, u64, u64, RandomState> => - - + +,
    flat::ExtractIf<'static, u64, u64, RandomState, fn(&u64, &u64) -> bool> => - - + +,
    flat::Pinned<'static, u64, Cell<u64>, RandomState> => - - - -,
    flat::Iter<'static, u64, Cell<u64>, RandomState> => - - - -,

    // Threads that iterate in parallel have guards of their own.
    ParIter<'static, u64, u64> => + + + +,
    ParIter<'static, u64, OnlySend> => - - + +,
    ParIter<'static, u64, OnlySync> => + + + +,

    flat::ParIter<'static, u64, u64, RandomState> => + + + +,
    flat::ParIter<'static, u64, OnlySend, RandomState> => - - + +,
    flat::ParIter<'static, u64, OnlySync, RandomState> => - - + +,
    flat::ParIter<'static, u64, u64, OnlySend> => - - + +,
    flat::ParIter<'static, u64, u64, OnlySync> => + + + +,

    // Owns the map.
    IntoIter<u64, u64, RandomState> => + + + +,
    IntoIter<u64, OnlySend, RandomState> => - - + +,
    IntoIter<u64, OnlySync, RandomState> => - - + +,
    IntoIter<u64, u64, OnlySend> => + - + +,

    flat::IntoIter<u64, u64, RandomState> => + + + +,
    flat::IntoIter<u64, OnlySend, RandomState> => - - + +,
    flat::IntoIter<u64, OnlySync, RandomState> => - - + +,
    flat::IntoIter<u64, u64, OnlySend> => + - + +,

    // References and values, nothing else.
    Change<'static, u64> => + + + +,
    Change<'static, OnlySend> => - - + +,
    OccupiedError<'static, u64> => + + + +,
    OccupiedError<'static, OnlySync> => - + + +,
    CompareExchangeError<'static, u64> => + + + +,
    CompareExchangeError<'static, OnlySync> => - + + +,
    ExhaustedError<u64, u64> => + + + +,
    ExhaustedError<u64, OnlySend> => + - + +,
    Builder => + + + +,
    Builder<OnlySend> => + - + +,
    flat::Builder => + + + +,
    flat::Builder<OnlySend> => + - + +,
    BuildError => + + + +,
}
