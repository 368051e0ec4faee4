//! How an execution ended, and the commands that have paused.

use super::survey::{Surveys, Ticket};
use super::watch::Subscription;
use relativist_memcache::binary::Header;
use std::sync::Arc;

/// How an execution ended.
#[derive(Clone, Debug)]
pub enum Outcome<'b> {
    /// The command is done.
    Done,
    /// The output is full, or other connections must be served. Resume the fetch when the output
    /// has been sent.
    PausedFetch {
        /// What to do with the remaining keys.
        fetch: Fetch,
        /// The first remaining key, within the command line.
        next: &'b [u8],
    },
    /// A dump was paused. Resume it when the output has been sent.
    PausedDump(Box<Dump>),
    /// The client has logged in. Make a new executor for what follows.
    LoggedIn,
    /// The client wants the connection closed.
    Quit,
    /// The connection receives log lines from now on, and nothing else.
    Watching(Arc<Subscription>),
    /// The client wants the server to end.
    Shutdown,
}

/// What a fetch does with each key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fetch {
    /// The new expiry of the items found; none to leave it.
    pub(super) exptime: Option<i32>,
    /// Whether the reply has the CAS value.
    pub(super) with_cas: bool,
}

impl Fetch {
    pub(super) fn get(with_cas: bool) -> Fetch {
        Fetch { exptime: None, with_cas }
    }

    pub(super) fn get_and_touch(exptime: i32, with_cas: bool) -> Fetch {
        Fetch { exptime: Some(exptime), with_cas }
    }
}

/// A dump in progress.
#[derive(Clone, Debug)]
pub struct Dump {
    pub(super) format: Format,
    /// The next position in the table or list; none at the end.
    pub(super) cursor: Option<u64>,
    /// The request to reply to, if it came by the binary protocol, which has only the dumps of
    /// `stats`.
    pub(super) request: Option<Header>,
}

/// What a dump prints.
#[derive(Clone, Debug)]
pub(super) enum Format {
    /// The metadata of each item.
    Meta,
    /// An `mg` command for each item.
    Commands,
    /// Key, size and expiry of at most this many items.
    Cache { left: usize },
    /// The number of items of each size, from this survey.
    Sizes(Ticket),
    /// The fill levels of the table's buckets, from this survey.
    Table(Ticket),
    /// Where the memory goes, from this survey.
    Memory(Ticket),
    /// The states of the tenant's connections.
    Connections,
    /// The counts of each prefix, and the last prefix printed.
    Prefixes(Option<Box<[u8]>>),
}

impl Dump {
    pub(super) fn meta() -> Dump {
        Dump { format: Format::Meta, cursor: Some(0), request: None }
    }

    pub(super) fn commands() -> Dump {
        Dump { format: Format::Commands, cursor: Some(0), request: None }
    }

    pub(super) fn cache(limit: usize) -> Dump {
        Dump { format: Format::Cache { left: limit }, cursor: Some(0), request: None }
    }

    pub(super) fn sizes(surveys: &Surveys) -> Dump {
        Dump { format: Format::Sizes(surveys.sizes.ask()), cursor: Some(0), request: None }
    }

    pub(super) fn table(surveys: &Surveys) -> Dump {
        Dump { format: Format::Table(surveys.table.ask()), cursor: Some(0), request: None }
    }

    pub(super) fn memory(surveys: &Surveys) -> Dump {
        Dump { format: Format::Memory(surveys.memory.ask()), cursor: Some(0), request: None }
    }

    pub(super) fn connections() -> Dump {
        Dump { format: Format::Connections, cursor: Some(0), request: None }
    }

    pub(super) fn prefixes() -> Dump {
        Dump { format: Format::Prefixes(None), cursor: Some(0), request: None }
    }

    /// Makes this dump the reply to `request`, if there is one.
    pub(super) fn replying_to(self, request: Option<Header>) -> Dump {
        Dump { request, ..self }
    }

    /// Makes this the dump of a size class without items.
    pub(super) fn emptied(self) -> Dump {
        Dump { cursor: None, ..self }
    }
}
