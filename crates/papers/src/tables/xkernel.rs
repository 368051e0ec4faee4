//! Mosberger's map tool of the x-kernel ("Map Library Design Notes", 1996): a hash table for one
//! thread that finds the session of a packet, most probably that of the previous packet.
//!
//! Four structures work together (section 2): an array of buckets, whose number is a power of two
//! and at most [`MAX_BUCKETS`]; a chain of elements per bucket; a cache of one entry, the last that
//! was found; and a list of the buckets that may have elements. The list is for iterating over a
//! sparse table, and is updated lazily: a bucket is added when it is filled, and removed when an
//! iteration finds it empty. So it is linked in one direction only, and costs updates little.
//!
//! Section 3 is about keys, which are byte strings of one size per map. The type parameter of
//! [`Map`] determines how the size is known, after the three builds that section 4 measures:
//!
//! | Build | Size of keys | Iteration |
//! |---|---|---|
//! | [`Old`] | an argument of one generic routine | over all buckets |
//! | [`New`] | chooses routines for 2, 4, 6, 8, 10, 12 or 16 bytes, or the generic ones, when the map is created | over the list |
//! | [`Const`] | part of the type: a look at the cached entry is inlined, as a few loads and comparisons | over the list |
//!
//! All three are compiled from one source. The author used a macro around a compiler built-in, and
//! asked for a cleaner way. Here the size is a const generic parameter. His routines also need
//! aligned keys. These do not, because processors load words from any address.
//!
//! The paper prints no hash function, so this one is new: a rotation and a multiplication per word,
//! and the top ten bits. Elements are stored in a vector and linked by their numbers; a number that
//! is out of bounds ends a chain. So there is no unsafe code, and the bounds check takes the place
//! of the original's comparison with null.
//!
//! *Progress*: one thread at a time, because lookups write to the cache ([`Map`] is not `Sync`).
//!
//! *A lookup costs* a comparison if the key is that of the previous lookup, and otherwise a hash
//! and the walk of a chain.

mod builds;

use std::cell::Cell;
use std::fmt;
use std::mem::replace;
use std::ops::ControlFlow;

use builds::KeySize;
pub use builds::{Build, Const, New, Old};

/// The maximum number of buckets: the hash has ten bits (section 2.1).
pub const MAX_BUCKETS: usize = 1 << HASH_BITS;

/// The maximum length of a key, in bytes.
pub const MAX_KEY: usize = 32;

const HASH_BITS: u32 = 10;

/// 2^64 over the golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Ends chains and the list of buckets; no element and no bucket has this number.
const END: u32 = u32::MAX;

/// The link of a bucket that is not on the list.
const UNLISTED: u32 = u32::MAX - 1;

/// Two links of half a word each. One of them is for the list.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    first: u32,
    next_listed: u32,
}

#[derive(Clone, Copy, Debug)]
struct Element {
    key: [u8; MAX_KEY],
    value: u64,
    next: u32,
}

/// Binds keys of one size to words. See the [module](self).
///
/// ```
/// use std::ops::ControlFlow;
///
/// use relativist_papers::tables::xkernel::{Const, Map, New};
///
/// // Sessions by port, with the size of keys known to the compiler.
/// let mut sessions = Map::new(64, Const::<2>);
/// assert!(sessions.bind(&80_u16.to_be_bytes(), 1));
/// assert_eq!(sessions.resolve(&80_u16.to_be_bytes()), Some(1));
///
/// // The same, with a size that the compiler does not know.
/// let mut sessions = Map::new(64, New::with_key_size(2));
/// assert!(sessions.bind(&80_u16.to_be_bytes(), 1) && sessions.bind(&443_u16.to_be_bytes(), 2));
/// let found = sessions.for_each(|_, session| if session == 2 { ControlFlow::Break(session) } else { ControlFlow::Continue(()) });
/// assert_eq!(found, ControlFlow::Break(2));
/// assert_eq!(sessions.unbind(&80_u16.to_be_bytes()), Some(1));
/// ```
pub struct Map<B> {
    build: B,
    buckets: Box<[Bucket]>,
    /// Bound elements, and unbound ones that can be reused.
    elements: Vec<Element>,
    unbound: u32,
    /// The element that was found last, unless it is unbound: the lookup cache (section 2.3).
    found: Cell<u32>,
    /// The first bucket that may have elements (section 2.4).
    listed: u32,
}

