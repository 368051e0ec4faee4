//! What a client may do on a server with tenants.

use super::Executor;
use relativist_memcache::Command;
use relativist_memcache::binary::{Opcode, Request};
use std::io::Write as _;

/// The reply to a command that would change the server of other tenants, too.
pub(super) const NOT_WITH_TENANTS: &[u8] = b"CLIENT_ERROR not allowed on a server with tenants\r\n";

impl Executor<'_> {
    /// Whether the tenant may use this key.
    pub(super) fn allows(&self, key: &[u8]) -> bool {
        key.starts_with(&self.tenant.key_prefix)
    }

    /// Whether the tenant may not use all keys.
    pub fn has_key_prefix(&self) -> bool {
        self.has_key_prefix
    }

    /// Refuses a command with a key that the tenant may not use. Returns whether it has one. Meta
    /// commands with flags are not checked here, because their keys may be encoded.
    #[cold]
    pub(super) fn refuse_command(&self, command: &Command<'_>, out: &mut Vec<u8>) -> bool {
        let (is_allowed, noreply) = match command {
            Command::Get { keys, .. } | Command::GetAndTouch { keys, .. } => {
                (keys.clone().all(|key| self.allows(key)), false)
            }
            Command::Store { key, noreply, .. }
            | Command::Arithmetic { key, noreply, .. }
            | Command::Delete { key, noreply }
            | Command::Touch { key, noreply, .. } => (self.allows(key), *noreply),
            Command::MetaDebug { key } => (self.allows(key), false),
            _ => (true, false),
        };
        if !is_allowed && !noreply {
            self.refuse_key(out);
        }
        !is_allowed
    }

    /// Whether the tenant may use the key of a request.
    #[cold]
    pub(super) fn permits_request(&self, request: &Request<'_>) -> bool {
        let has_other_key =
            matches!(request.opcode, Opcode::Stat | Opcode::SaslList | Opcode::SaslAuth | Opcode::SaslStep);
        request.key.is_empty() || has_other_key || self.allows(request.key)
    }

    /// Appends the reply to a command with a key that the tenant may not use.
    #[cold]
    pub(super) fn refuse_key(&self, out: &mut Vec<u8>) {
        let prefix = String::from_utf8_lossy(&self.tenant.key_prefix);
        write!(out, "CLIENT_ERROR all keys of tenant {} begin with {prefix}\r\n", self.tenant.name)
            .expect("writing to a Vec does not fail");
    }

    /// Whether clients may not change the server, because tenants share it.
    pub(super) fn is_shared(&self) -> bool {
        !self.shared.tenants.is_empty()
    }
}
