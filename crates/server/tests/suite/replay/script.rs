//! The parser of transcripts.

/// A part of a text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Piece {
    /// Literal bytes.
    Literal(Vec<u8>),
    /// Decimal digits, which are stored under the name if there is one.
    Number(Option<String>),
    /// Any bytes except CR and LF.
    Any,
    /// A number of bytes, which are stored under the name.
    Bytes(usize, String),
    /// The bytes that were stored under this name.
    Remembered(String),
}

/// One step of a transcript.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Send(Vec<Piece>),
    Expect(Vec<Piece>),
    Split,
    Sleep(f64),
    Silent,
    Closed,
    New(Option<String>),
    Datagrams,
    Close,
    Shutdown,
    Signal(String),
    Write(String, Vec<u8>),
}

/// A parsed transcript.
#[derive(Debug, Default)]
pub struct Script {
    /// The server's command line.
    pub args: String,
    /// The server's environment variables: names and values.
    pub env: Vec<(String, String)>,
    /// The files to create: names and contents.
    pub files: Vec<(String, Vec<u8>)>,
    /// Whether the server needs a UDP port.
    pub needs_udp: bool,
    pub lines: Vec<Line>,
}

/// A step, and the number of its first line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub number: usize,
    pub step: Step,
}

/// Parses a transcript.
pub fn parse(text: &str) -> Script {
    let mut script = Script::default();
    let mut starts_group = true;
    for (index, text) in text.lines().enumerate() {
        if text.trim().is_empty() || text.starts_with('#') {
            starts_group = true;
            continue;
        }
        let number = index + 1;
        let Some(step) = parse_line(text) else {
            script.take_head(text).unwrap_or_else(|| panic!("line {number}: cannot parse {text:?}"));
            continue;
        };
        match (step, script.lines.last_mut().map(|line| &mut line.step)) {
            (Step::Send(more), Some(Step::Send(pieces))) if !starts_group => pieces.extend(more),
            (Step::Expect(more), Some(Step::Expect(pieces))) if !starts_group => pieces.extend(more),
            (step, _) => script.lines.push(Line { number, step }),
        }
        starts_group = false;
    }
    script
}

impl Script {
    /// Parses a line of the head. Returns `None` for any other line.
    fn take_head(&mut self, line: &str) -> Option<()> {
        let (word, argument) = line.strip_prefix('@')?.split_once(' ')?;
        match word {
            "args" => self.args = argument.into(),
            "needs" => self.needs_udp |= argument.contains("udp"),
            "env" => self.env.push(argument.split_once('=').map(|(name, value)| (name.into(), value.into()))?),
            "file" => self.files.push(parse_file(argument)?),
            _ => return None,
        }
        Some(())
    }
}

/// Parses a name and its value.
fn parse_file(argument: &str) -> Option<(String, Vec<u8>)> {
    let (name, text) = argument.split_once(' ')?;
    match parse_text(text)?.as_slice() {
        [Piece::Literal(bytes)] => Some((name.into(), bytes.clone())),
        _ => None,
    }
}

/// Parses the step on a line. Returns `None` if the line has no step.
fn parse_line(line: &str) -> Option<Step> {
    if let Some(text) = line.strip_prefix("> ") {
        return Some(Step::Send(parse_text(text)?));
    } else if let Some(text) = line.strip_prefix("< ") {
        return Some(Step::Expect(parse_text(text)?));
    } else if let Some(text) = line.strip_prefix(">x ") {
        return Some(Step::Send(parse_hex(text)?));
    } else if let Some(text) = line.strip_prefix("<x ") {
        return Some(Step::Expect(parse_hex(text)?));
    }
    let (word, argument) = line.strip_prefix('@')?.split_once(' ').unwrap_or((&line[1..], ""));
    Some(match (word, argument) {
        ("split", _) => Step::Split,
        ("sleep", seconds) => Step::Sleep(seconds.parse().ok()?),
        ("silent", "") => Step::Silent,
        ("closed", "") => Step::Closed,
        ("new", "") => Step::New(None),
        ("new", name) => Step::New(Some(name.into())),
        ("udp", "") => Step::Datagrams,
        ("close", "") => Step::Close,
        ("shutdown", "") => Step::Shutdown,
        ("signal", name) => Step::Signal(name.into()),
        ("write", file) => parse_file(file).map(|(name, bytes)| Step::Write(name, bytes))?,
        _ => return None,
    })
}

fn parse_hex(text: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut literal = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let length = if rest.starts_with('{') {
            let end = rest.find('}')?;
            pieces.extend([Piece::Literal(std::mem::take(&mut literal)), parse_placeholder(&rest[1..end])?]);
            end + 1
        } else {
            literal.push(u8::from_str_radix(rest.get(..2)?, 16).ok()?);
            2
        };
        rest = rest[length..].trim_start();
    }
    pieces.push(Piece::Literal(literal));
    Some(pieces)
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

/// Parses an escape, and returns its byte and its length.
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
        ("any", None, None) => Some(Piece::Any),
        (bytes, Some(name), None) if bytes.starts_with('b') => {
            Some(Piece::Bytes(bytes[1..].parse().ok()?, name.into()))
        }
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
        let lines = parse("> a\\r\\n\n> b\n\n> c\n@split\n> d\n").lines;
        let steps: Vec<Step> = lines.into_iter().map(|line| line.step).collect();
        let send = |texts: &[&str]| Step::Send(texts.iter().map(|text| literal(text)).collect());
        assert_eq!(steps, [send(&["a\r\n", "b"]), send(&["c"]), Step::Split, send(&["d"])]);
    }

    #[test]
    fn placeholders() {
        let lines = parse("< a{rep:xy:2}{num}-{num:n} {=n}\\x20\n").lines;
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

    #[test]
    fn hexadecimal_texts_and_heads() {
        let script = parse("@args -A\n@file f a:b\\n\n@env A=b\n>x 80 0a01 {=u}\n> k\n<x {b8:u}\n");
        assert_eq!((script.args.as_str(), script.files), ("-A", vec![("f".into(), b"a:b\n".to_vec())]));
        assert_eq!(script.env, [("A".into(), "b".into())]);
        let sent = vec![Piece::Literal(vec![0x80, 0x0a, 1]), Piece::Remembered("u".into()), literal(""), literal("k")];
        let expected = vec![literal(""), Piece::Bytes(8, "u".into()), literal("")];
        let steps: Vec<Step> = script.lines.into_iter().map(|line| line.step).collect();
        assert_eq!(steps, [Step::Send(sent), Step::Expect(expected)]);
    }
}
