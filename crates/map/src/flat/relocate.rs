//! The types that a flat map may store.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, LinkedList, VecDeque};
use std::ffi::{CString, OsString};
use std::marker::{PhantomData, PhantomPinned};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize, NonZeroU8, NonZeroU16, NonZeroU32,
    NonZeroU64, NonZeroU128, NonZeroUsize, Wrapping,
};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

/// A type whose values may be moved while other threads read them.
///
/// A flat map moves entries when it is resized: it copies their bytes to another place, while
/// readers may still have references to the old one. That is sound for types that do not change
/// through a shared reference, such as integers and `String`, and for types that change only behind
/// a pointer, such as `Arc<AtomicU64>` or `Box<Mutex<T>>`. It would be wrong for a `Mutex` or an
/// atomic in the entry itself: a thread could lock or change the old copy, and other threads would
/// not see that.
///
/// The trait is implemented for many types of the standard library for which this holds. Implement
/// it for your own types if all their fields have it. (Types of other crates may have an atomic
/// inside.) Without `unsafe`, store a `Box` or an `Arc` of the type, which are always
/// `Relocatable`:
///
/// ```
/// use relativist::flat::{FlatMap, Relocatable};
///
/// struct Account {
///     owner: String,
///     balance: i64,
/// }
///
/// // SAFETY: both fields are `Relocatable`.
/// unsafe impl Relocatable for Account {}
///
/// let accounts = FlatMap::new();
/// accounts.pin().insert(7, Account { owner: "Ada".into(), balance: 10 });
/// ```
///
/// ```compile_fail,E0277
/// use relativist::flat::FlatMap;
/// use std::sync::atomic::AtomicU64;
///
/// let counters = FlatMap::new();
/// counters.pin().insert("hits", AtomicU64::new(0)); // error: not `Relocatable`
/// ```
///
/// ```
/// use relativist::flat::FlatMap;
/// use std::sync::Arc;
/// use std::sync::atomic::AtomicU64;
///
/// let counters = FlatMap::new();
/// counters.pin().insert("hits", Arc::new(AtomicU64::new(0)));
/// ```
///
/// # Safety
///
/// No code may change the bytes of a value through a shared reference to it. In other words: the
/// type contains no `UnsafeCell`, except behind a pointer. This includes the parameters of a
/// generic type whose values it contains. An array of a few values must not exceed the address
/// space.
pub unsafe trait Relocatable: Send + Sync + 'static {}

macro_rules! relocatable {
    ($(for [$($parameter:tt)*] $type:ty;)*) => {
        $(
            // SAFETY: the type has no `UnsafeCell` except behind a pointer. The values that it
            // contains of its parameters are `Relocatable`, or are behind a pointer, too.
            unsafe impl<$($parameter)*> Relocatable for $type {}
        )*
    };
}

relocatable! {
    for [] (); for [] bool; for [] char;
    for [] u8; for [] u16; for [] u32; for [] u64; for [] u128; for [] usize;
    for [] i8; for [] i16; for [] i32; for [] i64; for [] i128; for [] isize;
    for [] f32; for [] f64;
    for [] NonZeroU8; for [] NonZeroU16; for [] NonZeroU32; for [] NonZeroU64; for [] NonZeroU128; for [] NonZeroUsize;
    for [] NonZeroI8; for [] NonZeroI16; for [] NonZeroI32; for [] NonZeroI64; for [] NonZeroI128; for [] NonZeroIsize;
    for [T: Relocatable] Wrapping<T>;
    for [T: Relocatable, const N: usize] [T; N];
    for [A: Relocatable] (A,);
    for [A: Relocatable, B: Relocatable] (A, B);
    for [A: Relocatable, B: Relocatable, C: Relocatable] (A, B, C);
    for [A: Relocatable, B: Relocatable, C: Relocatable, D: Relocatable] (A, B, C, D);
    for [A: Relocatable, B: Relocatable, C: Relocatable, D: Relocatable, E: Relocatable] (A, B, C, D, E);
    for [A: Relocatable, B: Relocatable, C: Relocatable, D: Relocatable, E: Relocatable, F: Relocatable] (A, B, C, D, E, F);
    for [T: Relocatable] Option<T>;
    for [T: Relocatable, E: Relocatable] Result<T, E>;
    for [T: Send + Sync + 'static] PhantomData<T>; for [] PhantomPinned;
    for [T: Sync + ?Sized + 'static] &'static T;
    for [T: Send + Sync + ?Sized + 'static] Box<T>;
    for [T: Send + Sync + ?Sized + 'static] Arc<T>;
    for [T: Send + Sync + ?Sized + 'static] Weak<T>;
    for [T: Send + Sync + 'static] Vec<T>;
    for [T: Send + Sync + 'static] VecDeque<T>;
    for [T: Send + Sync + 'static] BinaryHeap<T>;
    for [T: Send + Sync + 'static] LinkedList<T>;
    for [K: Send + Sync + 'static, V: Send + Sync + 'static] BTreeMap<K, V>;
    for [T: Send + Sync + 'static] BTreeSet<T>;
    for [] String; for [] CString; for [] OsString; for [] PathBuf;
    for [] Duration; for [] Instant; for [] SystemTime;
    for [] IpAddr; for [] Ipv4Addr; for [] Ipv6Addr; for [] SocketAddr; for [] SocketAddrV4; for [] SocketAddrV6;
    for [] std::cmp::Ordering; for [] std::any::TypeId; for [] std::thread::ThreadId;
}
