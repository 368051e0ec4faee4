//! Traces: sequences of requests for objects.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use csv::{ByteRecord, ReaderBuilder, Trim};

/// A trace in memory. Objects are numbered in the order of their first requests.
#[derive(Debug, Default)]
pub struct Trace {
    pub requests: Vec<u32>,
    /// The size of each object in bytes, according to its first request.
    pub sizes: Vec<u64>,
    /// The sum of the sizes of all objects, in bytes.
    pub unique_bytes: u64,
}

impl Trace {
    /// Reads lines that begin with `time,key,size`. Detects zstd compression by the first bytes.
    /// `-` is stdin. Lines that begin with `#` are comments. The time is ignored, because requests
    /// are replayed in order.
    pub fn read(path: &Path) -> Result<Self> {
        let source: Box<dyn Read> = if path == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(path).with_context(|| format!("cannot open {}", path.display()))?)
        };
        Self::parse(source).with_context(|| format!("cannot read {}", path.display()))
    }

    fn parse(source: impl Read) -> Result<Self> {
        const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
        let mut source = BufReader::new(source);
        if source.fill_buf()?.starts_with(&ZSTD) {
            Self::parse_text(zstd::Decoder::with_buffer(source)?)
        } else {
            Self::parse_text(source)
        }
    }

    fn parse_text(source: impl Read) -> Result<Self> {
        let mut reader = ReaderBuilder::new()
            .comment(Some(b'#'))
            .has_headers(false)
            .flexible(true)
            .trim(Trim::All)
            .from_reader(source);
        let mut trace = Self::default();
        let mut numbers: HashMap<Box<[u8]>, u32> = HashMap::new();
        let mut record = ByteRecord::new();
        while reader.read_byte_record(&mut record)? {
            let line = record.position().map_or(0, csv::Position::line);
            let size = record.get(2).and_then(|size| std::str::from_utf8(size).ok()?.parse().ok());
            let (Some(key), Some(size)) = (record.get(1), size) else {
                anyhow::bail!("line {line} is not of the form time,key,size");
            };
            ensure!(
                !is_of_twitter(&record),
                "line {line} looks like those of Twitter's traces (time,key,key size,value size,client,operation,ttl), \
                 of which the third column is not the object's size: make time,key,size of them, as by \
                 awk -F, -v OFS=, '{{print $1, $2, $3 + $4}}'"
            );
            let number = match numbers.get(key) {
                Some(&number) => number,
                None => {
                    let number = trace.add_object(size).with_context(|| format!("line {line}"))?;
                    numbers.insert(key.into(), number);
                    number
                }
            };
            trace.requests.push(number);
        }
        ensure!(!trace.requests.is_empty(), "the trace has no requests");
        Ok(trace)
    }

    fn add_object(&mut self, size: u64) -> Result<u32> {
        let number = u32::try_from(self.sizes.len()).context("more than 2^32 objects")?;
        self.sizes.push(size);
        self.unique_bytes += size;
        Ok(number)
    }
}

/// Returns whether a line has the columns of Twitter's published traces. They would be misread,
/// because their third column is only the size of the key.
fn is_of_twitter(record: &ByteRecord) -> bool {
    const OPERATIONS: [&[u8]; 11] =
        [b"get", b"gets", b"set", b"add", b"replace", b"cas", b"append", b"prepend", b"delete", b"incr", b"decr"];
    record.len() == 7 && OPERATIONS.contains(&&record[5])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# time, object, size, next\n0, b, 7, 3\n1,a,1\n2, b, 9, 4\n";

    fn check(trace: &Trace) {
        assert_eq!((trace.requests.as_slice(), trace.sizes.as_slice()), (&[0, 1, 0][..], &[7, 1][..]));
        assert_eq!(trace.unique_bytes, 8);
    }

    #[test]
    fn plain_and_compressed_traces_are_read() {
        check(&Trace::parse(TEXT.as_bytes()).unwrap());
        check(&Trace::parse(&*zstd::encode_all(TEXT.as_bytes(), 1).unwrap()).unwrap());
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        for (text, line) in [
            ("0,a,1\n1,b\n", "line 2"),
            ("0,a,x\n", "line 1"),
            ("", "no requests"),
            ("# only\n", "no requests"),
            ("0,key,3,100,7,get,0\n", "line 1 looks like those of Twitter's traces"),
        ] {
            let error = Trace::parse(text.as_bytes()).expect_err(text);
            assert!(format!("{error:#}").contains(line), "{text}: {error:#}");
        }
    }
}
