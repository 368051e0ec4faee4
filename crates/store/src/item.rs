//! Items: their layout in memory, writing and reading them.

pub(crate) mod hit;
pub(crate) mod item_ref;
pub(crate) mod key;
pub(crate) mod layout;
pub(crate) mod new;
pub(crate) mod reserved;
pub(crate) mod status;
pub(crate) mod unlinked;
pub(crate) mod value_ref;
