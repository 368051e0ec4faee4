//! How the size of keys gets into the routines.

use std::fmt::Debug;

use super::Map;

/// One of the three builds. Its functions are called by [`Map`]'s, with keys of the right type.
pub trait Build: Debug + Sized {
    /// How reports call it: as the paper does.
    const NAME: &'static str;

    /// What a key is given as.
    type Key: AsRef<[u8]> + ?Sized;

    /// Whether non-empty buckets are kept on a list.
    const LISTED: bool;

    /// Bytes of each key.
    fn key_size(&self) -> usize;

    /// See [`Map::bind`].
    fn bind(map: &mut Map<Self>, key: &[u8], value: u64) -> bool;

    /// See [`Map::resolve`].
    fn resolve(map: &Map<Self>, key: &[u8]) -> Option<u64>;

    /// See [`Map::unbind`].
    fn unbind(map: &mut Map<Self>, key: &[u8]) -> Option<u64>;
}

/// How much a routine knows of the size of keys.
pub(super) trait KeySize {
    fn of(build: &impl Build) -> usize;
}

/// Whatever the map says.
pub(super) struct Any;

impl KeySize for Any {
    #[inline(always)]
    fn of(build: &impl Build) -> usize {
        build.key_size()
    }
}

/// All of it.
struct Known<const SIZE: usize>;

impl<const SIZE: usize> KeySize for Known<SIZE> {
    #[inline(always)]
    fn of(_: &impl Build) -> usize {
        SIZE
    }
}

/// Routines on their own, for keys of size `S`: not inlined, so that what they know of the size is
/// what `S` says.
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

/// The build without routines for certain sizes, and without a list of buckets that may hold
/// something.
#[derive(Clone, Copy, Debug)]
pub struct Old {
    key_size: usize,
}

impl Old {
    /// For keys of so many bytes.
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

/// The build that picks routines for its size of keys when the map is made.
#[derive(Clone, Copy, Debug)]
pub struct New {
    key_size: usize,
    bind: fn(&mut Map<Self>, &[u8], u64) -> bool,
    resolve: fn(&Map<Self>, &[u8]) -> Option<u64>,
    unbind: fn(&mut Map<Self>, &[u8]) -> Option<u64>,
}

/// Which sizes have routines, and the choice of them.
macro_rules! specialise {
    ($($size:literal)*) => {
        impl New {
            /// The sizes of keys that have routines of their own (section 3).
            pub const SIZES: &'static [usize] = &[$($size),*];

            /// For keys of so many bytes.
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

/// The build whose keys have `SIZE` bytes, whatever size that is: 1 to [`MAX_KEY`](super::MAX_KEY).
///
/// Keys of another size don't compile:
///
/// ```compile_fail,E0308
/// use relativist_baselines::xkernel::{Const, Map};
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

    /// Only the look at the cached entry is inlined, as in the paper: the rest is a call away.
    #[inline(always)]
    fn resolve(map: &Map<Self>, key: &[u8]) -> Option<u64> {
        map.found_last::<Known<SIZE>>(key).or_else(|| look_up::<Known<SIZE>, Self>(map, key))
    }

    #[inline(always)]
    fn unbind(map: &mut Map<Self>, key: &[u8]) -> Option<u64> {
        unbind::<Known<SIZE>, Self>(map, key)
    }
}