impl<B: Build> Map<B> {
    /// Creates an empty map. The number of buckets is rounded up to a power of two.
    ///
    /// # Panics
    /// Panics if that is more than [`MAX_BUCKETS`], or if keys are longer than [`MAX_KEY`].
    #[must_use]
    pub fn new(buckets: usize, build: B) -> Self {
        let buckets = buckets.next_power_of_two();
        assert!(buckets <= MAX_BUCKETS, "{buckets} buckets are more than {MAX_BUCKETS}");
        assert!(build.key_size() <= MAX_KEY, "keys of {} bytes are longer than {MAX_KEY}", build.key_size());
        let empty = Bucket { first: END, next_listed: UNLISTED };
        let buckets = vec![empty; buckets].into_boxed_slice();
        Self { build, buckets, elements: Vec::new(), unbound: END, found: Cell::new(END), listed: END }
    }

    /// Binds `key` to `value` if it is not bound (`mapBind`). Returns false, and changes nothing,
    /// if it is.
    ///
    /// Costs a hash and a walk of the bucket's chain.
    ///
    /// # Panics
    /// Panics if the key does not have the size of the map's keys.
    #[inline(always)]
    pub fn bind(&mut self, key: &B::Key, value: u64) -> bool {
        B::bind(self, key.as_ref(), value)
    }

    /// Returns the value to which `key` is bound (`mapResolve`).
    ///
    /// Costs a comparison for the key that was found last, otherwise a hash and a walk of the
    /// bucket's chain.
    ///
    /// # Panics
    /// See [`Map::bind`].
    #[inline(always)]
    pub fn resolve(&self, key: &B::Key) -> Option<u64> {
        B::resolve(self, key.as_ref())
    }

    /// Unbinds `key`, and returns the value to which it was bound (`mapRemoveBinding`).
    ///
    /// Costs a hash and a walk of the bucket's chain.
    ///
    /// # Panics
    /// See [`Map::bind`].
    #[inline(always)]
    pub fn unbind(&mut self, key: &B::Key) -> Option<u64> {
        B::unbind(self, key.as_ref())
    }

    /// Visits all bindings, in no particular order, until `visit` breaks (`mapForEach`). Returns
    /// the value of the break.
    ///
    /// Takes time proportional to the number of bindings, and of the buckets that became empty
    /// since the last iteration, which it takes off the list. In the [`Old`] build, takes time
    /// proportional to the number of all buckets.
    pub fn for_each<R>(&mut self, visit: impl FnMut(&[u8], u64) -> ControlFlow<R>) -> ControlFlow<R> {
        if B::LISTED { self.for_each_listed(visit) } else { self.for_each_bucket(visit) }
    }

    fn for_each_bucket<R>(&self, mut visit: impl FnMut(&[u8], u64) -> ControlFlow<R>) -> ControlFlow<R> {
        self.buckets.iter().try_for_each(|bucket| self.visit_chain(bucket.first, &mut visit))
    }

    fn for_each_listed<R>(&mut self, mut visit: impl FnMut(&[u8], u64) -> ControlFlow<R>) -> ControlFlow<R> {
        let (mut last_filled, mut at) = (END, self.listed);
        while let Some(bucket) = self.buckets.get_mut(at as usize) {
            let Bucket { first, next_listed } = *bucket;
            if first == END {
                bucket.next_listed = UNLISTED;
                match self.buckets.get_mut(last_filled as usize) {
                    Some(before) => before.next_listed = next_listed,
                    None => self.listed = next_listed,
                }
            } else {
                self.visit_chain(first, &mut visit)?;
                last_filled = at;
            }
            at = next_listed;
        }
        ControlFlow::Continue(())
    }

    #[inline(always)]
    fn visit_chain<R>(&self, first: u32, visit: &mut impl FnMut(&[u8], u64) -> ControlFlow<R>) -> ControlFlow<R> {
        let mut at = first;
        while let Some(element) = self.elements.get(at as usize) {
            visit(&element.key[..self.build.key_size()], element.value)?;
            at = element.next;
        }
        ControlFlow::Continue(())
    }

    /// Returns the number of buckets.
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Returns the number of buckets that the next iteration will visit.
    #[must_use]
    pub fn listed_buckets(&self) -> usize {
        if !B::LISTED {
            return self.buckets();
        }
        let bucket = |at: u32| self.buckets.get(at as usize);
        std::iter::successors(bucket(self.listed), |listed| bucket(listed.next_listed)).count()
    }

    /// Returns the number of the bucket of `key`, for measurements with collisions.
    ///
    /// # Panics
    /// See [`Map::bind`].
    #[must_use]
    pub fn bucket_of(&self, key: &B::Key) -> usize {
        self.index::<builds::Any>(key.as_ref())
    }

