//! Filling sets from iterators and from each other, emptying and comparing them, all through the
//! map.

macro_rules! collect {
    (
        $Set:ident, $PinnedSet:ident, $Map:ident,
        iterate: [$($iterate:tt)*], remove_all: [$($remove_all:tt)*], update: [$($update:tt)*], create: [$($create:tt)*],
    ) => {
        impl<T, S: Default> FromIterator<T> for $Set<T, S> where $($update)* {
            fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
                let mut set = Self::default();
                set.fill_unseen(elements);
                set
            }
        }

        impl<T, const N: usize> From<[T; N]> for $Set<T> where Self: FromIterator<T> {
            fn from(elements: [T; N]) -> Self {
                Self::from_iter(elements)
            }
        }

        impl<T, S> Extend<T> for $Set<T, S> where $($update)* {
            fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
                self.fill_unseen(elements);
            }
        }

        /// Extends a set through a shared reference.
        impl<T, S> Extend<T> for &$Set<T, S> where $($update)* {
            fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
                let elements = elements.into_iter();
                self.map.expect(elements.size_hint().0);
                for element in elements {
                    self.pin().insert(element);
                }
            }
        }

        impl<'a, T: Copy, S> Extend<&'a T> for $Set<T, S> where $($update)* {
            fn extend<I: IntoIterator<Item = &'a T>>(&mut self, elements: I) {
                self.fill_unseen(elements.into_iter().copied());
            }
        }

        #[doc = concat!("See the implementation for [`", stringify!($Map), "`].")]
        impl<T: Clone, S: Clone> Clone for $Set<T, S> where $($update)* {
            fn clone(&self) -> Self {
                Self::of(self.map.clone())
            }
        }

        #[doc = concat!("See the implementation for [`", stringify!($Map), "`].")]
        impl<T: Hash + Eq, S: BuildHasher> PartialEq for $Set<T, S> {
            fn eq(&self, other: &Self) -> bool {
                self.map == other.map
            }
        }

        impl<T: Hash + Eq, S: BuildHasher> Eq for $Set<T, S> {}

        #[doc = concat!("Moves the elements out; see the implementation for [`", stringify!($Map), "`].")]
        impl<T, S> IntoIterator for $Set<T, S> {
            type Item = T;
            type IntoIter = std::iter::Map<IntoIter<T, (), S>, fn((T, ())) -> T>;

            fn into_iter(self) -> Self::IntoIter {
                self.map.into_iter().map(|(element, ())| element)
            }
        }
    };
}

pub(crate) use collect;
