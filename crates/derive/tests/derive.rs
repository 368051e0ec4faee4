//! Types that derive `Relocatable`, without unsafe code. The documentation has those that cannot.

#![forbid(unsafe_code)]
// The bounds that the macro adds must not look like repetitions by the user.
#![warn(clippy::type_repetition_in_bounds)]
#![allow(dead_code, reason = "many types are only derived")]

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use relativist::{FlatMap, Relocatable};
use relativist_testing as _;

const fn is_relocatable<T: Relocatable + ?Sized>() {}

#[test]
fn values_survive_moves() {
    #[derive(Relocatable, Debug, PartialEq)]
    enum Entry<T> {
        Empty,
        Pair(T, String),
        Named { value: Box<T> },
    }

    let map = FlatMap::new();
    for n in 0..300_u64 {
        let entry = match n % 3 {
            0 => Entry::Empty,
            1 => Entry::Pair(n, n.to_string()),
            _ => Entry::Named { value: Box::new(n) },
        };
        map.pin().insert(n, entry);
    }
    map.reserve(10_000);
    assert_eq!(map.pin().get(&3), Some(&Entry::Empty));
    assert_eq!(map.pin().get(&4), Some(&Entry::Pair(4, "4".into())));
    assert_eq!(map.pin().get(&5), Some(&Entry::Named { value: Box::new(5) }));
}

#[test]
fn structs() {
    #[derive(Relocatable)]
    struct Unit;
    #[derive(Relocatable)]
    struct Tuple(u8, String);
    #[derive(Relocatable)]
    struct Named {
        r#type: u8,
        function: fn(u8) -> u8,
        object: Box<dyn Fn(&str) -> u8 + Send + Sync>,
    }
    #[derive(Relocatable)]
    struct Dropped(String);
    impl Drop for Dropped {
        fn drop(&mut self) {}
    }
    #[derive(Relocatable)]
    #[repr(C, packed)]
    struct Packed {
        small: u8,
        large: u64,
    }

    is_relocatable::<(Unit, Tuple, Named, Dropped, Packed)>();
}

#[test]
fn enums() {
    #[derive(Relocatable)]
    enum Never {}
    #[derive(Relocatable)]
    enum Tree {
        Leaf,
        Pair(Box<Tree>, Box<Self>),
        Named { name: Cow<'static, str>, size: u8 },
    }
    #[derive(Relocatable)]
    #[repr(u8)]
    enum Numbered {
        One = 1,
        Four(u8) = 1 << 2,
    }

    is_relocatable::<(Never, Tree, Numbered)>();
}

#[test]
fn generic_types() {
    #[derive(Relocatable)]
    struct Pair<K, V> {
        key: K,
        value: V,
    }
    #[derive(Relocatable)]
    struct Defaulted<T = u8>(T);
    #[derive(Relocatable)]
    struct Array<T, const N: usize = 3>([T; N]);
    #[derive(Relocatable)]
    struct Bounded<T>(T)
    where
        T: Copy + Into<u64>;
    #[derive(Relocatable)]
    struct Item<I: Iterator>(I::Item);
    #[derive(Relocatable)]
    struct List<T> {
        value: T,
        next: Option<Arc<Self>>,
    }
    #[derive(Relocatable)]
    struct Unsized<T: ?Sized>(u8, T);

    is_relocatable::<(Pair<u8, String>, Defaulted, Array<String>, Bounded<u8>, Item<std::ops::Range<u8>>, List<u8>)>();
    is_relocatable::<Unsized<Array<u8, 2>>>();
}

/// What is behind a pointer may be of any type.
#[test]
fn parameters_need_only_what_the_fields_need() {
    #[derive(Relocatable)]
    struct Shared<T>(Arc<T>);
    #[derive(Relocatable)]
    struct Marked<T>(PhantomData<T>);

    is_relocatable::<(Shared<AtomicU64>, Marked<AtomicU64>)>();
}

#[test]
fn lifetimes() {
    #[derive(Relocatable)]
    struct Borrowed<'a, 'b, T: ?Sized> {
        text: &'a str,
        both: &'a &'b T,
    }

    is_relocatable::<Borrowed<'static, 'static, str>>();
}

/// The bounds of a public type may name private ones.
#[test]
fn private_fields() {
    mod inner {
        #[derive(relativist::Relocatable)]
        struct Private(u8);
        #[derive(relativist::Relocatable)]
        pub struct Public(Private);
    }

    is_relocatable::<inner::Public>();
}

/// Names in the generated code are not those of the macro that generates the type.
#[test]
fn types_from_macros() {
    macro_rules! make {
        ($name:ident { $field:ident: $type:ty }) => {
            #[derive(Relocatable)]
            struct $name {
                $field: $type,
                hygienic: u8,
            }
        };
    }
    make!(Made { field: Vec<u8> });

    is_relocatable::<Made>();
}
