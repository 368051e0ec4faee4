//! The commands a client can send, as decoded: every argument checked, byte strings borrowed from
//! the input.

use crate::meta::Meta;
use crate::words::{Keys, Words};

/// One decoded request.
///
/// Keys are 1 to [`MAX_KEY`](crate::MAX_KEY) bytes without space or LF. `exptime` is as the client
/// wrote it: 0 for never, up to 30 days relative, above that a unix time, negative for "already
/// expired". With `noreply` the server sends nothing back, whatever the outcome.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Command<'b> {
    /// `get`, or `gets` when `with_cas`: fetch items.
    Get {
        /// The keys in the order of the reply, duplicates included.
        keys: Keys<'b>,
        /// Whether the reply carries each item's unique.
        with_cas: bool,
    },
    /// `gat`, or `gats` when `with_cas`: fetch items and set their expiry.
    GetAndTouch {
        /// The new expiry of every item found.
        exptime: i32,
        /// The keys in the order of the reply, duplicates included.
        keys: Keys<'b>,
        /// Whether the reply carries each item's unique.
        with_cas: bool,
    },
    /// `set`, `add`, `replace`, `append`, `prepend` or `cas`: store a value.
    Store {
        /// On which condition, and how.
        verb: StoreVerb,
        /// The item's key.
        key: &'b [u8],
        /// Opaque to the server; to be ignored by append and prepend.
        flags: u32,
        /// The item's expiry; to be ignored by append and prepend.
        exptime: i32,
        /// The value, without its CR LF.
        value: &'b [u8],
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `incr` or `decr`: change a number stored as decimal text.
    Arithmetic {
        /// The item's key.
        key: &'b [u8],
        /// Up or down.
        op: Arithmetic,
        /// By how much.
        delta: u64,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `delete`: remove an item.
    Delete {
        /// The item's key.
        key: &'b [u8],
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `touch`: set an item's expiry.
    Touch {
        /// The item's key.
        key: &'b [u8],
        /// The new expiry.
        exptime: i32,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `flush_all`: drop everything stored before a moment.
    FlushAll {
        /// When that moment is; 0 or negative for now.
        exptime: i32,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `version`: return the server's version.
    Version,
    /// `verbosity`: set how much the server logs.
    Verbosity {
        /// The level asked for.
        level: u32,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `stats`: report statistics.
    Stats {
        /// The group of statistics and its arguments; empty for the general ones.
        args: Words<'b>,
    },
    /// `quit`: close the connection, without an answer.
    Quit,
    /// `mg`, `ms`, `md` or `ma`.
    Meta(Meta<'b>),
    /// `mn`: answer, so that the client knows what came before to be done.
    MetaNoop,
    /// `me`: return the metadata of an item.
    MetaDebug {
        /// The item's key.
        key: &'b [u8],
    },
    /// A command about the server as a whole.
    Admin {
        /// Which one.
        verb: Admin,
        /// Its arguments, unchecked.
        args: Words<'b>,
    },
}

/// Commands whose arguments the server checks: most tune parts that only some servers have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admin {
    /// `shutdown [graceful]`
    Shutdown,
    /// `cache_memlimit MEBIBYTES [noreply]`
    MemoryLimit,
    /// `slabs ...`
    Slabs,
    /// `lru ...`
    Lru,
    /// `lru_crawler ...`
    LruCrawler,
    /// `watch [WHAT...]`
    Watch,
    /// `refresh_certs`
    RefreshCerts,
    /// `debugtime p|r|SECONDS`, which a server offers to tests only
    DebugTime,
}

/// On which condition, and how, a value is stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreVerb {
    /// Always.
    Set,
    /// Only when the key is absent.
    Add,
    /// Only when the key is present.
    Replace,
    /// Behind the value of a present key.
    Append,
    /// In front of the value of a present key.
    Prepend,
    /// Only when the present item still has this unique.
    Cas(u64),
}

/// The direction of a [`Command::Arithmetic`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arithmetic {
    /// Add, modulo 2^64.
    Incr,
    /// Subtract, stopping at 0.
    Decr,
}
