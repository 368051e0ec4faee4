//! Logins of the binary protocol: SASL, of which the mechanism PLAIN is offered.

use super::Executor;
use crate::engine::Engine;
use relativist_memcache::binary::{MAX_MECHANISM, Opcode, Request, Status, reply};

/// The mechanisms offered.
const MECHANISMS: &[u8] = b"PLAIN";

/// How far a connection has come.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Login {
    /// Nobody has logged in.
    #[default]
    None,
    /// Somebody has chosen the mechanism, and the credentials are to follow.
    Started,
    /// Somebody has logged in.
    Done,
}

impl<E: Engine> Executor<'_, E> {
    pub(super) fn sasl(&self, login: &mut Login, request: &Request<'_>, out: &mut Vec<u8>) {
        if !self.service.options.enable_sasl {
            return reply::failure(out, &request.header, Status::UnknownCommand);
        }
        if request.opcode == Opcode::SaslList {
            return reply::packet(out, &request.header, Status::Success, 0, [b"", b"", MECHANISMS]);
        }
        if request.key.len() > MAX_MECHANISM {
            *login = Login::None;
            return reply::failure(out, &request.header, Status::InvalidArguments);
        }
        let is_step = request.opcode == Opcode::SaslStep;
        let is_in_order = !is_step || *login == Login::Started;
        *login = match (is_in_order && request.key == MECHANISMS, request.value) {
            (false, _) => Login::None,
            (true, b"") if !is_step => {
                *login = Login::Started;
                return reply::packet(out, &request.header, Status::AuthContinue, 0, [b"", b"", b""]);
            }
            (true, credentials) => self.check(credentials),
        };
        self.counters.auth_cmds.bump();
        if *login == Login::Done {
            return reply::packet(out, &request.header, Status::Success, 0, [b"", b"", b"Authenticated"]);
        }
        self.counters.auth_errors.bump();
        reply::failure(out, &request.header, Status::AuthFailure);
    }

    /// Checks what PLAIN sends (RFC 4616): whom to act for, who one is, and the password, with NUL in between. Nobody may act
    /// for somebody else.
    fn check(&self, credentials: &[u8]) -> Login {
        let mut parts = credentials.splitn(3, |byte| *byte == 0);
        let (Some(acts_for), Some(user), Some(password)) = (parts.next(), parts.next(), parts.next()) else {
            return Login::None;
        };
        let is_right = self.service.users.as_ref().is_some_and(|users| users.check(user, password));
        if is_right && (acts_for.is_empty() || acts_for == user) { Login::Done } else { Login::None }
    }
}
