//! Recorded conversations with memcached 1.6.45: its error replies must be the decoder's.
//!
//! Each file of `tests/transcripts` of the server is a conversation: what follows `>` was sent,
//! what follows `<` was answered, and a line with `@` is an event on the connection. The decoder is
//! shown what was sent, and its rejections are compared with what was answered; the answers to
//! commands it accepts are a server's business.

use std::path::Path;

use relativist_memcache::Limits;

use crate::event::{Connection, Event};

/// The reference at its default item size, less the room its item header takes.
const LIMITS: Limits = Limits { max_value: (1 << 20) - 50 };

/// One connection being replayed, and the exchange at hand.
struct Replay {
    connection: Connection,
    /// How many bytes the decoder is shown at a time.
    piece: usize,
    /// Bytes not yet shown to the decoder.
    unsent: Vec<u8>,
    sent: Vec<u8>,
    answered: Vec<u8>,
    events: Vec<Event>,
    /// Whether the exchange before ends the connection.
    is_over: bool,
    /// Exchanges whose answer was compared as a whole.
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

    /// Shows the decoder what has been collected.
    fn send(&mut self) {
        for piece in self.unsent.chunks(self.piece) {
            self.events.extend(self.connection.receive(piece));
        }
        self.sent.append(&mut self.unsent);
    }

    /// Compares the decoder's rejections with what was answered.
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
            assert_eq!(replies.concat(), answered, "answer to {}", sent.escape_ascii());
        } else {
            assert_in_order(&replies, &answered, &sent);
        }
    }
}

fn rejection_reply(event: &Event) -> Option<&'static [u8]> {
    match event {
        Event::Reject(rejection) => Some(rejection.reply()),
        Event::BadMeta(error) => Some(error.reply()),
        // Answered by what follows.
        Event::TooLarge { .. } => Some(b""),
        _ => None,
    }
}

/// The replies are found in the answer one after another, between those to accepted commands.
fn assert_in_order(replies: &[&[u8]], answered: &[u8], sent: &[u8]) {
    let mut rest = answered;
    for reply in replies.iter().filter(|reply| !reply.is_empty()) {
        let at = rest.windows(reply.len()).position(|window| window == *reply);
        let at = at.unwrap_or_else(|| panic!("no {:?} in answer to {}", reply.escape_ascii(), sent.escape_ascii()));
        rest = &rest[at + reply.len()..];
    }
}

/// Undoes the escapes and placeholders of a transcript's text.
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

/// Undoes one escape, its backslash taken off already, and returns what follows.
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

/// Expands repetitions. Any other placeholder stands for a number.
fn expand(placeholder: &str, out: &mut Vec<u8>) {
    match placeholder.strip_prefix("rep:").and_then(|repeat| repeat.rsplit_once(':')) {
        Some((text, count)) => out.extend(unescape(text).repeat(count.parse().expect("a count"))),
        None => out.push(b'1'),
    }
}

/// Replays a transcript, the decoder being shown so many bytes at a time; returns how many answers
/// were compared.
fn replay(file: &str, piece: usize) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/transcripts").join(file);
    let transcript = std::fs::read_to_string(path).expect("the transcript is there");
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
            "@closed" if !is_half_closed => assert!(replay.is_over, "the decoder goes on"),
            _ => {}
        }
    }
    replay.finish_exchange();
    replay.compared
}

/// Replays a transcript whole and in pieces; `compared` guards against a replay that compares
/// nothing.
fn check(file: &str, compared: usize) {
    for piece in [usize::MAX, 1000, 7] {
        assert_eq!(replay(file, piece), compared, "answers compared, {piece} bytes at a time");
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
        ("meta-set.txt", 49),
        ("meta-delete.txt", 14),
        ("meta-arith.txt", 25),
        ("meta-base64.txt", 12),
    ] {
        check(file, compared);
    }
}
