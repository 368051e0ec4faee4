//! Execution: a decoded command goes in, the cache executes it, and the reply is appended to an
//! output buffer.
//!
//! Nothing here knows sockets. [`SharedState`] is shared by all threads: the time, the options, the
//! items and counters of each [`Tenant`]. Each thread executes through an [`Executor`], which has
//! the tenant of the client, and adds to the counters of that thread. The state of one connection
//! is its [`Session`].
//!
//! One command can ask for more output than a connection should hold (`get` with thousands of keys
//! of large values, a dump of all keys), or for more time than other connections should wait. Such
//! a command pauses when the output is full or the turn has ended ([`Executor::has_turn_ended`]),
//! and returns its position. The caller sends the output and resumes it.

mod admin;
mod binary;
mod classic;
mod dump;
mod executor;
mod login;
mod meta;
mod observe;
mod outcome;
mod permission;
mod prefixes;
mod record;
mod replies;
mod report;
mod sasl;
mod session;
mod shared;
mod statistics;
mod survey;
mod tenant;
mod text;
pub mod trace;
mod tuning;
mod watch;

pub use executor::{Executor, MAX_ROOM_AT_ONCE, Reservation, TURN};
pub use login::Verdict;
pub use outcome::{Dump, Fetch, Outcome};
pub use prefixes::Prefixes;
pub use replies::Replies;
pub use sasl::Login;
pub use session::{ConnectionState, Listed, Session, SessionRegistry, Transport};
pub use shared::SharedState;
pub use tenant::{Tenant, Tenants};
pub use trace::Extent;
pub use tuning::Tuning;
pub use watch::{Subscription, Topic, Watch};

/// The size class in log lines and dumps. This server has no size classes, so it reports the first
/// one for all items.
const CLASS: u8 = 1;
