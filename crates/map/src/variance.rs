//! Types that insert keys or values through a shared reference are invariant in the types of keys
//! and values. For each such type there is a program that must not compile, and a twin that does.
//! (Documentation only.)
//!
//! `for<'a> fn(&'a str)` is a subtype of `fn(&'static str)`: a function that takes any `&str` also
//! takes a `&'static str`. Both are `'static`, so the bounds of updates allow both.
//!
//! # The attack
//!
//! If the map were covariant, this would read freed memory:
//!
//! ```compile_fail,E0308
//! use relativist::HashMap;
//! use std::sync::Mutex;
//!
//! static STASH: Mutex<Option<&'static str>> = Mutex::new(None);
//!
//! fn stash(text: &'static str) {
//!     *STASH.lock().unwrap() = Some(text);
//! }
//!
//! /// Would be the identity if the map were covariant.
//! fn narrow(map: &HashMap<u32, for<'a> fn(&'a str)>) -> &HashMap<u32, fn(&'static str)> {
//!     map
//! }
//!
//! let map: HashMap<u32, for<'a> fn(&'a str)> = HashMap::new();
//! narrow(&map).pin().insert(1, stash);
//! let take_any: for<'a> fn(&'a str) = *map.pin().get(&1).unwrap();
//! let short_lived = String::from("about to be freed");
//! take_any(&short_lived);
//! drop(short_lived);
//! println!("{:?}", STASH.lock().unwrap());
//! ```
//!
//! ```
//! use relativist::HashMap;
//! use std::sync::Mutex;
//!
//! static STASH: Mutex<Option<&'static str>> = Mutex::new(None);
//!
//! fn stash(text: &'static str) {
//!     *STASH.lock().unwrap() = Some(text);
//! }
//!
//! fn narrow(map: &HashMap<u32, fn(&'static str)>) -> &HashMap<u32, fn(&'static str)> {
//!     map
//! }
//!
//! let map: HashMap<u32, fn(&'static str)> = HashMap::new();
//! narrow(&map).pin().insert(1, stash);
//! let take_static: fn(&'static str) = *map.pin().get(&1).unwrap();
//! take_static("never freed");
//! assert_eq!(*STASH.lock().unwrap(), Some("never freed"));
//! ```
//!
//! # Each type
//!
//! Keys of a map:
//!
//! ```compile_fail,E0308
//! use relativist::HashMap;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow(it: HashMap<Any, u32>) -> HashMap<Static, u32> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::HashMap;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow(it: HashMap<Any, u32>) -> HashMap<Any, u32> {
//!     it
//! }
//! ```
//!
//! A set:
//!
//! ```compile_fail,E0308
//! use relativist::HashSet;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow(it: HashSet<Any>) -> HashSet<Static> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::HashSet;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow(it: HashSet<Any>) -> HashSet<Any> {
//!     it
//! }
//! ```
//!
//! A pinned map:
//!
//! ```compile_fail,E0308
//! use relativist::Pinned;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: Pinned<'x, u32, Any, RandomState>) -> Pinned<'x, u32, Static, RandomState> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::Pinned;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: Pinned<'x, u32, Any, RandomState>) -> Pinned<'x, u32, Any, RandomState> {
//!     it
//! }
//! ```
//!
//! Keys of a pinned map:
//!
//! ```compile_fail,E0308
//! use relativist::Pinned;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: Pinned<'x, Any, u32, RandomState>) -> Pinned<'x, Static, u32, RandomState> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::Pinned;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: Pinned<'x, Any, u32, RandomState>) -> Pinned<'x, Any, u32, RandomState> {
//!     it
//! }
//! ```
//!
//! A pinned set:
//!
//! ```compile_fail,E0308
//! use relativist::PinnedSet;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: PinnedSet<'x, Any, RandomState>) -> PinnedSet<'x, Static, RandomState> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::PinnedSet;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: PinnedSet<'x, Any, RandomState>) -> PinnedSet<'x, Any, RandomState> {
//!     it
//! }
//! ```
//!
//! A selective removal, which has the map:
//!
//! ```compile_fail,E0308
//! use relativist::ExtractIf;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: ExtractIf<'x, u32, Any, RandomState, fn(&u32, &Static) -> bool>) -> ExtractIf<'x, u32, Static, RandomState, fn(&u32, &Static) -> bool> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::ExtractIf;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: ExtractIf<'x, u32, Any, RandomState, fn(&u32, &Static) -> bool>) -> ExtractIf<'x, u32, Any, RandomState, fn(&u32, &Static) -> bool> {
//!     it
//! }
//! ```
//!
//! A drain:
//!
//! ```compile_fail,E0308
//! use relativist::Drain;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: Drain<'x, u32, Any, RandomState>) -> Drain<'x, u32, Static, RandomState> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::Drain;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: Drain<'x, u32, Any, RandomState>) -> Drain<'x, u32, Any, RandomState> {
//!     it
//! }
//! ```
//!
//! # Each type of the flat map
//!
//! Keys of a map:
//!
//! ```compile_fail,E0308
//! use relativist::FlatMap;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow(it: FlatMap<Any, u32>) -> FlatMap<Static, u32> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::FlatMap;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow(it: FlatMap<Any, u32>) -> FlatMap<Any, u32> {
//!     it
//! }
//! ```
//!
//! Values of a map:
//!
//! ```compile_fail,E0308
//! use relativist::FlatMap;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow(it: FlatMap<u32, Any>) -> FlatMap<u32, Static> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::FlatMap;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow(it: FlatMap<u32, Any>) -> FlatMap<u32, Any> {
//!     it
//! }
//! ```
//!
//! A set:
//!
//! ```compile_fail,E0308
//! use relativist::FlatSet;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow(it: FlatSet<Any>) -> FlatSet<Static> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::FlatSet;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow(it: FlatSet<Any>) -> FlatSet<Any> {
//!     it
//! }
//! ```
//!
//! A pinned map:
//!
//! ```compile_fail,E0308
//! use relativist::flat::Pinned;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: Pinned<'x, u32, Any, RandomState>) -> Pinned<'x, u32, Static, RandomState> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::flat::Pinned;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: Pinned<'x, u32, Any, RandomState>) -> Pinned<'x, u32, Any, RandomState> {
//!     it
//! }
//! ```
//!
//! Keys of a pinned map:
//!
//! ```compile_fail,E0308
//! use relativist::flat::Pinned;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: Pinned<'x, Any, u32, RandomState>) -> Pinned<'x, Static, u32, RandomState> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::flat::Pinned;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: Pinned<'x, Any, u32, RandomState>) -> Pinned<'x, Any, u32, RandomState> {
//!     it
//! }
//! ```
//!
//! A pinned set:
//!
//! ```compile_fail,E0308
//! use relativist::flat::PinnedSet;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: PinnedSet<'x, Any, RandomState>) -> PinnedSet<'x, Static, RandomState> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::flat::PinnedSet;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: PinnedSet<'x, Any, RandomState>) -> PinnedSet<'x, Any, RandomState> {
//!     it
//! }
//! ```
//!
//! A selective removal, which has the map:
//!
//! ```compile_fail,E0308
//! use relativist::flat::ExtractIf;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: ExtractIf<'x, u32, Any, RandomState, fn(&u32, &Static) -> bool>) -> ExtractIf<'x, u32, Static, RandomState, fn(&u32, &Static) -> bool> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::flat::ExtractIf;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: ExtractIf<'x, u32, Any, RandomState, fn(&u32, &Static) -> bool>) -> ExtractIf<'x, u32, Any, RandomState, fn(&u32, &Static) -> bool> {
//!     it
//! }
//! ```
//!
//! An iterator, which has the table:
//!
//! ```compile_fail,E0308
//! use relativist::flat::Iter;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: Iter<'x, u32, Any, RandomState>) -> Iter<'x, u32, Static, RandomState> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::flat::Iter;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: Iter<'x, u32, Any, RandomState>) -> Iter<'x, u32, Any, RandomState> {
//!     it
//! }
//! ```
//!
//! (`flat::Keys` and `flat::Values` have an iterator. `flat::Drain` has bounds that these types do
//! not meet. It has a selective removal.)
//!
//! # Maps in a private domain
//!
//! Keys:
//!
//! ```compile_fail,E0308
//! use relativist::PrivateMap;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow(it: PrivateMap<Any, u32>) -> PrivateMap<Static, u32> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::PrivateMap;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow(it: PrivateMap<Any, u32>) -> PrivateMap<Any, u32> {
//!     it
//! }
//! ```
//!
//! Values:
//!
//! ```compile_fail,E0308
//! use relativist::PrivateMap;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow(it: PrivateMap<u32, Any>) -> PrivateMap<u32, Static> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::PrivateMap;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow(it: PrivateMap<u32, Any>) -> PrivateMap<u32, Any> {
//!     it
//! }
//! ```
//!
//! A handle:
//!
//! ```compile_fail,E0308
//! use relativist::private::Pinned;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: Pinned<'x, u32, Any, RandomState>) -> Pinned<'x, u32, Static, RandomState> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::private::Pinned;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: Pinned<'x, u32, Any, RandomState>) -> Pinned<'x, u32, Any, RandomState> {
//!     it
//! }
//! ```
//!
//! A selective removal, which has the map:
//!
//! ```compile_fail,E0308
//! use relativist::private::ExtractIf;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: ExtractIf<'x, u32, Any, RandomState, fn(&u32, &Static) -> bool>) -> ExtractIf<'x, u32, Static, RandomState, fn(&u32, &Static) -> bool> {
//!     it
//! }
//! ```
//!
//! ```
//! use relativist::private::ExtractIf;
//! use std::hash::RandomState;
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn narrow<'x>(it: ExtractIf<'x, u32, Any, RandomState, fn(&u32, &Static) -> bool>) -> ExtractIf<'x, u32, Any, RandomState, fn(&u32, &Static) -> bool> {
//!     it
//! }
//! ```
//!
//! Their keys and values may borrow. A map of long borrows is no map of short ones, into which a
//! short one could be inserted:
//!
//! ```compile_fail
//! use relativist::PrivateMap;
//! fn shorten<'short, 'long: 'short>(it: &'short PrivateMap<u32, &'long str>) -> &'short PrivateMap<u32, &'short str> {
//!     it // error: lifetime may not live long enough
//! }
//! ```
//!
//! Nor is a map of short ones a map of long ones:
//!
//! ```compile_fail
//! use relativist::PrivateMap;
//! fn lengthen<'short, 'long: 'short>(it: PrivateMap<u32, &'short str>) -> PrivateMap<u32, &'long str> {
//!     it // error: lifetime may not live long enough
//! }
//! ```
//!
//! ```
//! use relativist::PrivateMap;
//! fn keep<'long>(it: PrivateMap<u32, &'long str>) -> PrivateMap<u32, &'long str> {
//!     it
//! }
//! ```
//!
//! A handle may be used for less long than the map is borrowed, because it only reads that:
//!
//! ```
//! use relativist::private::Pinned;
//! fn shorten<'short, 'long: 'short, V, S>(it: Pinned<'long, u32, V, S>) -> Pinned<'short, u32, V, S> {
//!     it
//! }
//! ```
//!
//! ```compile_fail
//! use relativist::private::Pinned;
//! fn lengthen<'short, 'long: 'short, V, S>(it: Pinned<'short, u32, V, S>) -> Pinned<'long, u32, V, S> {
//!     it // error: lifetime may not live long enough
//! }
//! ```
//!
//! What a value borrows is there when the value is dropped with the map:
//!
//! ```compile_fail,E0597
//! use relativist::PrivateMap;
//! struct Prints<'a>(&'a str);
//! impl Drop for Prints<'_> {
//!     fn drop(&mut self) {
//!         println!("{}", self.0);
//!     }
//! }
//! let map;
//! let text = String::from("freed before the map");
//! map = PrivateMap::from([(1, Prints(&text))]); // error: borrowed value does not live long enough
//! ```
//!
//! ```
//! use relativist::PrivateMap;
//! struct Prints<'a>(&'a str);
//! impl Drop for Prints<'_> {
//!     fn drop(&mut self) {
//!         println!("{}", self.0);
//!     }
//! }
//! let text = String::from("freed after the map");
//! let map = PrivateMap::from([(1, Prints(&text))]);
//! ```
//!
//! # Types that only return references
//!
//! Iterators of `HashMap` are covariant, as `std`'s are:
//!
//! ```
//! use relativist::{Iter, Keys, Values};
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn iter(it: Iter<'_, Any, Any>) -> Iter<'_, Static, Static> {
//!     it
//! }
//! fn keys(it: Keys<'_, Any, Any>) -> Keys<'_, Static, Static> {
//!     it
//! }
//! fn values(it: Values<'_, Any, Any>) -> Values<'_, Static, Static> {
//!     it
//! }
//! ```
//!
//! So are those of `PrivateMap`:
//!
//! ```
//! use relativist::private::{Iter, Keys, Values};
//! type Any = for<'a> fn(&'a str);
//! type Static = fn(&'static str);
//! fn iter(it: Iter<'_, Any, Any>) -> Iter<'_, Static, Static> {
//!     it
//! }
//! fn keys(it: Keys<'_, Any, Any>) -> Keys<'_, Static, Static> {
//!     it
//! }
//! fn values(it: Values<'_, Any, Any>) -> Values<'_, Static, Static> {
//!     it
//! }
//! ```
