//! The state of a connection that all threads may read.

use super::tenant::Tenant;
use crate::security::auth::{Credentials, Users};
use slab::Slab;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How a client is connected.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Transport {
    /// A TCP connection.
    Tcp {
        /// The client's address.
        peer: SocketAddr,
        /// The server's address.
        local: SocketAddr,
    },
    /// A connection to the Unix socket at this path.
    Unix(Arc<str>),
    /// Datagrams from this address.
    Udp(SocketAddr),
}

impl Transport {
    /// Its name in log lines.
    pub fn name(&self) -> &'static str {
        match self {
            Transport::Tcp { .. } => "tcp",
            Transport::Unix(_) => "local",
            Transport::Udp(_) => "udp",
        }
    }

    /// The listening address, as shown by `stats conns`.
    pub fn listener(&self) -> String {
        match self {
            Transport::Tcp { local, .. } => format!("tcp:{local}"),
            Transport::Unix(path) => format!("unix:{path}"),
            Transport::Udp(_) => "udp".into(),
        }
    }

    /// The client's address, unless it is on this machine and came by a Unix socket.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Transport::Tcp { peer, .. } | Transport::Udp(peer) => Some(peer.ip()),
            Transport::Unix(_) => None,
        }
    }

    /// The client's address in log lines.
    pub fn peer(&self) -> (String, u16) {
        match self {
            Transport::Tcp { peer, .. } | Transport::Udp(peer) => (peer.ip().to_string(), peer.port()),
            Transport::Unix(_) => ("null".into(), 0),
        }
    }
}

impl fmt::Display for Transport {
    /// The form shown by `stats conns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::Tcp { peer, .. } => write!(f, "tcp:{peer}"),
            Transport::Unix(path) => write!(f, "unix:{path}"),
            Transport::Udp(peer) => write!(f, "udp:{peer}"),
        }
    }
}

/// The state of a connection, as shown by `stats conns`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum ConnectionState {
    /// Waits for requests.
    Reading,
    /// Waits for the value of a store.
    Receiving,
    /// Waits for the end of a refused request.
    Skipping,
    /// Executes requests.
    Executing,
    /// Waits for the client to take the replies.
    Writing,
    /// Receives log lines.
    Watching,
}

/// The state of a connection that all threads may read.
#[derive(Debug)]
pub struct Session {
    /// The connection's number in statistics and log lines: its descriptor.
    pub id: i32,
    /// How the client is connected.
    pub transport: Transport,
    state: AtomicU8,
    heard: AtomicU32,
    failed_logins: AtomicU8,
    tenant: OnceLock<Arc<Tenant>>,
    /// The last right login.
    credentials: Mutex<Option<Credentials>>,
    is_revoked: AtomicBool,
}

impl Session {
    /// A session that begins at `now`.
    pub fn new(id: i32, transport: Transport, now: u32) -> Session {
        let state = AtomicU8::new(ConnectionState::Reading as u8);
        Session {
            id,
            transport,
            state,
            heard: AtomicU32::new(now),
            failed_logins: AtomicU8::new(0),
            tenant: OnceLock::new(),
            credentials: Mutex::default(),
            is_revoked: AtomicBool::new(false),
        }
    }

    /// The tenant of the user that has logged in.
    pub(crate) fn tenant(&self) -> Option<&Arc<Tenant>> {
        self.tenant.get()
    }

    /// The name of that tenant, or of the users without one.
    pub(super) fn tenant_name(&self) -> &str {
        self.tenant().map_or("", |tenant| &tenant.name)
    }

    /// Sets the tenant of the user that logs in. Returns false if it was another one.
    pub(super) fn enter(&self, tenant: Arc<Tenant>) -> bool {
        let entered = self.tenant.get_or_init(|| {
            // Relaxed: a count.
            tenant.connections.fetch_add(1, Ordering::Relaxed);
            Arc::clone(&tenant)
        });
        Arc::ptr_eq(entered, &tenant)
    }

    /// Notes with which credentials the client logs in. Returns false if it has logged in before as
    /// a user of another tenant, or of none: a connection belongs to one for good.
    pub(super) fn note_credentials(&self, credentials: &Credentials) -> bool {
        let mut last = lock(&self.credentials);
        let is_same = last.as_ref().is_none_or(|last| last.tenant == credentials.tenant);
        if is_same {
            *last = Some(credentials.clone());
        }
        is_same
    }

    /// Whether the client has logged in.
    pub(super) fn has_logged_in(&self) -> bool {
        lock(&self.credentials).is_some()
    }

