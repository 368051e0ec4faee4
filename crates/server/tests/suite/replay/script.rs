//! Reading a transcript.

/// A part of a text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Piece {
    /// These bytes.
    Literal(Vec<u8>),
    /// Decimal digits, to be remembered under a name if there is one.
    Number(Option<String>),
    /// The digits remembered under this name.
    Remembered(String),
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Send(Vec<Piece>),
    Expect(Vec<Piece>),
    Split,
    Sleep(f64),
    Silent,
    Closed,
    New,
    Close,
    Shutdown,
}

/// A step and the line where it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub number: usize,
    pub step: Step,
}

/// The steps of a transcript.
pub fn parse(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut starts_group = true;
    for (index, text) in text.lines().enumerate() {
        if text.trim().is_empty() || text.starts_with('#') {
            starts_group = true;
            continue;
        }
        let number = index + 1;
        let step = parse_line(text).unwrap_or_else(|| panic!("line {number}: cannot parse {text:?}"));
        match (step, lines.last_mut().map(|line| &mut line.step)) {
            (None, _) => (),
            (Some(Step::Send(more)), Some(Step::Send(pieces))) if !starts_group => pieces.extend(more),
            (Some(Step::Expect(more)), Some(Step::Expect(pieces))) if !starts_group => pieces.extend(more),
            (Some(step), _) => lines.push(Line { number, step }),
        }
        starts_group = false;
    }
    lines
}

/// The step of a line, if it is one; none if it cannot be understood.
fn parse_line(line: &str) -> Option<Option<Step>> {
    let step = if let Some(text) = line.strip_prefix("> ") {
        Step::Send(parse_text(text)?)
    } else if let Some(text) = line.strip_prefix("< ") {
        Step::Expect(parse_text(text)?)
    } else {
        let (word, argument) = line.strip_prefix('@')?.split_once(' ').unwrap_or((&line[1..], ""));
        match (word, argument) {
            ("needs", _) => return Some(None),
            ("split", "") => Step::Split,
            ("sleep", seconds) => Step::Sleep(seconds.parse().ok()?),
            ("silent", "") => Step::Silent,
            ("closed", "") => Step::Closed,
            ("new", "") => Step::New,
            ("close", "") => Step::Close,
            ("shutdown", "") => Step::Shutdown,
            _ => return None,
        }
    };
    Some(Some(step))
}

fn parse_text(text: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut literal = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\\' => {
                let (byte, length) = parse_escape(&rest[1..])?;
                literal.push(byte);
                1 + length
            }
            '{' => {
                let end = rest.find('}')?;
                match parse_placeholder(&rest[1..end])? {
                    Piece::Literal(bytes) => literal.extend(bytes),
                    piece => pieces.extend([Piece::Literal(std::mem::take(&mut literal)), piece]),
                }
                end + 1
            }
            other => {
                literal.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
                other.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    pieces.push(Piece::Literal(literal));
    Some(pieces)
}

/// The byte of an escape, and how long that is.
fn parse_escape(text: &str) -> Option<(u8, usize)> {
    let byte = match text.bytes().next()? {
        b'r' => b'\r',
        b'n' => b'\n',
        b't' => b'\t',
        b'0' => 0,
        b'x' => return Some((u8::from_str_radix(text.get(1..3)?, 16).ok()?, 3)),
        other @ (b'\\' | b'"' | b'{' | b'}') => other,
        _ => return None,
    };
    Some((byte, 1))
}

fn parse_placeholder(word: &str) -> Option<Piece> {
    if let Some(name) = word.strip_prefix('=') {
        return Some(Piece::Remembered(name.into()));
    }
    let mut parts = word.split(':');
    match (parts.next()?, parts.next(), parts.next()) {
        ("num", name, None) => Some(Piece::Number(name.map(Into::into))),
        ("rep", Some(unit), Some(times)) => Some(Piece::Literal(unit.repeat(times.parse().ok()?).into_bytes())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(text: &str) -> Piece {
        Piece::Literal(text.into())
    }

    #[test]
    fn groups_end_at_blank_lines() {
        let lines = parse("> a\\r\\n\n> b\n\n> c\n@split\n> d\n");
        let steps: Vec<Step> = lines.into_iter().map(|line| line.step).collect();
        let send = |texts: &[&str]| Step::Send(texts.iter().map(|text| literal(text)).collect());
        assert_eq!(steps, [send(&["a\r\n", "b"]), send(&["c"]), Step::Split, send(&["d"])]);
    }

    #[test]
    fn placeholders() {
        let lines = parse("< a{rep:xy:2}{num}-{num:n} {=n}\\x20\n");
        let pieces = [
            literal("axyxy"),
            Piece::Number(None),
            literal("-"),
            Piece::Number(Some("n".into())),
            literal(" "),
            Piece::Remembered("n".into()),
            literal(" "),
        ];
        assert_eq!(lines, [Line { number: 1, step: Step::Expect(pieces.into()) }]);
    }
}
