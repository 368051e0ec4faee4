//! Logins of the binary protocol: SASL with the mechanism PLAIN.

use super::{Executor, Outcome, Session, Verdict};
use relativist_memcache::binary::{MAX_MECHANISM, Opcode, Request, Status, reply};

/// The mechanisms offered.
const MECHANISMS: &[u8] = b"PLAIN";

/// The state of a connection's login.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Login {
    /// The client has not logged in.
    #[default]
    None,
    /// The client has chosen the mechanism; the credentials follow.
    Started,
    /// The client has logged in.
    Done,
}

impl Executor<'_> {
    pub(super) fn sasl(
        &self,
        session: &Session,
        login: &mut Login,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Outcome<'static> {
        if !self.shared.options.enable_sasl {
            reply::failure(out, &request.header, Status::UnknownCommand);
            return Outcome::Done;
        }
        if request.opcode == Opcode::SaslList {
            reply::packet(out, &request.header, Status::Success, 0, [b"", b"", MECHANISMS]);
            return Outcome::Done;
        }
        if request.key.len() > MAX_MECHANISM {
            *login = Login::None;
            reply::failure(out, &request.header, Status::InvalidArguments);
            return Outcome::Done;
        }
        let is_step = request.opcode == Opcode::SaslStep;
        let is_in_order = !is_step || *login == Login::Started;
        let verdict = match (is_in_order && request.key == MECHANISMS, request.value) {
            (false, _) => Verdict::Failure,
            (true, b"") if !is_step => {
                *login = Login::Started;
                reply::packet(out, &request.header, Status::AuthContinue, 0, [b"", b"", b""]);
                return Outcome::Done;
            }
            (true, credentials) => self.check(session, credentials),
        };
        self.counters.auth_cmds.bump();
        if verdict == Verdict::Welcome {
            *login = Login::Done;
            reply::packet(out, &request.header, Status::Success, 0, [b"", b"", b"Authenticated"]);
            return Outcome::LoggedIn;
        }
        *login = Login::None;
        self.counters.auth_errors.bump();
        reply::failure(out, &request.header, Status::AuthFailure);
        if verdict == Verdict::Failure { Outcome::Done } else { Outcome::Quit }
    }

    /// Checks a PLAIN message (RFC 4616): the identity to act as, the user, and the password,
    /// separated by NUL. No user may act as another one.
    fn check(&self, session: &Session, credentials: &[u8]) -> Verdict {
        let mut parts = credentials.splitn(3, |byte| *byte == 0);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(acts_for), Some(user), Some(password)) if acts_for.is_empty() || acts_for == user => {
                self.verify(session, user, password)
            }
            _ => Verdict::Failure,
        }
    }
}
