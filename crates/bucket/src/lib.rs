//! The bucket table under the maps of `relativist`. **No stability is promised**: any version may
//! change or remove anything here. Use `relativist`.

#[cfg(test)]
use relativist_testing as _;

mod array;
mod contents;
pub mod design;
mod form;
mod iter;
mod relocate;
mod resize;
mod table;
mod update;
mod word;

pub use array::AllocError;
pub use contents::{EntriesMut, IntoEntries};
pub use form::{Boxed, Form, Holds, Inline, Private, Process, Readers};
pub use iter::{HashRange, Iter};
pub use relocate::Relocatable;
pub use table::{Different, GuardOf, Keys, Section, Table};
pub use word::{Hash, Slots, Tag, Word};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("relativist packs 48-bit pointers and 16 bits of a hash into one word: it needs a 64-bit target");
