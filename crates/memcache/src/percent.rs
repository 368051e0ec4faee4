//! Percent-encoding of keys in log lines and dumps. Letters, digits and `-._~` are not encoded.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_encode};

const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns `key` in the form used in log lines and dumps: percent-encoded, except letters, digits
/// and `-._~`.
///
/// ```
/// assert_eq!(relativist_memcache::encode_percent(b"a/b\xff~").to_string(), "a%2Fb%FF~");
/// ```
pub fn encode_percent(key: &[u8]) -> PercentEncode<'_> {
    percent_encode(key, ENCODED)
}
