//! Who may log in: a file of lines `user:password`.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use subtle::ConstantTimeEq;

/// Users in a file for `-Y`; more are an error, as in memcached.
const MOST_USERS: usize = 8;

/// The users of a file, which can be read again.
#[derive(Debug)]
pub struct Users {
    file: PathBuf,
    most: usize,
    users: RwLock<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl Users {
    /// The users of the text protocol.
    ///
    /// # Errors
    /// When the file cannot be read, or holds something else.
    pub fn for_text(file: PathBuf) -> io::Result<Users> {
        Users::from_file(file, MOST_USERS)
    }

    /// The users of the binary protocol.
    ///
    /// # Errors
    /// When the file cannot be read, or holds something else.
    pub fn for_sasl(file: PathBuf) -> io::Result<Users> {
        Users::from_file(file, usize::MAX)
    }

    fn from_file(file: PathBuf, most: usize) -> io::Result<Users> {
        let users = RwLock::new(parse(&fs::read(&file)?, most)?);
        Ok(Users { file, most, users })
    }

    /// Reads the file again. If that fails, the users stay as they are.
    ///
    /// # Errors
    /// As of creating it.
    pub fn reload(&self) -> io::Result<()> {
        let users = parse(&fs::read(&self.file)?, self.most)?;
        *self.users.write().unwrap_or_else(PoisonError::into_inner) = users;
        Ok(())
    }

    /// Whether this is a user, and this the password. How long it takes tells nothing of the password but its length.
    pub fn check(&self, user: &[u8], password: &[u8]) -> bool {
        let users = self.users.read().unwrap_or_else(PoisonError::into_inner);
        let is_right = |(name, secret): &&(Vec<u8>, Vec<u8>)| {
            bool::from(name.as_slice().ct_eq(user) & secret.as_slice().ct_eq(password))
        };
        // All are looked at, whoever it is.
        users.iter().filter(is_right).count() > 0
    }
}

/// The users in `text`. A name ends at the first colon; empty lines mean nothing.
fn parse(text: &[u8], most: usize) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let bad = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem);
    let mut users = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or_else(|| bad("a line has no colon"))?;
        if users.len() == most {
            return Err(bad("there are too many users"));
        }
        users.push((line[..colon].to_vec(), line[colon + 1..].to_vec()));
    }
    if users.is_empty() { Err(bad("there is no user")) } else { Ok(users) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_the_first_colon() {
        let users = parse(b"a:b\n\nother:x:y\r\nlast:", 8).unwrap();
        let text = |text: &str| text.as_bytes().to_vec();
        assert_eq!(users, [(text("a"), text("b")), (text("other"), text("x:y")), (text("last"), text(""))]);
    }

    #[test]
    fn bad_files_are_refused() {
        assert!(parse(b"", 8).is_err());
        assert!(parse(b"nobody\n", 8).is_err());
        assert!(parse(b"a:b\nc:d\n", 1).is_err());
    }
}
