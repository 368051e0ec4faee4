//! Users that may log in: a file of lines `user:password`.
//!
//! Names and passwords are stored and compared as digests under a key of this process. So the time
//! of a comparison depends on the input and the number of users, but not on their names or
//! passwords, lengths included.

mod failures;

use failures::{Failures, Origin};
use sha2::{Digest, Sha256};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use subtle::{Choice, ConstantTimeEq};

/// Users in a file for `-Y`; more are an error, as in memcached.
const MAX_USERS: usize = 8;

/// The users of a file. They can be replaced by those of another one.
#[derive(Debug)]
pub struct Users {
    file: PathBuf,
    most: usize,
    key: [u8; 32],
    /// A [`digest`] for each.
    users: RwLock<Vec<[u8; 32]>>,
    failures: Failures,
}

/// Users that were read and do not count yet: a digest for each.
#[derive(Debug)]
pub struct NewUsers(Vec<[u8; 32]>);

/// The outcome of a login.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Attempt {
    /// The user exists and has this password.
    Right,
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
        let users = RwLock::new(read(&file, most, &key)?);
        Ok(Users { file, most, key, users, failures: Failures::default() })
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Reads a file that is to replace the users.
    ///
    /// # Errors
    /// As [`Users::for_text`].
    pub fn read(&self, file: &Path) -> io::Result<NewUsers> {
        read(file, self.most, &self.key).map(NewUsers)
    }

    /// Replaces the users. Connections that have logged in stay logged in.
    pub fn replace(&self, new: NewUsers) {
        *self.users.write().unwrap_or_else(PoisonError::into_inner) = new.0;
    }

    /// Checks a login at the second `now` from the address `from`; none means from this machine.
    /// Never waits, however many failures came before.
    pub fn attempt(&self, from: Option<IpAddr>, user: &[u8], password: &[u8], now: u32) -> Attempt {
        let origin = from.map_or(Origin::LOCAL, Origin::of);
        if self.failures.are_many(origin, now) {
            Attempt::Refused
        } else if self.check(user, password) {
            Attempt::Right
        } else if self.failures.note(origin, now) {
            Attempt::LastWrong
        } else {
            Attempt::Wrong
        }
    }

    /// Whether `user` exists and has this password.
    fn check(&self, user: &[u8], password: &[u8]) -> bool {
        let given = digest(&self.key, user, password);
        let users = self.users.read().unwrap_or_else(PoisonError::into_inner);
        // Compares all users, so that the time does not depend on which one matches.
        users.iter().fold(Choice::from(0), |is_right, digest| is_right | digest.ct_eq(&given)).into()
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

fn read(file: &Path, most: usize, key: &[u8; 32]) -> io::Result<Vec<[u8; 32]>> {
    Ok(parse(&fs::read(file)?, most)?.iter().map(|(user, password)| digest(key, user, password)).collect())
}

/// Parses the users in `text`. A name ends at the first colon. Empty lines are ignored.
fn parse(text: &[u8], most: usize) -> io::Result<Vec<(&[u8], &[u8])>> {
    let bad = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
    let mut users = Vec::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let colon =
            line.iter().position(|byte| *byte == b':').ok_or_else(|| bad(format!("line {number} has no colon")))?;
        if users.len() == most {
            return Err(bad(format!("line {number}: there are more than {most} users")));
        }
        users.push((&line[..colon], &line[colon + 1..]));
    }
    if users.is_empty() { Err(bad("there is no user".into())) } else { Ok(users) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn names_end_at_the_first_colon() {
        let users = parse(b"a:b\n\nother:x:y\r\nlast:", 8).unwrap();
        let expected: [(&[u8], &[u8]); 3] = [(b"a", b"b"), (b"other", b"x:y"), (b"last", b"")];
        assert_eq!(users, expected);
    }

    #[test]
    fn bad_files_are_refused() {
        assert!(parse(b"", 8).is_err());
        let problem = |text: &[u8]| parse(text, 1).unwrap_err().to_string();
        assert_eq!(problem(b"\nnobody\n"), "line 2 has no colon");
        assert_eq!(problem(b"a:b\nc:d\n"), "line 2: there are more than 1 users");
    }

    #[test]
    fn a_login_needs_the_whole_password() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"ab:cd\nother:\n").unwrap();
        let users = Users::for_text(file.path().into()).unwrap();
        assert!(users.check(b"ab", b"cd") && users.check(b"other", b""));
        let wrong: [(&[u8], &[u8]); 7] = [
            (b"ab", b"c"),
            (b"ab", b"cdd"),
            (b"a", b"bcd"),
            (b"abc", b"d"),
            (b"", b"abcd"),
            (b"other", b"cd"),
            (b"", b""),
        ];
        assert!(wrong.iter().all(|(user, password)| !users.check(user, password)));
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
        assert_eq!(users.attempt(None, b"a", b"b", 1000), Attempt::Right);
        assert_eq!(users.attempt(here, b"a", b"b", 1010), Attempt::Right);
    }
}
