//! The decimal arithmetic of `incr` and `decr` on stored text.

/// Increment or decrement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// Addition, modulo 2^64.
    Up,
    /// Subtraction, stopping at zero.
    Down,
}

/// Parses the number in `text`: decimal digits (leading zeros allowed), which may be followed by a
/// space and any bytes. None if there is no digit, another byte follows the digits, or the number
/// needs more than 64 bits.
pub fn parse(text: &[u8]) -> Option<u64> {
    let digits = text.split(|&byte| byte == b' ').next()?;
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Returns `number` changed by `delta`.
pub fn apply(direction: Direction, number: u64, delta: u64) -> u64 {
    match direction {
        Direction::Up => number.wrapping_add(delta),
        Direction::Down => number.saturating_sub(delta),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_padding() {
        assert_eq!(parse(b"0"), Some(0));
        assert_eq!(parse(b"007"), Some(7));
        assert_eq!(parse(b"99 "), Some(99));
        assert_eq!(parse(b"9 5"), Some(9));
        assert_eq!(parse(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse(&[b'0'; 300]), Some(0));
    }

    #[test]
    fn everything_else_is_no_number() {
        for text in [&b""[..], b" 1", b"x", b"1x", b"-1", b"+1", b"1.5", b"18446744073709551616", &[b'1'; 100]] {
            assert_eq!(parse(text), None, "{:?}", text);
        }
    }

    #[test]
    fn up_wraps_and_down_stops() {
        assert_eq!(apply(Direction::Up, u64::MAX, 2), 1);
        assert_eq!(apply(Direction::Down, 3, 5), 0);
    }
}
