//! Logins, in all protocols. A client that fails receives an error a few times, then its connection
//! is closed. After too many failed logins from one address, further logins from there are refused
//! for a while: the server closes the connection without checking the password. So guessing is
//! slow, but no thread waits, and no other client is delayed.

use super::{Executor, Session};
use crate::observability::log::Level;
use crate::security::auth::{Attempt, Credentials};
use relativist_memcache::reply;

/// Failures after which a connection is closed.
const MAX_FAILURES: u8 = 8;

/// The outcome of a login.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The login has succeeded.
    Welcome,
    /// The login failed. The client may try again.
    Failure,
    /// The login failed, and the connection will be closed.
    LastFailure,
    /// The login was refused because of earlier failures, and the connection will be closed.
    Refusal,
}

impl Executor<'_> {
    /// Answers a login of the text protocol.
    pub fn log_in(&self, session: &Session, user: &[u8], password: &[u8], out: &mut Vec<u8>) -> Verdict {
        self.counters.auth_cmds.bump();
        let verdict = self.verify(session, user, password);
        if verdict != Verdict::Welcome {
            self.counters.auth_errors.bump();
        }
        out.extend_from_slice(match verdict {
            Verdict::Welcome => reply::STORED,
            Verdict::Failure | Verdict::LastFailure => b"CLIENT_ERROR authentication failure\r\n",
            Verdict::Refusal => b"SERVER_ERROR too many failed logins, try again later\r\n",
        });
        verdict
    }

    pub(super) fn verify(&self, session: &Session, user: &[u8], password: &[u8]) -> Verdict {
        let users = self.shared.users.as_ref();
        let from = session.transport.address();
        let attempt = users.map_or(Attempt::Wrong, |users| users.attempt(from, user, password, self.now()));
        let log = &self.shared.log;
        if matches!(attempt, Attempt::Wrong | Attempt::LastWrong) {
            log.write(
                Level::Trouble,
                format_args!("a login of connection {} from {} failed", session.id, session.transport),
            );
        }
        if attempt == Attempt::LastWrong {
            let address = from.map_or("the Unix socket".into(), |address| address.to_string());
            log.write(
                Level::Trouble,
                format_args!("logins from {address} are refused for a while, because too many have failed"),
            );
        }
        match attempt {
            Attempt::Right(credentials) => self.enter(session, credentials),
            Attempt::Refused => Verdict::Refusal,
            Attempt::Wrong | Attempt::LastWrong if session.note_failed_login() < MAX_FAILURES => Verdict::Failure,
            Attempt::Wrong | Attempt::LastWrong => Verdict::LastFailure,
        }
    }

    /// Makes the session one of the user's tenant. Fails if the user was removed just now, or if
    /// the client has logged in before as a user of another tenant.
    fn enter(&self, session: &Session, credentials: Credentials) -> Verdict {
        let users = self.shared.users.as_ref();
        let is_first = !session.has_logged_in();
        let is_in = session.note_credentials(&credentials)
            // A reload that this check misses finds the credentials in the session.
            && users.is_some_and(|users| users.admit(&credentials))
            && credentials.tenant.is_none_or(|name| {
                self.shared.tenants.named(&name).is_some_and(|tenant| session.enter(tenant))
            });
        // Without tenants it was published before the login.
        if is_in && is_first && self.is_shared() {
            self.shared.publish_connection(session, "conn_new", "");
        }
        if is_in { Verdict::Welcome } else { Verdict::LastFailure }
    }
}
