//! The file of users.
//!
//! ```text
//! file   = (user | tenant | empty line)*
//! user   = NAME:PASSWORD
//! tenant = [tenant NAME memory=SIZE prefix=KEYS]
//! ```
//!
//! The lines of users are memcached's. A name ends at the first colon, and a password at the end of
//! the line. Users after the line of a tenant belong to it, those before the first one to none.
//! SIZE is a number with the suffix `k`, `m` or `g`, or a share of `-m` such as `25%`. KEYS is what
//! all keys of the tenant begin with. `prefix` may be missing, and `memory` may not.
//!
//! So each of memcached's files means what it means there, unless the name of a user begins with
//! `[tenant ` and a password ends with `]`.

use std::collections::HashSet;
use std::io;

/// The most tenants of a file. It bounds what they cost besides their items, and the number of
/// metrics.
pub(crate) const MAX_TENANTS: usize = 32;

/// The longest name of a tenant.
pub(super) const MAX_NAME: usize = 32;

/// The longest prefix: half of the longest key.
pub(super) const MAX_PREFIX: usize = relativist_store::MAX_KEY / 2;

pub(super) const OPENING: &[u8] = b"[tenant ";

/// The users and tenants of a file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct UserFile<'t> {
    pub(super) users: Vec<UserLine<'t>>,
    pub(super) tenants: Vec<TenantLine>,
}

/// A user.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct UserLine<'t> {
    pub(super) name: &'t [u8],
    pub(super) password: &'t [u8],
    /// The tenant's place in the file.
    pub(super) tenant: Option<u32>,
}

/// A tenant.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TenantLine {
    pub(crate) name: String,
    pub(crate) memory: Memory,
    /// What all of its keys begin with.
    pub(crate) prefix: Vec<u8>,
}

/// The memory of a tenant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Memory {
    Bytes(usize),
    /// A share of `-m`, from 1 to 100.
    Percent(u8),
}

impl Memory {
    /// The bytes, if `-m` has `whole`.
    pub(crate) fn of(self, whole: usize) -> usize {
        match self {
            Memory::Bytes(bytes) => bytes,
            Memory::Percent(percent) => (whole as u128 * u128::from(percent) / 100) as usize,
        }
    }

    /// Parses a size or a share.
    fn parse(word: &str) -> Option<Memory> {
        let number = |digits: &str| -> Option<usize> {
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
        };
        if let Some(digits) = word.strip_suffix('%') {
            return number(digits)
                .filter(|percent| (1..=100).contains(percent))
                .map(|percent| Memory::Percent(percent as u8));
        }
        let units = [('k', 1 << 10), ('m', 1 << 20), ('g', 1 << 30)];
        let (digits, unit) = units.iter().find_map(|&(letter, unit)| {
            Some((word.strip_suffix(letter).or_else(|| word.strip_suffix(letter.to_ascii_uppercase()))?, unit))
        })?;
        number(digits)?.checked_mul(unit).filter(|bytes| *bytes > 0).map(Memory::Bytes)
    }
}

impl<'t> UserFile<'t> {
    /// Parses a file. At most `most` users may belong to each tenant, and as many to none.
    ///
    /// # Errors
    /// What is wrong, and in which line. The message has no part of a line that may be a password.
    pub(super) fn parse(text: &'t [u8], most: usize) -> io::Result<UserFile<'t>> {
        let (mut file, mut count) = (UserFile::default(), 0);
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let at = |problem: String| bad(format!("line {number}: {problem}"));
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            if let Some(words) = line.strip_prefix(OPENING).and_then(|line| line.strip_suffix(b"]")) {
                let tenant = TenantLine::parse(words).map_err(at)?;
                if file.tenants.iter().any(|other| other.name == tenant.name) {
                    return Err(at(format!("tenant {} is there twice", tenant.name)));
                }
                if file.tenants.len() == MAX_TENANTS {
                    return Err(at(format!("there are more than {MAX_TENANTS} tenants")));
                }
                file.tenants.push(tenant);
                count = 0;
                continue;
            }
            let colon = line.iter().position(|byte| *byte == b':');
            let colon = colon.ok_or_else(|| bad(format!("line {number} has no colon")))?;
            if count == most {
                return Err(at(format!("there are more than {most} users")));
            }
            count += 1;
            let tenant = (file.tenants.len() as u32).checked_sub(1);
            file.users.push(UserLine { name: &line[..colon], password: &line[colon + 1..], tenant });
        }
        file.check()
    }

    fn check(self) -> io::Result<UserFile<'t>> {
        if self.users.is_empty() {
            return Err(bad("there is no user".into()));
        }
        let mut logins = HashSet::new();
        let are_distinct = self.users.iter().all(|user| logins.insert((user.name, user.password)));
        if !self.tenants.is_empty() && !are_distinct {
            return Err(bad("two lines have the same user and password, so a login could mean two tenants".into()));
        }
        Ok(self)
    }
}

impl TenantLine {
    fn parse(words: &[u8]) -> Result<TenantLine, String> {
        let words = str::from_utf8(words).map_err(|_| "the line of a tenant is not UTF-8")?;
        let mut words = words.split_ascii_whitespace();
        let name = words.next().filter(|name| is_name(name)).ok_or_else(|| {
            format!("a tenant needs a name of at most {MAX_NAME} letters, digits, and the characters - _ .")
        })?;
        let (mut memory, mut prefix) = (None, None);
        for word in words {
            let (is_new, is_right) = match word.split_once('=') {
                Some(("memory", size)) => {
                    let size = Memory::parse(size);
                    (size.is_none() || std::mem::replace(&mut memory, size).is_none(), size.is_some())
                }
                Some(("prefix", keys)) => {
                    let is_right = (1..=MAX_PREFIX).contains(&keys.len()) && !keys.contains(char::is_control);
                    (prefix.replace(keys.as_bytes().to_vec()).is_none(), is_right)
                }
                _ => return Err(format!("tenant {name} has the unknown word {word:?}; there are memory= and prefix=")),
            };
            if !is_right {
                return Err(format!(
                    "tenant {name} has a wrong {word:?}; examples are memory=512m, memory=25%, and prefix={name}:"
                ));
            }
            if !is_new {
                return Err(format!("tenant {name} has a word twice: {word:?}"));
            }
        }
        let memory = memory.ok_or_else(|| format!("tenant {name} needs memory=, as in memory=512m or memory=25%"))?;
        Ok(TenantLine { name: name.into(), memory, prefix: prefix.unwrap_or_default() })
    }
}

/// Names are shown in logs, metrics and files.
fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn bad(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
