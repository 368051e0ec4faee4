//! Replays recorded conversations with memcached 1.6.45: the decoder's error replies must be the
//! same.
//!
//! Each file of the server's `tests/transcripts` is a conversation: the client sent the lines with
//! `>`, memcached sent those with `<`, and a line with `@` is an event on the connection. The test
//! passes the requests to the decoder, and compares its rejections with the replies. It ignores
//! replies to commands that the decoder accepts.

use std::path::Path;

use relativist_memcache::Limits;

use crate::event::{Connection, Event};

/// The limit of memcached with its default item size, from which it deducts the item's header.
const LIMITS: Limits = Limits { max_value: (1 << 20) - 50 };

/// The replay of one connection, with the current exchange.
struct Replay {
    connection: Connection,
    /// The number of bytes passed to the decoder at a time.
    piece: usize,
    /// The bytes not yet passed to the decoder.
    unsent: Vec<u8>,
    sent: Vec<u8>,
    answered: Vec<u8>,
    events: Vec<Event>,
    /// Whether the previous exchange ended the connection.
    is_over: bool,
    /// The number of exchanges whose whole reply was compared.
    compared: usize,
}

impl Replay {
    fn new(piece: usize) -> Self {
        Self {
            connection: Connection::new(LIMITS),
            piece,
            unsent: Vec::new(),
            sent: Vec::new(),
            answered: Vec::new(),
            events: Vec::new(),
            is_over: false,
            compared: 0,
        }
    }

    /// Passes the collected bytes to the decoder.
    fn send(&mut self) {
        for piece in self.unsent.chunks(self.piece) {
            self.events.extend(self.connection.receive(piece));
        }
        self.sent.append(&mut self.unsent);
    }

    /// Compares the decoder's rejections with memcached's reply.
    fn finish_exchange(&mut self) {
        self.send();
        let (sent, answered) = (std::mem::take(&mut self.sent), std::mem::take(&mut self.answered));
        let events = std::mem::take(&mut self.events);
        if events.is_empty() {
            return;
        }
        self.is_over = events.iter().any(|event| matches!(event, Event::Close | Event::Quit));
        let replies: Vec<&[u8]> = events.iter().filter_map(rejection_reply).collect();
        if replies.len() == events.len() {
            self.compared += 1;
            assert_eq!(replies.concat(), answered, "reply to {}", sent.escape_ascii());
        } else {
            assert_in_order(&replies, &answered, &sent);
        }
    }
}

fn rejection_reply(event: &Event) -> Option<&'static [u8]> {
    match event {
        Event::Reject(rejection) => Some(rejection.reply()),
        Event::BadMeta(error) => Some(error.reply()),
        // The next event has the reply.
        Event::TooLarge { .. } => Some(b""),
        _ => None,
    }
}

/// Asserts that memcached's `output` contains the `replies` in this order. Replies to accepted
/// commands may be in between.
fn assert_in_order(replies: &[&[u8]], output: &[u8], sent: &[u8]) {
    let mut rest = output;
    for reply in replies.iter().filter(|reply| !reply.is_empty()) {
        let at = rest.windows(reply.len()).position(|window| window == *reply);
        let at = at.unwrap_or_else(|| panic!("no {:?} in reply to {}", reply.escape_ascii(), sent.escape_ascii()));
        rest = &rest[at + reply.len()..];
    }
}

/// Replaces the escapes and placeholders in a transcript's text.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => rest = unescape_one(rest, &mut out),
            '{' => {
                let (placeholder, tail) = rest.split_once('}').expect("placeholders are closed");
                expand(placeholder, &mut out);
                rest = tail;
            }
            other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

/// Replaces one escape, whose backslash was removed, and returns the text after it.
fn unescape_one<'t>(rest: &'t str, out: &mut Vec<u8>) -> &'t str {
    let (escape, tail) = rest.split_at(1);
    let byte = match escape {
        "r" => b'\r',
        "n" => b'\n',
        "t" => b'\t',
        "0" => 0,
        "x" => {
            out.push(u8::from_str_radix(&tail[..2], 16).expect("two hexadecimal digits"));
            return &tail[2..];
        }
        other => other.as_bytes()[0],
    };
    out.push(byte);
    tail
}

/// Expands a repetition. Any other placeholder stands for a number.
fn expand(placeholder: &str, out: &mut Vec<u8>) {
    match placeholder.strip_prefix("rep:").and_then(|repeat| repeat.rsplit_once(':')) {
        Some((text, count)) => out.extend(unescape(text).repeat(count.parse().expect("a count"))),
        None => out.push(b'1'),
    }
}

/// Replays a transcript and passes `piece` bytes to the decoder at a time. Returns the number of
/// replies that were compared.
fn replay(file: &str, piece: usize) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/transcripts").join(file);
    let transcript = std::fs::read_to_string(path).expect("the transcript exists");
    let mut replay = Replay::new(piece);
    let mut is_half_closed = false;
    for line in transcript.lines() {
        if let Some(text) = line.strip_prefix("> ") {
            if !replay.answered.is_empty() {
                replay.finish_exchange();
            }
            replay.unsent.extend(unescape(text));
            continue;
        }
        if let Some(text) = line.strip_prefix("< ") {
            replay.answered.extend(unescape(text));
            continue;
        }
        if line == "@split" {
            replay.send();
            continue;
        }
        replay.finish_exchange();
        match line {
            "@new" => {
                replay = Replay { compared: replay.compared, ..Replay::new(piece) };
                is_half_closed = false;
            }
            "@shutdown" => is_half_closed = true,
            "@closed" if !is_half_closed => assert!(replay.is_over, "the decoder does not close the connection"),
            _ => {}
        }
    }
    replay.finish_exchange();
    replay.compared
}

/// Replays a transcript whole and in pieces. Asserts the number of replies that are compared,
/// because a replay could otherwise compare nothing.
fn check(file: &str, compared: usize) {
    for piece in [usize::MAX, 1000, 7] {
        assert_eq!(replay(file, piece), compared, "replies compared, {piece} bytes at a time");
    }
}

#[test]
fn storage() {
    check("classic-storage.txt", 4);
}

#[test]
fn errors() {
    check("classic-errors.txt", 86);
}

#[test]
fn noreply() {
    check("noreply.txt", 0);
}

#[test]
fn arithmetic() {
    check("incr-decr.txt", 11);
}

#[test]
fn malformed() {
    check("malformed.txt", 31);
}

#[test]
fn meta() {
    for (file, compared) in [
        ("meta-get.txt", 60),
        ("meta-set.txt", 51),
        ("meta-delete.txt", 14),
        ("meta-arith.txt", 25),
        ("meta-base64.txt", 12),
    ] {
        check(file, compared);
    }
}
