//! Decimal numbers as the protocol writes them.
//!
//! The protocol has two grammars. Most arguments are *strict*: a bounded number of digits, after a
//! minus sign where negative numbers make sense, and nothing else. The flags and the expiry of the
//! classic storage commands are *lax*, like the numbers that C's `strtoll` accepts: blanks and a
//! sign may precede the digits, a NUL or a blank ends the number, and only the lower 32 bits are
//! kept. Clients rely on the lax grammar, for example when they send -1 as 4294967295.

/// The maximum number of characters of a strict 32-bit number.
const MAX_CHARS_32: usize = 11;
/// The maximum number of characters of a strict 64-bit number.
const MAX_CHARS_64: usize = 22;

/// Parses a strict unsigned 64-bit number: a delta or a CAS value.
pub fn unsigned_64(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > MAX_CHARS_64 {
        return None;
    }
    match leading_digits(word)? {
        (number, []) => Some(number),
        _ => None,
    }
}

/// Parses a strict signed 32-bit number: an expiry. A minus sign alone is zero.
pub fn signed_32(word: &[u8]) -> Option<i32> {
    if word.is_empty() || word.len() > MAX_CHARS_32 {
        return None;
    }
    let (negative, digits) = match word {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let (magnitude, []) = leading_digits(digits)? else {
        return None;
    };
    let magnitude = i64::try_from(magnitude).ok()?;
    i32::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// Parses a strict unsigned 32-bit number, such as the level of `verbosity`.
pub fn unsigned_32(word: &[u8]) -> Option<u32> {
    u32::try_from(unsigned_64(word)?).ok()
}

/// Parses the length of a value. The length plus that of the line end fits into 32 bits.
pub(crate) fn value_length(word: &[u8]) -> Option<usize> {
    const MAX_LENGTH: i32 = i32::MAX - 2;
    match signed_32(word)? {
        length @ 0..=MAX_LENGTH => usize::try_from(length).ok(),
        _ => None,
    }
}

/// Parses lax client flags: an unsigned 64-bit number, whose lower 32 bits are kept.
pub(crate) fn lax_flags(word: &[u8]) -> Option<u32> {
    match lax(word)? {
        (false, magnitude) => Some(magnitude as u32),
        (true, 0) => Some(0),
        (true, _) => None,
    }
}

/// Parses a lax expiry: a signed 64-bit number, whose lower 32 bits are kept.
pub(crate) fn lax_exptime(word: &[u8]) -> Option<i32> {
    let number = match lax(word)? {
        (false, magnitude) => i64::try_from(magnitude).ok()?,
        (true, magnitude) => 0i64.checked_sub_unsigned(magnitude)?,
    };
    Some(number as i32)
}

/// Parses a lax number, and returns its sign (true for minus) and its magnitude.
fn lax(word: &[u8]) -> Option<(bool, u64)> {
    let blanks = word.iter().take_while(|byte| is_blank(byte)).count();
    let (negative, digits) = match &word[blanks..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    let (magnitude, rest) = leading_digits(digits)?;
    let ends_there = rest.first().is_none_or(|byte| *byte == 0 || is_blank(byte));
    (rest.len() < digits.len() && ends_there).then_some((negative, magnitude))
}

/// Whether C's `isspace` accepts `byte`.
fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Returns the number that `text` begins with, and the rest of the text. The number is zero if
/// there is no digit. Returns `None` if the number exceeds 64 bits.
fn leading_digits(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0u64;
    let mut rest = text;
    while let [digit @ b'0'..=b'9', tail @ ..] = rest {
        number = number.checked_mul(10)?.checked_add((digit - b'0').into())?;
        rest = tail;
    }
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_64_bit_numbers_are_digits_only() {
        assert_eq!(unsigned_64(b"0"), Some(0));
        assert_eq!(unsigned_64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned_64(b"18446744073709551616"), None);
        for bad in ["", "-1", "+1", "1x", "x1", "1.0", " 1", "1\0", "\t1"] {
            assert_eq!(unsigned_64(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn strict_numbers_are_bounded_in_length() {
        assert_eq!(unsigned_64(b"0000000000000000000001"), Some(1));
        assert_eq!(unsigned_64(b"00000000000000000000001"), None);
        assert_eq!(signed_32(b"00000000001"), Some(1));
        assert_eq!(signed_32(b"000000000001"), None);
    }

    #[test]
    fn strict_32_bit_numbers_take_a_minus_sign() {
        assert_eq!(signed_32(b"-2147483648"), Some(i32::MIN));
        assert_eq!(signed_32(b"2147483647"), Some(i32::MAX));
        assert_eq!(signed_32(b"-0"), Some(0));
        assert_eq!(signed_32(b"-"), Some(0));
        for bad in ["", "2147483648", "-2147483649", "+1", "--1", "1-", "1e3", "99999999999"] {
            assert_eq!(signed_32(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn levels_are_unsigned_32_bit_numbers() {
        assert_eq!(unsigned_32(b"4294967295"), Some(u32::MAX));
        assert_eq!(unsigned_32(b"4294967296"), None);
        assert_eq!(unsigned_32(b"-1"), None);
    }

    #[test]
    fn lengths_leave_room_for_the_line_end() {
        assert_eq!(value_length(b"0"), Some(0));
        assert_eq!(value_length(b"-0"), Some(0));
        assert_eq!(value_length(b"2147483645"), Some(2_147_483_645));
        assert_eq!(value_length(b"2147483646"), None);
        assert_eq!(value_length(b"-1"), None);
    }

    #[test]
    fn lax_flags_are_truncated_to_32_bits() {
        assert_eq!(lax_flags(b"007"), Some(7));
        assert_eq!(lax_flags(b"4294967296"), Some(0));
        assert_eq!(lax_flags(b"18446744073709551615"), Some(u32::MAX));
        assert_eq!(lax_flags(b"18446744073709551616"), None);
        assert_eq!(lax_flags(b"-0"), Some(0));
        assert_eq!(lax_flags(b"-1"), None);
    }

    #[test]
    fn lax_expiries_are_truncated_to_32_bits() {
        assert_eq!(lax_exptime(b"-1"), Some(-1));
        assert_eq!(lax_exptime(b"4294967296"), Some(0));
        assert_eq!(lax_exptime(b"9223372036854775807"), Some(-1));
        assert_eq!(lax_exptime(b"9223372036854775808"), None);
        assert_eq!(lax_exptime(b"-9223372036854775808"), Some(0));
        assert_eq!(lax_exptime(b"-9223372036854775809"), None);
    }

    #[test]
    fn lax_numbers_may_be_surrounded_by_blanks() {
        assert_eq!(lax_flags(b"+5"), Some(5));
        assert_eq!(lax_flags(b"\t6"), Some(6));
        assert_eq!(lax_flags(b"7\0z"), Some(7));
        assert_eq!(lax_flags(b"8\tz"), Some(8));
        for bad in ["", "+", "-", "\t", "abc", "1x", "1.5", "+-1", "\0"] {
            assert_eq!(lax_flags(bad.as_bytes()), None, "{bad:?}");
            assert_eq!(lax_exptime(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
