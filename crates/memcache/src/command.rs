//! The commands a client can send, decoded: every argument is checked, and byte strings are
//! borrowed from the input.

use crate::meta::Meta;
use crate::words::{Keys, Words};

/// One decoded request.
///
/// Keys are 1 to [`MAX_KEY`](crate::MAX_KEY) bytes without space or LF. `exptime` is what the
/// client sent: 0 means never, a number of up to 30 days is relative to now, a larger number is a
/// unix time, and a negative number means "already expired". With `noreply` the server sends no
/// reply, whatever the outcome.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Command<'b> {
    /// `get`, or `gets` when `with_cas`: fetch items.
    Get {
        /// The keys to look up, in the order of the reply, with duplicates.
        keys: Keys<'b>,
        /// Whether the reply includes each item's CAS value.
        with_cas: bool,
    },
    /// `gat`, or `gats` when `with_cas`: fetch items and set their expiry.
    GetAndTouch {
        /// The new expiry of every item that is found.
        exptime: i32,
        /// The keys to look up, in the order of the reply, with duplicates.
        keys: Keys<'b>,
        /// Whether the reply includes each item's CAS value.
        with_cas: bool,
    },
    /// `set`, `add`, `replace`, `append`, `prepend` or `cas`: store a value.
    Store {
        /// The condition under which the value is stored, and how.
        verb: StoreVerb,
        /// The item's key.
        key: &'b [u8],
        /// The client's flags, opaque to the server. Append and prepend ignore them.
        flags: u32,
        /// The item's expiry. Append and prepend ignore it.
        exptime: i32,
        /// The value, without its CR LF.
        value: &'b [u8],
        /// Whether the client wants no reply.
        noreply: bool,
    },
    /// `incr` or `decr`: change a number stored as decimal text.
    Arithmetic {
        /// The item's key.
        key: &'b [u8],
        /// Whether to add or to subtract.
        op: Arithmetic,
        /// The number to add or subtract.
        delta: u64,
        /// Whether the client wants no reply.
        noreply: bool,
    },
    /// `delete`: remove an item.
    Delete {
        /// The item's key.
        key: &'b [u8],
        /// Whether the client wants no reply.
        noreply: bool,
    },
    /// `touch`: set an item's expiry.
    Touch {
        /// The item's key.
        key: &'b [u8],
        /// The new expiry.
        exptime: i32,
        /// Whether the client wants no reply.
        noreply: bool,
    },
    /// `flush_all`: drop all items stored before a point in time.
    FlushAll {
        /// The point in time; 0 or a negative number means now.
        exptime: i32,
        /// Whether the client wants no reply.
        noreply: bool,
    },
    /// `version`: report the server's version.
    Version,
    /// `verbosity`: set how much the server logs.
    Verbosity {
        /// The requested level.
        level: u32,
        /// Whether the client wants no reply.
        noreply: bool,
    },
    /// `stats`: report statistics.
    Stats {
        /// The group of statistics and its arguments; empty for the general statistics.
        args: Words<'b>,
    },
    /// `quit`: close the connection without a reply.
    Quit,
    /// `mg`, `ms`, `md` or `ma`.
    Meta(Meta<'b>),
    /// `mn`: reply, which shows the client that all earlier requests were executed.
    MetaNoop,
    /// `me`: report an item's metadata.
    MetaDebug {
        /// The item's key.
        key: &'b [u8],
    },
    /// A command for the server as a whole.
    Admin {
        /// The command.
        verb: Admin,
        /// The words after the command's name, unchecked.
        args: Words<'b>,
    },
}

/// Commands whose arguments the server parses, because most of them configure features that only
/// some servers have.
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
    /// `config get cluster`, which clients of Amazon ElastiCache send to find all nodes
    Config,
    /// `debugtime p|r|SECONDS`, which a server offers only in tests
    DebugTime,
}

/// The condition under which a value is stored, and how.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreVerb {
    /// Store always.
    Set,
    /// Store only if the key is absent.
    Add,
    /// Store only if the key is present.
    Replace,
    /// Append to the value, if the key is present.
    Append,
    /// Prepend to the value, if the key is present.
    Prepend,
    /// Store only if the item still has this CAS value.
    Cas(u64),
}

/// The direction of a [`Command::Arithmetic`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arithmetic {
    /// Add, modulo 2^64.
    Incr,
    /// Subtract; the result is at least 0.
    Decr,
}
