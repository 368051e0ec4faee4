//! Keys from a file or a pipe: lines, a column of CSV, or records of fixed width.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use csv::{ByteRecord, Reader, ReaderBuilder};

use super::{Key, Keys, Source};

/// How a file is cut into keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// A key per line; empty lines are skipped.
    Lines,
    /// A key per row of CSV. The column is given by its number, from 1, or by its name in the first
    /// row.
    Column(String),
    /// Records of this many bytes.
    Records(usize),
}

/// Keys from a file.
pub struct Text {
    form: Cut,
    numbers: bool,
}

enum Cut {
    Lines(Box<dyn BufRead + Send>, Vec<u8>),
    Column(Box<Reader<Box<dyn BufRead + Send>>>, ByteRecord, usize),
    Records(Box<dyn BufRead + Send>, Vec<u8>),
}

impl Text {
    /// Opens a file; `-` is stdin. With `numbers`, lines and columns hold one or two integers in
    /// decimal or, after 0x, in hexadecimal, and records hold little-endian integers: of up to 8
    /// bytes, or two of 8.
    ///
    /// # Errors
    /// When the file can't be read, or has no such column.
    pub fn open(path: &Path, form: &Form, numbers: bool) -> Result<Self> {
        let input: Box<dyn BufRead + Send> = if path == Path::new("-") {
            Box::new(BufReader::new(io::stdin()))
        } else {
            let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            Box::new(BufReader::with_capacity(1 << 18, file))
        };
        Self::new(input, form, numbers)
    }

    fn new(input: Box<dyn BufRead + Send>, form: &Form, numbers: bool) -> Result<Self> {
        let form = match form {
            Form::Lines => Cut::Lines(input, Vec::new()),
            Form::Column(column) => {
                let number = column.parse::<usize>().ok();
                let mut reader = ReaderBuilder::new().has_headers(number.is_none()).flexible(true).from_reader(input);
                let index = match number {
                    Some(number) => number.checked_sub(1).context("columns are counted from 1")?,
                    None => {
                        let names = reader.byte_headers()?;
                        let found = names.iter().position(|name| name == column.as_bytes());
                        found.with_context(|| format!("the first row has no column {column}"))?
                    }
                };
                Cut::Column(Box::new(reader), ByteRecord::new(), index)
            }
            Form::Records(width) => {
                ensure!(*width > 0, "a record has at least one byte");
                ensure!(
                    !numbers || *width <= 8 || *width == 16,
                    "numbers need records of at most 8 bytes, and pairs of numbers records of 16 bytes"
                );
                Cut::Records(input, vec![0; *width])
            }
        };
        Ok(Self { form, numbers })
    }
}

impl Source for Text {
    fn next(&mut self, keys: &mut Keys) -> Result<bool> {
        match &mut self.form {
            Cut::Lines(input, line) => loop {
                line.clear();
                let length = input.read_until(b'\n', line).context("cannot read the keys")?;
                if length == 0 {
                    return Ok(false);
                }
                let text = line.strip_suffix(b"\n").unwrap_or(line);
                let text = text.strip_suffix(b"\r").unwrap_or(text);
                if !text.is_empty() {
                    keys.push(parsed(text, self.numbers)?);
                    return Ok(true);
                }
            },
            Cut::Column(reader, record, index) => {
                if !reader.read_byte_record(record).context("cannot read the keys")? {
                    return Ok(false);
                }
                let line = record.position().map_or(0, csv::Position::line);
                let field = record.get(*index).with_context(|| format!("line {line} has no column {}", *index + 1))?;
                keys.push(parsed(field, self.numbers).with_context(|| format!("line {line}"))?);
                Ok(true)
            }
            Cut::Records(input, record) => {
                if input.fill_buf().context("cannot read the keys")?.is_empty() {
                    return Ok(false);
                }
                input.read_exact(record).context("the last record is cut off")?;
                keys.push(if self.numbers { integers(record) } else { Key::Bytes(record) });
                Ok(true)
            }
        }
    }
}

fn parsed(text: &[u8], numbers: bool) -> Result<Key<'_>> {
    if !numbers {
        return Ok(Key::Bytes(text));
    }
    let text = std::str::from_utf8(text).context("expected a number")?;
    let mut words = text.split([' ', '\t', ',', ';']).filter(|word| !word.is_empty());
    match (words.next(), words.next(), words.next()) {
        (Some(number), None, None) => Ok(Key::Number(number_in(number)?)),
        (Some(first), Some(second), None) => Ok(Key::Pair(number_in(first)?, number_in(second)?)),
        _ => bail!("{text:?} is neither a number nor a pair of numbers"),
    }
}

fn number_in(text: &str) -> Result<u64> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.with_context(|| format!("{text:?} is not a 64-bit number"))
}

fn integers(record: &[u8]) -> Key<'static> {
    let integer = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    match record.split_at_checked(8) {
        Some((first, second)) if !second.is_empty() => Key::Pair(integer(first), integer(second)),
        _ => Key::Number(integer(record)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static [u8], form: Form, numbers: bool) -> Result<Keys> {
        let mut source = Text::new(Box::new(text), &form, numbers)?;
        let mut keys = Keys::default();
        assert!(!source.fill(&mut keys, 1000)?);
        Ok(keys)
    }

    fn all(keys: &Keys) -> Vec<Key<'_>> {
        keys.iter().collect()
    }

    #[test]
    fn lines_are_keys() {
        let keys = read(b"one\r\n\ntwo\nthree", Form::Lines, false).unwrap();
        assert_eq!(all(&keys), [Key::Bytes(b"one"), Key::Bytes(b"two"), Key::Bytes(b"three")]);
        let keys = read(b"17\n0xff\n", Form::Lines, true).unwrap();
        assert_eq!(all(&keys), [Key::Number(17), Key::Number(255)]);
        let keys = read(b"1 2\n0x3\t4\n", Form::Lines, true).unwrap();
        assert_eq!(all(&keys), [Key::Pair(1, 2), Key::Pair(3, 4)]);
    }

    #[test]
    fn columns_go_by_number_or_name() {
        let text = b"time,key\n1,\"a,b\"\n2,c\n";
        let keys = read(text, Form::Column("key".into()), false).unwrap();
        assert_eq!(all(&keys), [Key::Bytes(b"a,b"), Key::Bytes(b"c")]);
        let keys = read(text, Form::Column("2".into()), false).unwrap();
        assert_eq!(all(&keys), [Key::Bytes(b"key"), Key::Bytes(b"a,b"), Key::Bytes(b"c")]);
        for missing in ["0", "3", "size"] {
            assert!(read(text, Form::Column(missing.into()), false).is_err(), "{missing}");
        }
    }

    #[test]
    fn records_are_cut_by_their_width() {
        let keys = read(b"\x01\x00\x00\x02", Form::Records(2), true).unwrap();
        assert_eq!(all(&keys), [Key::Number(1), Key::Number(512)]);
        let keys = read(b"abcd", Form::Records(2), false).unwrap();
        assert_eq!(all(&keys), [Key::Bytes(b"ab"), Key::Bytes(b"cd")]);
        let keys = read(b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0", Form::Records(16), true).unwrap();
        assert_eq!(all(&keys), [Key::Pair(1, 2)]);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        assert!(read(b"one\n", Form::Lines, true).is_err());
        assert!(read(b"1 2 3\n", Form::Lines, true).is_err());
        assert!(read(b"abc", Form::Records(2), false).is_err());
        assert!(read(b"", Form::Records(0), false).is_err());
        assert!(read(b"", Form::Records(12), true).is_err());
    }
}
