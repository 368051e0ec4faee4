//! The three builds, which differ in how their routines know the size of keys.

use std::fmt::Debug;

use super::Map;

/// One of the three builds. [`Map`] calls its functions, with keys of the right type.
pub trait Build: Debug + Sized {
    /// The name of the build in reports, which is that of the paper.
    const NAME: &'static str;

    /// The type of keys.
    type Key: AsRef<[u8]> + ?Sized;

    /// Whether non-empty buckets are kept on a list.
    const LISTED: bool;

    /// Returns the size of a key in bytes.
    fn key_size(&self) -> usize;

    /// See [`Map::bind`].
    fn bind(map: &mut Map<Self>, key: &[u8], value: u64) -> bool;

    /// See [`Map::resolve`].
    fn resolve(map: &Map<Self>, key: &[u8]) -> Option<u64>;

    /// See [`Map::unbind`].
    fn unbind(map: &mut Map<Self>, key: &[u8]) -> Option<u64>;
}

/// The knowledge that a routine has of the size of keys.
pub(super) trait KeySize {
    fn of(build: &impl Build) -> usize;
}

/// The size is a number in the map.
pub(super) struct Any;

impl KeySize for Any {
    #[inline(always)]
    fn of(build: &impl Build) -> usize {
        build.key_size()
    }
}

/// The size is a constant.
struct Known<const SIZE: usize>;

impl<const SIZE: usize> KeySize for Known<SIZE> {
    #[inline(always)]
    fn of(_: &impl Build) -> usize {
        SIZE
    }
}

/// Binds a key of size `S`. The routines for different sizes are separate. They are not inlined, so
/// that they know about the size only what `S` states.
#[inline(never)]
fn bind<S: KeySize, B: Build>(map: &mut Map<B>, key: &[u8], value: u64) -> bool {
    map.bind_as::<S>(key, value)
}

#[inline(never)]
fn resolve<S: KeySize, B: Build>(map: &Map<B>, key: &[u8]) -> Option<u64> {
    map.found_last::<S>(key).or_else(|| map.look_up::<S>(key))
}

#[inline(never)]
fn look_up<S: KeySize, B: Build>(map: &Map<B>, key: &[u8]) -> Option<u64> {
    map.look_up::<S>(key)
}

#[inline(never)]
fn unbind<S: KeySize, B: Build>(map: &mut Map<B>, key: &[u8]) -> Option<u64> {
    map.unbind_as::<S>(key)
}

/// The build without routines for certain sizes, and without a list of buckets that may have
/// elements.
#[derive(Clone, Copy, Debug)]
pub struct Old {
    key_size: usize,
}

impl Old {
    /// Creates the build for keys of `size` bytes.
    #[must_use]
    pub fn with_key_size(key_size: usize) -> Self {
        Self { key_size }
    }
}

impl Build for Old {
    const NAME: &'static str = "old";
    type Key = [u8];
    const LISTED: bool = false;

    #[inline(always)]
    fn key_size(&self) -> usize {
        self.key_size
    }

    #[inline(always)]
    fn bind(map: &mut Map<Self>, key: &[u8], value: u64) -> bool {
        bind::<Any, Self>(map, key, value)
    }

    #[inline(always)]
    fn resolve(map: &Map<Self>, key: &[u8]) -> Option<u64> {
        resolve::<Any, Self>(map, key)
    }

    #[inline(always)]
    fn unbind(map: &mut Map<Self>, key: &[u8]) -> Option<u64> {
        unbind::<Any, Self>(map, key)
    }
}

/// The build that chooses routines for the size of keys when the map is created.
#[derive(Clone, Copy, Debug)]
pub struct New {
    key_size: usize,
    bind: fn(&mut Map<Self>, &[u8], u64) -> bool,
    resolve: fn(&Map<Self>, &[u8]) -> Option<u64>,
    unbind: fn(&mut Map<Self>, &[u8]) -> Option<u64>,
}

/// Defines the sizes that have routines, and the choice among them.
macro_rules! specialise {
    ($($size:literal)*) => {
        impl New {
            /// The sizes of keys that have routines of their own (section 3).
            pub const SIZES: &'static [usize] = &[$($size),*];

            /// Creates the build for keys of `size` bytes.
            #[must_use]
            pub fn with_key_size(key_size: usize) -> Self {
                match key_size {
                    $($size => Self::of::<Known<$size>>(key_size),)*
                    _ => Self::of::<Any>(key_size),
                }
            }
        }
    };
}

specialise!(2 4 6 8 10 12 16);

impl New {
    fn of<S: KeySize>(key_size: usize) -> Self {
        Self { key_size, bind: bind::<S, Self>, resolve: resolve::<S, Self>, unbind: unbind::<S, Self> }
    }
}

impl Build for New {
    const NAME: &'static str = "new";
    type Key = [u8];
    const LISTED: bool = true;

    #[inline(always)]
    fn key_size(&self) -> usize {
        self.key_size
    }

    #[inline(always)]
    fn bind(map: &mut Map<Self>, key: &[u8], value: u64) -> bool {
        (map.build.bind)(map, key, value)
    }

    #[inline(always)]
    fn resolve(map: &Map<Self>, key: &[u8]) -> Option<u64> {
        (map.build.resolve)(map, key)
    }

    #[inline(always)]
    fn unbind(map: &mut Map<Self>, key: &[u8]) -> Option<u64> {
        (map.build.unbind)(map, key)
    }
}

/// The build whose keys have `SIZE` bytes, from 1 to [`MAX_KEY`](super::MAX_KEY).
///
/// Keys of another size do not compile:
///
/// ```compile_fail,E0308
/// use relativist_papers::tables::xkernel::{Const, Map};
/// Map::new(64, Const::<4>).resolve(&[0; 5]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Const<const SIZE: usize>;

impl<const SIZE: usize> Build for Const<SIZE> {
    const NAME: &'static str = "const";
    type Key = [u8; SIZE];
    const LISTED: bool = true;

    #[inline(always)]
    fn key_size(&self) -> usize {
        SIZE
    }

    #[inline(always)]
    fn bind(map: &mut Map<Self>, key: &[u8], value: u64) -> bool {
        bind::<Known<SIZE>, Self>(map, key, value)
    }

    /// Only the comparison with the cached entry is inlined, as in the paper; the rest is a
    /// function call.
    #[inline(always)]
    fn resolve(map: &Map<Self>, key: &[u8]) -> Option<u64> {
        map.found_last::<Known<SIZE>>(key).or_else(|| look_up::<Known<SIZE>, Self>(map, key))
    }

    #[inline(always)]
    fn unbind(map: &mut Map<Self>, key: &[u8]) -> Option<u64> {
        unbind::<Known<SIZE>, Self>(map, key)
    }
}
