//! Guesses the key of a request that is not yet decoded, so that its item can be prefetched.

use crate::words::MAX_KEY;
use crate::{Protocol, binary};

/// The number of bytes to search for the end of a command's name. No command with a key has a
/// longer name.
const MAX_NAME: usize = 12;

/// Guesses the key of the first command in `input`, so that the caller can prefetch its item. The
/// bytes returned may not be a key, and a command that has not arrived completely may yield none.
/// The time is proportional to the length of the name and the key.
///
/// ```
/// use relativist_memcache::peek_key;
///
/// assert_eq!(peek_key(b"get apple\r\nget pear\r\n"), Some(&b"apple"[..]));
/// assert_eq!(peek_key(b"set apple 0 0 5\r\ngreen\r\n"), Some(&b"apple"[..]));
/// assert_eq!(peek_key(b"version\r\n"), None);
/// ```
#[must_use]
pub fn peek_key(input: &[u8]) -> Option<&[u8]> {
    if Protocol::of_first_byte(*input.first()?) == Protocol::Binary {
        let header = input.first_chunk::<{ binary::HEADER }>()?;
        let start = header.len() + usize::from(header[4]);
        return input.get(start..)?.get(..usize::from(u16::from_be_bytes([header[2], header[3]])));
    }
    let name = memchr::memchr(b' ', &input[..input.len().min(MAX_NAME)])?;
    let rest = &input[name + 1..];
    let end = memchr::memchr2(b' ', b'\r', &rest[..rest.len().min(MAX_KEY + 1)])?;
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_protocols_are_found() {
        let mut binary = vec![0x80, 0x01, 0, 5, 8, 0, 0, 0];
        binary.resize(24 + 8, 0);
        binary.extend_from_slice(b"applegreen");
        let cases: [(&[u8], Option<&[u8]>); 8] = [
            (b"", None),
            (b"get apple\r\n", Some(b"apple")),
            (b"gets apple pear\r\n", Some(b"apple")),
            (b"mg apple v\r\n", Some(b"apple")),
            (b"get appl", None),
            (b"noop\r\n", None),
            (&binary, Some(b"apple")),
            (&binary[..34], None),
        ];
        for (input, key) in cases {
            assert_eq!(peek_key(input), key, "{}", input.escape_ascii());
        }
        assert_eq!(peek_key(&[b"get ", &[b'k'; 300][..], b"\r\n"].concat()), None);
    }
}
