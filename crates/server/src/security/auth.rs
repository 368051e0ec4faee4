//! Users that may log in: those of a [`file`].
//!
//! Names and passwords are stored and compared as digests under a key of this process. So the time
//! of a comparison depends on the input and the number of users, but not on their names or
//! passwords, lengths included.

mod failures;
mod file;

use failures::{Failures, Origin};
pub(crate) use file::TenantLine;
use file::UserFile;
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// Users of a tenant in a file for `-Y`, and users without one; more are an error, as in memcached.
const MAX_USERS: usize = 8;

/// The users of a file. They can be replaced by those of another one.
#[derive(Debug)]
pub struct Users {
    file: PathBuf,
    most: usize,
    key: [u8; 32],
    users: RwLock<Arc<UserList>>,
    failures: Failures,
}

/// The users and tenants of a file.
#[derive(Debug)]
pub(crate) struct UserList {
    /// A [`digest`] for each user, and the place of the user's tenant.
    users: Vec<([u8; 32], Option<u32>)>,
    tenants: Vec<TenantLine>,
}

impl UserList {
    /// The tenants, in the order of the file.
    pub(crate) fn tenants(&self) -> &[TenantLine] {
        &self.tenants
    }

    /// Whether a login with this digest is right, for a user of the tenant with this name.
    fn admits(&self, given: &[u8; 32], tenant: Option<&str>) -> bool {
        let tenant_of = |place: &Option<u32>| place.map(|place| &*self.tenants[place as usize].name);
        let mut users = self.users.iter().filter(|(_, place)| tenant_of(place) == tenant);
        users.any(|(digest, _)| digest.ct_eq(given).into())
    }

    /// Whether there are users without a tenant.
    pub(crate) fn has_common(&self) -> bool {
        self.users.iter().any(|(_, tenant)| tenant.is_none())
    }
}

/// A user and a password that are right.
#[derive(Clone, Eq, PartialEq)]
pub struct Credentials {
    digest: [u8; 32],
    /// The name of the user's tenant.
    pub(crate) tenant: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// The outcome of a login.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Attempt {
    /// The user exists and has this password.
    Right(Credentials),
    /// The user does not exist or has another password.
    Wrong,
    /// Like `Wrong`, and one failure too many: further logins from this address are refused for a
    /// while.
    LastWrong,
    /// The password was not checked, because too many logins from this address have failed.
    Refused,
}

impl Users {
    /// The users of the text protocol.
    ///
    /// # Errors
    /// When the file cannot be read, or is invalid.
    pub fn for_text(file: PathBuf) -> io::Result<Users> {
        Users::from_file(file, MAX_USERS)
    }

    /// The users of the binary protocol.
    ///
    /// # Errors
    /// When the file cannot be read, or is invalid.
    pub fn for_sasl(file: PathBuf) -> io::Result<Users> {
        Users::from_file(file, usize::MAX)
    }

