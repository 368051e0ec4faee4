//! Programs that must not compile, because they would read freed memory, and twins that do compile.
//! (Documentation only.)
//!
//! `for<'a> fn(&'a str)` is a subtype of `fn(&'static str)`: a function that takes any `&str` also
//! takes a `&'static str`. Both are `'static`, so the bounds of updates allow both. If a map or a
//! handle were covariant, a program could insert a function that stores its argument for ever, take
//! it out as a function that takes any `&str`, and pass a string that is about to be freed.
//!
//! ```compile_fail,E0308
//! # type Any = for<'a> fn(&'a str);
//! # type Static = fn(&'static str);
//! fn keys(map: relativist::HashMap<Any, u32>) -> relativist::HashMap<Static, u32> { map }
//! ```
//!
//! ```compile_fail,E0308
//! # type Any = for<'a> fn(&'a str);
//! # type Static = fn(&'static str);
//! fn values(map: &relativist::HashMap<u32, Any>) -> &relativist::HashMap<u32, Static> { map }
//! ```
//!
//! ```compile_fail,E0308
//! # type Any = for<'a> fn(&'a str);
//! # type Static = fn(&'static str);
//! fn handles<'m, S>(handle: relativist::Pinned<'m, u32, Any, S>) -> relativist::Pinned<'m, u32, Static, S> { handle }
//! ```
//!
//! ```compile_fail,E0308
//! # type Any = for<'a> fn(&'a str);
//! # type Static = fn(&'static str);
//! fn values(map: relativist::FlatMap<u32, Any>) -> relativist::FlatMap<u32, Static> { map }
//! ```
//!
//! ```
//! # type Any = for<'a> fn(&'a str);
//! fn keys(map: relativist::HashMap<Any, u32>) -> relativist::HashMap<Any, u32> { map }
//! fn values(map: &relativist::HashMap<u32, Any>) -> &relativist::HashMap<u32, Any> { map }
//! fn handles<'m, S>(handle: relativist::Pinned<'m, u32, Any, S>) -> relativist::Pinned<'m, u32, Any, S> { handle }
//! fn flat(map: relativist::FlatMap<u32, Any>) -> relativist::FlatMap<u32, Any> { map }
//! ```
//!
//! Keys and values of a `PrivateMap` may borrow. A map of long borrows is no map of short ones,
//! into which a short one could be inserted:
//!
//! ```compile_fail
//! use relativist::PrivateMap;
//! fn shorten<'short, 'long: 'short>(map: &'short PrivateMap<u32, &'long str>) -> &'short PrivateMap<u32, &'short str> {
//!     map // error: lifetime may not live long enough
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
//! A handle is not used longer than the map is borrowed:
//!
//! ```compile_fail
//! use relativist::Pinned;
//! fn lengthen<'short, 'long: 'short, S>(handle: Pinned<'short, u32, u32, S>) -> Pinned<'long, u32, u32, S> {
//!     handle // error: lifetime may not live long enough
//! }
//! ```
//!
//! ```
//! use relativist::{Pinned, PrivateMap};
//! struct Prints<'a>(&'a str);
//! impl Drop for Prints<'_> {
//!     fn drop(&mut self) {
//!         println!("{}", self.0);
//!     }
//! }
//! fn keep<'short, 'long: 'short>(map: &'short PrivateMap<u32, &'long str>) -> &'short PrivateMap<u32, &'long str> {
//!     map
//! }
//! fn shorten<'short, 'long: 'short, S>(handle: Pinned<'long, u32, u32, S>) -> Pinned<'short, u32, u32, S> {
//!     handle
//! }
//! let text = String::from("freed after the map");
//! let map = PrivateMap::from([(1, Prints(&text))]);
//! ```
