//! The design: what the maps promise in addition to their tables. (Documentation only.)
//!
//! [`HashMap`](crate::HashMap), [`PrivateMap`](crate::PrivateMap) and their sets are tables of
//! nodes: link, key and value in one allocation. [`relativist_table::design`] explains the table,
//! and lists the guarantees T1 to T9, which hold for the maps as well. The module
//! [`flat`](crate::flat) explains the other map.
//!
//! # Types
//!
//! The table lists which types can be sent to other threads or shared with them, and their variance
//! in the types of keys and values. `tests/suite/auto_traits.rs` checks the first, and doctests
//! that must not compile check the worst cases of the second (`variance.rs`). A map can be filled
//! only if its keys and values are `Send + Sync + 'static`, because removed entries are dropped
//! later, on any thread. A [`PrivateMap`](crate::PrivateMap) drops them on threads that use the
//! map, so there they need not be `'static`.
//!
//! | type | `Send` if | `Sync` if | variance in keys and values |
//! |---|---|---|---|
//! | [`HashMap`](crate::HashMap), [`HashSet`](crate::HashSet), [`IntoIter`](crate::IntoIter) | keys and values are `Send + Sync`, the hasher `Send` | they are `Send + Sync`, the hasher `Sync` | invariant: `insert` takes `&self` |
//! | [`Pinned`](crate::Pinned), [`PinnedSet`](crate::PinnedSet), [`ExtractIf`](crate::ExtractIf), [`Drain`](crate::Drain) | never: the guard is its thread's | never | invariant: they borrow the map |
//! | [`Iter`](crate::Iter), [`Keys`](crate::Keys), [`Values`](crate::Values) | never | never | covariant: they only return references |
//! | [`PrivateMap`](crate::PrivateMap), [`private::IntoIter`](crate::private::IntoIter) | as for `HashMap` | as for `HashMap` | invariant |
//! | [`private::Pinned`](crate::private::Pinned), [`private::ExtractIf`](crate::private::ExtractIf), [`private::Drain`](crate::private::Drain) | the map is `Sync`: the guard belongs to no thread | the map is `Sync` | invariant: they borrow the map |
//! | [`private::Iter`](crate::private::Iter), [`private::Keys`](crate::private::Keys), [`private::Values`](crate::private::Values) | keys and values are `Sync` | the same | covariant |
//! | `ParIter` | keys and values are `Sync`: threads enter sections of their own | the same | covariant |
//! | errors, [`Change`](crate::Change), [`Builder`](crate::Builder), [`flat::Builder`](crate::flat::Builder) | their contents are | their contents are | covariant |
//!
//! All are `UnwindSafe` and `RefUnwindSafe` if keys, values and hasher are (T9).
//!
//! A reference to a key or a value lives no longer than the guard and the map. The guard keeps
//! removed entries alive, the map all others. Memory safety does not rely on the destructors of
//! handles, iterators and guards: a leaked [`Drain`](crate::Drain) leaves entries in the map, and a
//! leaked guard keeps its section open. Nor does it rely on correct `Hash`, `Eq` and `Equivalent`:
//! if they are wrong, lookups may miss entries, and a key may be in the map twice.
//!
//! # Guarantees
//!
//! * **T11** Key and value of an entry of a [`PrivateMap`](crate::PrivateMap) are dropped, and its
//!   memory is freed, after all handles that may have found it, by a thread that uses the map, or
//!   by the one that drops it, and not in a section of the process that the map has entered. A
//!   handle delays nothing else: no resize, no other map, no update. No other reader delays this.
//!   If a handle or the map is leaked, nothing is dropped early.
//!