    fn from_file(file: PathBuf, most: usize) -> io::Result<Users> {
        let key = random_key();
        let users = RwLock::new(Arc::new(read(&file, most, &key)?));
        Ok(Users { file, most, key, users, failures: Failures::default() })
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The users that may log in.
    pub(crate) fn list(&self) -> Arc<UserList> {
        Arc::clone(&self.users.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads a file that is to replace the users.
    ///
    /// # Errors
    /// As [`Users::for_text`].
    pub(crate) fn read(&self, file: &Path) -> io::Result<UserList> {
        read(file, self.most, &self.key)
    }

    /// Whether credentials that were right still are.
    pub(crate) fn admit(&self, credentials: &Credentials) -> bool {
        self.list().admits(&credentials.digest, credentials.tenant.as_deref())
    }

    /// Replaces the users.
    pub(crate) fn replace(&self, new: UserList) {
        *self.users.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
    }

    /// Checks a login at the second `now` from the address `from`; none means from this machine.
    /// Never waits, however many failures came before.
    pub fn attempt(&self, from: Option<IpAddr>, user: &[u8], password: &[u8], now: u32) -> Attempt {
        let origin = from.map_or(Origin::LOCAL, Origin::of);
        if self.failures.are_many(origin, now) {
            Attempt::Refused
        } else if let Some(credentials) = self.check(user, password) {
            Attempt::Right(credentials)
        } else if self.failures.note(origin, now) {
            Attempt::LastWrong
        } else {
            Attempt::Wrong
        }
    }

    /// The credentials, if `user` exists and has this password.
    fn check(&self, user: &[u8], password: &[u8]) -> Option<Credentials> {
        let given = digest(&self.key, user, password);
        let list = self.list();
        // Compares all users, so that the time does not depend on which one matches.
        let mut place = u32::MAX;
        for (number, (digest, _)) in (0..).zip(&list.users) {
            place.conditional_assign(&number, digest.ct_eq(&given));
        }
        let (_, tenant) = list.users.get(place as usize)?;
        Some(Credentials { digest: given, tenant: tenant.map(|tenant| list.tenants[tenant as usize].name.clone()) })
    }
}

/// Returns a key for digests, different in each process: digests found in a core file cannot have
/// been precomputed.
fn random_key() -> [u8; 32] {
    let random = RandomState::new();
    let mut key = [0; 32];
    key.chunks_mut(8).zip(0_u64..).for_each(|(bytes, n)| bytes.copy_from_slice(&random.hash_one(n).to_ne_bytes()));
    key
}

/// The digest of a user and the password.
fn digest(key: &[u8; 32], user: &[u8], password: &[u8]) -> [u8; 32] {
    let hash = Sha256::new().chain_update(key).chain_update((user.len() as u64).to_ne_bytes());
    hash.chain_update(user).chain_update(password).finalize().into()
}

fn read(file: &Path, most: usize, key: &[u8; 32]) -> io::Result<UserList> {
    let text = fs::read(file)?;
    let UserFile { users, tenants } = UserFile::parse(&text, most)?;
    let users = users.iter().map(|user| (digest(key, user.name, user.password), user.tenant)).collect();
    Ok(UserList { users, tenants })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_login_needs_the_whole_password() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"ab:cd\nother:\n").unwrap();
        let users = Users::for_text(file.path().into()).unwrap();
        assert!(users.check(b"ab", b"cd").is_some() && users.check(b"other", b"").is_some());
        let wrong: [(&[u8], &[u8]); 7] = [
            (b"ab", b"c"),
            (b"ab", b"cdd"),
            (b"a", b"bcd"),
            (b"abc", b"d"),
            (b"", b"abcd"),
            (b"other", b"cd"),
            (b"", b""),
        ];
        assert!(wrong.iter().all(|(user, password)| users.check(user, password).is_none()));
    }

    #[test]
    fn guessing_clients_are_refused_for_a_while_and_others_are_not() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"a:b\n").unwrap();
        let users = Users::for_text(file.path().into()).unwrap();
        let here = Some("192.0.2.1".parse().unwrap());
        let mut guesses =
            (0..100).map(|_| users.attempt(here, b"a", b"c", 1000)).skip_while(|attempt| *attempt == Attempt::Wrong);
        assert_eq!(guesses.next(), Some(Attempt::LastWrong));
        assert!(guesses.all(|attempt| attempt == Attempt::Refused));
        assert_eq!(users.attempt(here, b"a", b"b", 1000), Attempt::Refused, "though it is right");
        let is_right = |attempt| matches!(attempt, Attempt::Right(_));
        assert!(is_right(users.attempt(None, b"a", b"b", 1000)) && is_right(users.attempt(here, b"a", b"b", 1010)));
    }

    #[test]
    fn credentials_count_as_long_as_the_file_has_them() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"a:b\n[tenant t memory=1g]\nc:d\n").unwrap();
        let users = Users::for_text(file.path().into()).unwrap();
        let (free, member) = (users.check(b"a", b"b").unwrap(), users.check(b"c", b"d").unwrap());
        assert_eq!([&free, &member].map(|it| it.tenant.as_deref()), [None, Some("t")]);
        for (text, are_admitted) in [
            ("a:b\n[tenant t memory=2g]\nc:d\ne:f", [true, true]),
            ("a:x\n[tenant t memory=1g]\nc:d", [false, true]),
            ("[tenant t memory=1g]\na:b\nc:d", [false, true]),
            ("a:b\n[tenant u memory=1g]\nc:d", [true, false]),
            ("a:b\nc:d", [true, false]),
        ] {
            fs::write(file.path(), text).unwrap();
            users.replace(users.read(file.path()).unwrap());
            assert_eq!([&free, &member].map(|it| users.admit(it)), are_admitted, "{text}");
        }
    }
}
