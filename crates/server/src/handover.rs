//! Restarting without a stall: a running server hands its sockets and its items over to another
//! process, its successor.
//!
//! The server listens on a Unix socket (`--hand-over`), and the successor connects to it
//! (`--take-over`). Each side accepts only root and its own user. Then:
//!
//! ```text
//! successor                                server
//! header ------------------------------->
//!        <------------------------------- header, and its listening sockets (SCM_RIGHTS)
//! BEGIN  ------------------------------->
//!                                          executes no more requests, and accepts no connections
//!        <------------------------------- last CAS value of all caches u64, a snapshot
//! LOADED ------------------------------->
//!        <------------------------------- GO
//! serves                                   closes its connections, and ends
//!
//! header = magic (8 bytes) | version u32 | number of sockets u16 | how many are of systemd u16
//! ```
//!
//! Numbers are little-endian. The successor sends no sockets. The server sends those that systemd
//! has opened first: the successor uses them as its predecessor did, whatever its options say. Both
//! sides have the same version, or the hand-over ends with the headers. Snapshots have a
//! [format](crate::snapshot) with a version of its own.
//!
//! * No connection is refused: the listening sockets stay open all the time. Connections that come
//!   while no process accepts wait in the kernel's queue.
//! * No item is lost that was stored before: while the items are read, the
//!   [gate](crate::process::gate) stops all threads that execute requests. A request that was not
//!   executed gets no reply: its client finds the connection closed.
//! * Until the server has sent GO, it continues as if nothing had happened when the successor dies,
//!   fails, or is silent for longer than [`PATIENCE`](wire::PATIENCE), or after BEGIN than
//!   [`SHORT_PATIENCE`](wire::SHORT_PATIENCE). The time from BEGIN on is also limited as a whole,
//!   by [`PATIENCE_PER_GIB`](wire::PATIENCE_PER_GIB). Another successor replaces one that has sent
//!   no header. After GO the successor has all it needs. A successor that does not get GO ends.

mod offer;
mod take_over;
mod wire;

pub(crate) use offer::HandOver;
pub(crate) use take_over::Predecessor;

/// From the successor: it has done all that can fail, and wants the items.
const BEGIN: u8 = b'B';

/// From the successor: it has all items.
const LOADED: u8 = b'L';

/// From the server: the successor serves from now on.
const GO: u8 = b'G';

#[cfg(test)]
mod tests;
