//! Keys with their hashes.

use relativist_table::Hash;

/// Whether two keys are equal. Keys of 8 to 16 bytes are compared in place, by their first and last
/// 8 bytes, which may overlap. (With cases for more lengths, the functions that call this would be
/// too large to be inlined into lookups.)
#[inline(always)]
pub(crate) fn is_equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match a.len() {
        8..=16 => a.first_chunk::<8>() == b.first_chunk() && a.last_chunk::<8>() == b.last_chunk(),
        _ => a == b,
    }
}

/// A key, and its hash in the cache's table.
#[derive(Clone, Copy)]
pub(crate) struct HashedKey<'k> {
    pub(crate) bytes: &'k [u8],
    pub(crate) hash: Hash,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_equal_if_all_bytes_are() {
        for length in 0..=40 {
            let key: Vec<u8> = (0..length).collect();
            assert!(is_equal(&key, &key.clone()));
            assert!(!is_equal(&key, &[&key[..], b"x"].concat()));
            for at in 0..key.len() {
                let mut other = key.clone();
                other[at] ^= 0x80;
                assert!(!is_equal(&key, &other), "byte {at} of {length}");
            }
        }
    }
}
