//! Items: a key, a value and their metadata, in one piece of a block's memory.
//!
//! An item is written while it is an [`UnlinkedItem`](unlinked::UnlinkedItem), owned by one thread.
//! Once in the table it is shared, as an [`ItemRef`](item_ref::ItemRef), and does not change,
//! except for its expiry and status, which are atomic. Readers copy values without a lock, so a new
//! value is always a new item. An item whose block is evicted may move: a copy with the same number
//! takes its place in the table, and readers are done with the old one before its memory is used
//! again.
//!
//! Each file imports only files above it:
//!
//! | File | Holds |
//! |---|---|
//! | `key` | a key with its hash |
//! | `layout` | where the parts of an item are |
//! | `status` | the word that lookups change: marks, visits, the time of the last access |
//! | `item_ref` | an item in the table: reading it, and freeing it |
//! | `large_value` | values that connections send and receive without a copy |
//! | `new` | the contents of a new item |
//! | `unlinked` | an item that is not in the table yet: writing and linking it |
//! | `hit` | the view of an item that commands have |

pub(crate) mod hit;
pub(crate) mod item_ref;
pub(crate) mod key;
pub(crate) mod large_value;
pub(crate) mod layout;
pub(crate) mod new;
pub(crate) mod status;
pub(crate) mod unlinked;