    /// Whether the credentials of the client do not count any more, so that the connection must be
    /// closed.
    pub(crate) fn is_revoked(&self) -> bool {
        // Relaxed: no other data depends on it. The connection may execute requests that have
        // arrived.
        self.is_revoked.load(Ordering::Relaxed)
    }

    /// Publishes the state.
    pub fn set_state(&self, state: ConnectionState) {
        // Relaxed: no other data depends on it. Only the connection's thread writes it.
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// The name of the state.
    pub fn state(&self) -> &'static str {
        // Relaxed: as above.
        match self.state.load(Ordering::Relaxed) {
            state if state == ConnectionState::Reading as u8 => "conn_read",
            state if state == ConnectionState::Receiving as u8 => "conn_nread",
            state if state == ConnectionState::Skipping as u8 => "conn_swallow",
            state if state == ConnectionState::Executing as u8 => "conn_parse_cmd",
            state if state == ConnectionState::Writing as u8 => "conn_mwrite",
            _ => "conn_watch",
        }
    }

    /// Notes that the client was active at `now`.
    pub fn note_activity(&self, now: u32) {
        // Relaxed: no other data depends on it.
        self.heard.store(now, Ordering::Relaxed);
    }

    /// Counts a failed login. Returns the number of failed logins.
    pub(super) fn note_failed_login(&self) -> u8 {
        // Relaxed: no other data depends on it. Only the connection's thread counts.
        self.failed_logins.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Seconds from the client's last activity to `now`.
    pub fn silence(&self, now: u32) -> u32 {
        // Relaxed: no other data depends on it.
        now.saturating_sub(self.heard.load(Ordering::Relaxed))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(tenant) = self.tenant() {
            // Relaxed: a count.
            tenant.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// All connections and listening sockets, for `stats conns`.
#[derive(Debug, Default)]
pub struct SessionRegistry {
    sessions: Mutex<Slab<Arc<Session>>>,
    listeners: Mutex<Vec<ListeningSocket>>,
    revocations: AtomicU64,
}

/// A listening or UDP socket, as shown by `stats conns`.
#[derive(Clone, Debug)]
pub(super) struct ListeningSocket {
    /// Its descriptor.
    pub(super) id: i32,
    /// Its address, with the protocol in front.
    pub(super) address: String,
    /// Its state.
    pub(super) state: &'static str,
}

/// A session's place on the list.
#[derive(Debug)]
pub struct Listed {
    place: usize,
}

impl SessionRegistry {
    /// Puts a session on the list.
    pub fn enter(&self, session: Arc<Session>) -> Listed {
        Listed { place: lock(&self.sessions).insert(session) }
    }

    /// Takes a session off the list.
    pub fn leave(&self, listed: Listed) {
        lock(&self.sessions).remove(listed.place);
    }

    /// Puts a socket that accepts clients on the list.
    pub fn add_listener(&self, id: i32, address: String) {
        lock(&self.listeners).push(ListeningSocket { id, address, state: "conn_listening" });
    }

    /// Puts a socket that receives datagrams on the list.
    pub fn add_datagrams(&self, id: i32, address: SocketAddr) {
        lock(&self.listeners).push(ListeningSocket { id, address: format!("udp:{address}"), state: "conn_read" });
    }

    pub(super) fn listeners(&self) -> Vec<ListeningSocket> {
        lock(&self.listeners).clone()
    }

    /// Revokes the sessions whose users are not among `users` any more, or have another password or
    /// tenant.
    pub(crate) fn revoke(&self, users: &Users) {
        for session in self.sessions() {
            let is_admitted = lock(&session.credentials).as_ref().is_none_or(|it| users.admit(it));
            if !is_admitted {
                // Relaxed: see `is_revoked`.
                session.is_revoked.store(true, Ordering::Relaxed);
                // Relaxed: the workers look at `is_revoked`.
                self.revocations.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// How many sessions were revoked.
    pub(crate) fn revocations(&self) -> u64 {
        // Relaxed: as in `revoke`.
        self.revocations.load(Ordering::Relaxed)
    }

    /// The number of sessions on the list.
    pub(super) fn len(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// The sessions at `most` places of the list, from `first` on, and the next place if there are
    /// more. Other threads wait meanwhile.
    pub(super) fn some(&self, first: usize, most: usize) -> (Vec<Arc<Session>>, Option<usize>) {
        let (sessions, next) = (lock(&self.sessions), first + most);
        let some = (first..next).filter_map(|place| sessions.get(place).cloned()).collect();
        (some, (next < sessions.capacity()).then_some(next))
    }

    /// All sessions on the list.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        lock(&self.sessions).iter().map(|(_, session)| Arc::clone(session)).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
