//! The types that a flat map may store.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, LinkedList, VecDeque};
use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::hash::{BuildHasherDefault, RandomState};
use std::marker::{PhantomData, PhantomPinned};
use std::mem::ManuallyDrop;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize, NonZeroU8, NonZeroU16, NonZeroU32,
    NonZeroU64, NonZeroU128, NonZeroUsize, Saturating, Wrapping,
};
use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread::{Thread, ThreadId};
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
/// The trait is implemented for many types of the standard library for which this holds. Derive it
/// for your own types: that compiles if all their fields are `Relocatable`. The feature `derive`,
/// a default, offers the macro.
///
/// ```
/// use relativist::{FlatMap, Relocatable};
///
/// #[derive(Relocatable)]
/// struct Account {
///     owner: String,
///     balance: i64,
/// }
///
/// let accounts = FlatMap::new();
/// accounts.pin().insert(7, Account { owner: "Ada".into(), balance: 10 });
/// ```
///
/// A type that is not `Relocatable`, or is from another crate and may have an atomic inside, can be
/// stored behind a `Box` or an `Arc`. These are always `Relocatable`:
///
/// ```compile_fail,E0277
/// use relativist::FlatMap;
/// use std::sync::atomic::AtomicU64;
///
/// let counters: FlatMap<&str, AtomicU64> = FlatMap::new();
/// counters.pin().insert("hits", AtomicU64::new(0)); // error: not `Relocatable`
/// ```
///
/// ```
/// use relativist::FlatMap;
/// use std::sync::Arc;
/// use std::sync::atomic::AtomicU64;
///
/// let counters: FlatMap<&str, Arc<AtomicU64>> = FlatMap::new();
/// counters.pin().insert("hits", Arc::new(AtomicU64::new(0)));
/// ```
///
/// # Safety
///
/// No code may change the bytes of a value through a shared reference to it. In other words: the
/// type contains no `UnsafeCell`, except behind a pointer. This includes the parameters of a
/// generic type whose values it contains. An array of a few values must not exceed the address
/// space.
// The message has the advice in short, because the compiler sometimes leaves out the notes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not `Relocatable`, so a flat map cannot store it: derive the trait, store an `Arc<{Self}>`, or use \
               `relativist::HashMap`",
    label = "not `Relocatable`",
    note = "`#[derive(relativist::Relocatable)]` implements the trait for a type of yours if all its fields are \
            `Relocatable`",
    note = "an `Arc` or a `Box` of any type that is `Send + Sync + 'static` is `Relocatable`",
    note = "`relativist::HashMap` and `HashSet` store any type that is `Send + Sync + 'static`"
)]
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

// Numbers and the like, which have no pointers.
relocatable! {
    for [] bool; for [] char; for [] Infallible;
    for [] u8; for [] u16; for [] u32; for [] u64; for [] u128; for [] usize;
    for [] i8; for [] i16; for [] i32; for [] i64; for [] i128; for [] isize;
    for [] f32; for [] f64;
    for [] NonZeroU8; for [] NonZeroU16; for [] NonZeroU32; for [] NonZeroU64; for [] NonZeroU128; for [] NonZeroUsize;
    for [] NonZeroI8; for [] NonZeroI16; for [] NonZeroI32; for [] NonZeroI64; for [] NonZeroI128; for [] NonZeroIsize;
    for [] Duration; for [] Instant; for [] SystemTime;
    for [] IpAddr; for [] Ipv4Addr; for [] Ipv6Addr; for [] SocketAddr; for [] SocketAddrV4; for [] SocketAddrV6;
    for [] std::cmp::Ordering; for [] std::any::TypeId; for [] ThreadId;
    for [T: Send + Sync + ?Sized + 'static] PhantomData<T>; for [] PhantomPinned;
    for [] RandomState; for [H: 'static] BuildHasherDefault<H>;
}

// Types that contain values of their parameters, and nothing else but flags.
relocatable! {
    for [T: Relocatable] Wrapping<T>; for [T: Relocatable] Saturating<T>; for [T: Relocatable] Reverse<T>;
    for [T: Relocatable] Option<T>; for [T: Relocatable, E: Relocatable] Result<T, E>;
    for [T: Relocatable] ManuallyDrop<T>; for [P: Relocatable] Pin<P>;
    for [T: Relocatable] Bound<T>; for [] RangeFull;
    for [T: Relocatable] Range<T>; for [T: Relocatable] RangeInclusive<T>; for [T: Relocatable] RangeFrom<T>;
    for [T: Relocatable] RangeTo<T>; for [T: Relocatable] RangeToInclusive<T>;
    for [T: Relocatable, const N: usize] [T; N];
}

// References, and owners of memory elsewhere. What they own may be of any type: readers of both
// copies of the owner use the same memory. No owner has a pointer into itself.
relocatable! {
    for [T: Sync + ?Sized + 'static] &'static T;
    for [T: Send + Sync + ?Sized + 'static] Box<T>;
    for [T: Send + Sync + ?Sized + 'static] Arc<T>;
    for [T: Send + Sync + ?Sized + 'static] Weak<T>;
    for [T: ToOwned<Owned: Relocatable> + Sync + ?Sized + 'static] Cow<'static, T>;
    for [T: Send + Sync + 'static] Vec<T>;
    for [T: Send + Sync + 'static] VecDeque<T>;
    for [T: Send + Sync + 'static] BinaryHeap<T>;
    for [T: Send + Sync + 'static] LinkedList<T>;
    for [K: Send + Sync + 'static, V: Send + Sync + 'static] BTreeMap<K, V>;
    for [T: Send + Sync + 'static] BTreeSet<T>;
    for [] String; for [] CString; for [] OsString; for [] PathBuf;
    for [] Waker; for [] Thread;
    // Handles of the operating system, which are numbers or pointers.
    for [] File; for [] TcpListener; for [] TcpStream; for [] UdpSocket;
}

// Hash tables of std: a pointer to the entries, numbers, and the hasher. (A map of `relativist`
// changes through a shared reference.)
relocatable! {
    for [K: Send + Sync + 'static, V: Send + Sync + 'static, S: Relocatable] std::collections::HashMap<K, V, S>;
    for [T: Send + Sync + 'static, S: Relocatable] std::collections::HashSet<T, S>;
}

/// Implements the trait for tuples of the types in brackets, and for functions with these
/// arguments. Then takes the other types in, one after the other.
macro_rules! tuples_and_functions {
    ([$($types:ident)*]) => {
        relocatable! {
            for [$($types: Relocatable),*] ($($types,)*);
            for [$($types: 'static,)* Output: 'static] fn($($types),*) -> Output;
        }
    };
    ([$($types:ident)*] $next:ident $($others:ident)*) => {
        tuples_and_functions!([$($types)*]);
        tuples_and_functions!([$($types)* $next] $($others)*);
    };
}

tuples_and_functions!([] A B C D E F G H I J K L);
