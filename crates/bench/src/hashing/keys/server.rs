//! Keys of a running memcached server, ours or another.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail};
use percent_encoding::percent_decode;

use super::{Key, Keys, Source};

/// The keys that `lru_crawler metadump all` lists.
pub struct Dump<R> {
    replies: R,
    line: Vec<u8>,
}

/// Asks the server at `address` for all its keys.
///
/// # Errors
/// When the server can't be reached.
pub fn dump(address: &str) -> Result<Dump<BufReader<TcpStream>>> {
    let connect = || -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"lru_crawler metadump all\r\n")?;
        Ok(stream)
    };
    let stream = connect().with_context(|| format!("cannot reach {address}"))?;
    Ok(Dump { replies: BufReader::new(stream), line: Vec::new() })
}

impl<R: BufRead> Dump<R> {
    /// Reads the next line, and skips lines that announce further lines.
    fn read_line(&mut self) -> Result<usize> {
        loop {
            self.line.clear();
            let read = self.replies.read_until(b'\n', &mut self.line).context("the server does not answer")?;
            if self.line.trim_ascii_end() != b"OK" {
                return Ok(read);
            }
        }
    }
}

impl<R: BufRead + Send> Source for Dump<R> {
    fn next(&mut self, keys: &mut Keys) -> Result<bool> {
        let read = self.read_line()?;
        let line = self.line.trim_ascii_end();
        if line == b"END" {
            return Ok(false);
        }
        let key = line.strip_prefix(b"key=").and_then(|rest| rest.split(|byte| *byte == b' ').next());
        let Some(key) = key else {
            match read {
                0 => bail!("the server has closed the connection"),
                _ => bail!("the server lists no keys: {}", String::from_utf8_lossy(line)),
            }
        };
        keys.push(Key::Bytes(&Cow::from(percent_decode(key))));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(replies: &'static [u8]) -> Result<Keys> {
        let mut keys = Keys::default();
        let more = Dump { replies, line: Vec::new() }.fill(&mut keys, 100)?;
        assert!(!more);
        Ok(keys)
    }

    #[test]
    fn keys_are_read_from_a_dump_and_decoded() {
        let keys =
            read(b"OK\r\nkey=foo exp=-1 la=17 cas=2 fetch=no cls=1 size=63\r\nkey=a%20b%25 exp=1\r\nEND\r\n").unwrap();
        assert_eq!(keys.iter().collect::<Vec<_>>(), [Key::Bytes(b"foo"), Key::Bytes(b"a b%")]);
    }

    #[test]
    fn refusals_are_reported() {
        for reply in [&b"ERROR metadump not allowed\r\n"[..], b"BUSY currently processing crawler request\r\n", b""] {
            assert!(read(reply).is_err());
        }
    }
}
