//! Looking ahead of the decoders.

use crate::words::MAX_KEY;
use crate::{Protocol, binary};

/// The longest name of a command that is followed by a key, and some more.
const LONGEST_NAME: usize = 12;

/// The key that the first command in `input` probably is about, for who wants to bring near what it needs. A guess: what it finds
/// may be no key, and a command that has not arrived as a whole may have none. Takes time in proportion to name and key.
///
/// ```
/// use relativist_memcache::probable_key;
///
/// assert_eq!(probable_key(b"get apple\r\nget pear\r\n"), Some(&b"apple"[..]));
/// assert_eq!(probable_key(b"set apple 0 0 5\r\ngreen\r\n"), Some(&b"apple"[..]));
/// assert_eq!(probable_key(b"version\r\n"), None);
/// ```
#[must_use]
pub fn probable_key(input: &[u8]) -> Option<&[u8]> {
    if Protocol::of_first_byte(*input.first()?) == Protocol::Binary {
        let header = input.first_chunk::<{ binary::HEADER }>()?;
        let start = header.len() + usize::from(header[4]);
        return input.get(start..)?.get(..usize::from(u16::from_be_bytes([header[2], header[3]])));
    }
    let name = memchr::memchr(b' ', &input[..input.len().min(LONGEST_NAME)])?;
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
            assert_eq!(probable_key(input), key, "{}", input.escape_ascii());
        }
        assert_eq!(probable_key(&[b"get ", &[b'k'; 300][..], b"\r\n"].concat()), None);
    }
}