    /// Returns the bucket of a key. The generated code depends on what `S` says about the size of
    /// keys.
    #[inline(always)]
    fn index<S: KeySize>(&self, key: &[u8]) -> usize {
        let (words, mut rest) = exactly::<S, B>(&self.build, key).as_chunks();
        let mut hash = words.iter().fold(0, |hash, &word| mixed(hash, u64::from_le_bytes(word)));
        if let Some((&half, after)) = rest.split_first_chunk() {
            (hash, rest) = (mixed(hash, u32::from_le_bytes(half).into()), after);
        }
        if let Some((&quarter, after)) = rest.split_first_chunk() {
            (hash, rest) = (mixed(hash, u16::from_le_bytes(quarter).into()), after);
        }
        if let &[byte] = rest {
            hash = mixed(hash, byte.into());
        }
        (hash >> (u64::BITS - HASH_BITS)) as usize & (self.buckets.len() - 1)
    }

    /// Returns the value of the element that was found last, if it has this key.
    #[inline(always)]
    fn found_last<S: KeySize>(&self, key: &[u8]) -> Option<u64> {
        let element = self.elements.get(self.found.get() as usize)?;
        self.has_key::<S>(element, key).then_some(element.value)
    }

    /// Looks up a key in its chain, and remembers it in the cache.
    #[inline(always)]
    fn look_up<S: KeySize>(&self, key: &[u8]) -> Option<u64> {
        let at = self.find::<S>(self.index::<S>(key), key)?;
        self.found.set(at);
        Some(self.elements[at as usize].value)
    }

    #[inline(always)]
    fn bind_as<S: KeySize>(&mut self, key: &[u8], value: u64) -> bool {
        let index = self.index::<S>(key);
        if self.find::<S>(index, key).is_some() {
            return false;
        }
        let mut element = Element { key: [0; MAX_KEY], value, next: self.buckets[index].first };
        element.key[..S::of(&self.build)].copy_from_slice(key);
        let at = self.store(element);
        self.buckets[index].first = at;
        if B::LISTED && self.buckets[index].next_listed == UNLISTED {
            self.buckets[index].next_listed = replace(&mut self.listed, index as u32);
        }
        true
    }

    #[inline(always)]
    fn unbind_as<S: KeySize>(&mut self, key: &[u8]) -> Option<u64> {
        let index = self.index::<S>(key);
        let (mut before, mut at) = (END, self.buckets[index].first);
        loop {
            let element = self.elements.get(at as usize)?;
            let Element { value, next, .. } = *element;
            if self.has_key::<S>(element, key) {
                match self.elements.get_mut(before as usize) {
                    Some(before) => before.next = next,
                    None => self.buckets[index].first = next,
                }
                self.elements[at as usize].next = replace(&mut self.unbound, at);
                if self.found.get() == at {
                    self.found.set(END);
                }
                return Some(value);
            }
            (before, at) = (at, next);
        }
    }

    /// Returns the element with this key in a bucket's chain.
    #[inline(always)]
    fn find<S: KeySize>(&self, index: usize, key: &[u8]) -> Option<u32> {
        let mut at = self.buckets[index].first;
        loop {
            let element = self.elements.get(at as usize)?;
            if self.has_key::<S>(element, key) {
                return Some(at);
            }
            at = element.next;
        }
    }

    #[inline(always)]
    fn has_key<S: KeySize>(&self, element: &Element, key: &[u8]) -> bool {
        element.key[..S::of(&self.build)] == *exactly::<S, B>(&self.build, key)
    }

    /// Finds a place for an element.
    fn store(&mut self, element: Element) -> u32 {
        let at = self.unbound;
        if let Some(place) = self.elements.get_mut(at as usize) {
            self.unbound = replace(place, element).next;
            return at;
        }
        let at =
            u32::try_from(self.elements.len()).ok().filter(|&at| at < UNLISTED).expect("fewer than 2^32 - 2 bindings");
        self.elements.push(element);
        at
    }
}

impl<B: Build> fmt::Debug for Map<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("buckets", &self.buckets()).field("build", &self.build).finish_non_exhaustive()
    }
}

/// Returns `key`, with a size that the compiler knows if `S` does.
#[inline(always)]
fn exactly<'k, S: KeySize, B: Build>(build: &B, key: &'k [u8]) -> &'k [u8] {
    let size = S::of(build);
    assert!(key.len() == size, "the map's keys have another size");
    &key[..size]
}

#[inline(always)]
fn mixed(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER)
}
