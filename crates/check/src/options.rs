//! The syntax of options.

/// Parses a number of seconds, with a fraction or without.
///
/// # Errors
/// An explanation for the user.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds between 0.001 and 3600".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_bounded() {
        assert_eq!(parse_seconds("0.5"), Ok(0.5));
        for text in ["", "0", "-1", "nan", "3601", "1s"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
