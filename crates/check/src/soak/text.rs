//! Requests and replies of the classic and the meta protocol. A connection may mix both.

use std::io::Write as _;

use anyhow::{Context, Result, bail, ensure};
use relativist_memcache::encode_key;

use super::reply::{Parsed, Refusal, Reply};
use super::request::{Ask, Dialect, Key, Mode, Names, Pool, Request};
use crate::client::reply::{Answer, Code, Encoding, MAX_VALUE, Received, Reported, decimal, read};
use crate::client::shown;

pub(super) fn push(request: &Request, names: &Names, pool: &Pool, out: &mut Vec<u8>) {
    match request.dialect {
        _ if request.ask == Ask::Fence => out.extend_from_slice(b"mn\r\n"),
        Dialect::Meta => push_meta(request, names, pool, out),
        _ => push_classic(request, names, pool, out),
    }
}

fn push_classic(request: &Request, names: &Names, pool: &Pool, out: &mut Vec<u8>) {
    let word = match (&request.ask, asks_for_cas(request)) {
        (Ask::Get { touch: None, .. }, true) => "gets",
        (Ask::Get { touch: None, .. }, false) => "get",
        (Ask::Get { .. }, true) => "gats",
        (Ask::Get { .. }, false) => "gat",
        (Ask::Store { compare: Some(_), .. }, _) => "cas",
        (Ask::Store { mode, .. }, _) => name(*mode),
        (Ask::Count { is_up: true, .. }, _) => "incr",
        (Ask::Count { .. }, _) => "decr",
        (Ask::Touch { .. }, _) => "touch",
        (Ask::Delete { .. }, _) => "delete",
        (Ask::Fence, _) => unreachable!("it has no key"),
    };
    out.extend_from_slice(word.as_bytes());
    if let Ask::Get { touch: Some(exptime), .. } = request.ask {
        push_word(out, exptime.signed());
    }
    for (key, _) in &request.keys {
        out.push(b' ');
        out.extend_from_slice(&names.of(*key));
    }
    let mut value = None;
    match request.ask {
        Ask::Store { text, flags, exptime, compare, .. } => {
            let bytes = value.insert(Vec::new());
            pool.push(text, bytes);
            write!(out, " {flags} {} {}", exptime.signed(), bytes.len()).expect("a Vec takes all");
            compare.into_iter().for_each(|cas| push_word(out, cas));
        }
        Ask::Count { delta, .. } => push_word(out, delta),
        Ask::Touch { exptime } => push_word(out, exptime.signed()),
        _ => (),
    }
    out.extend_from_slice(if request.is_quiet { b" noreply\r\n" } else { b"\r\n" });
    push_value(value.as_deref(), out);
}

/// Returns whether a request asks for CAS values, for later comparisons. Every other request does.
fn asks_for_cas(request: &Request) -> bool {
    request.number.is_multiple_of(2)
}

fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Set => "set",
        Mode::Add => "add",
        Mode::Replace => "replace",
        Mode::Append => "append",
        Mode::Prepend => "prepend",
    }
}

/// Returns whether the key is sent in base64. Some keys are.
fn is_encoded(request: &Request) -> bool {
    request.number % 8 == 3 && name_is_short(request)
}

fn name_is_short(request: &Request) -> bool {
    // The names of these slots have 250 bytes, and would be too long in base64.
    !matches!(request.keys[0].0, Key::Own { slot, .. } if slot % 16 == 3)
}

fn push_meta(request: &Request, names: &Names, pool: &Pool, out: &mut Vec<u8>) {
    let verb = match request.ask {
        Ask::Get { .. } | Ask::Touch { .. } => "mg ",
        Ask::Store { .. } => "ms ",
        Ask::Count { .. } => "ma ",
        Ask::Delete { .. } => "md ",
        Ask::Fence => unreachable!("it has no key"),
    };
    out.extend_from_slice(verb.as_bytes());
    let name = names.of(request.keys[0].0);
    let is_encoded = is_encoded(request);
    if is_encoded {
        encode_key(out, &name);
    } else {
        out.extend_from_slice(&name);
    }
    let mut value = None;
    if let Ask::Store { text, .. } = request.ask {
        let bytes = value.insert(Vec::new());
        pool.push(text, bytes);
        push_word(out, bytes.len());
    }
    if is_encoded {
        out.extend_from_slice(b" b");
    }
    push_flags(request, out);
    write!(out, " O{}", request.number).expect("a Vec takes all");
    out.extend_from_slice(if request.is_quiet { b" q\r\n" } else { b"\r\n" });
    push_value(value.as_deref(), out);
}

fn push_flags(request: &Request, out: &mut Vec<u8>) {
    let mut flag = |letter: &str, number: Option<i128>| {
        if let Some(number) = number {
            write!(out, " {letter}{number}").expect("a Vec takes all");
        }
    };
    match request.ask {
        Ask::Get { touch, vivify, recache } => {
            flag("T", touch.map(|exptime| exptime.signed().into()));
            flag("N", vivify.map(|exptime| exptime.signed().into()));
            flag("R", recache.map(i128::from));
            let flags = if request.number % 8 == 5 { " s f t c h" } else { " s f t c h v" };
            out.extend_from_slice(flags.as_bytes());
            // The key is not requested, because servers return it in base64 if the item was stored
            // with base64.
        }
        Ask::Touch { exptime } => flag("T", Some(exptime.signed().into())),
        Ask::Store { mode, flags, exptime, compare, invalidates, .. } => {
            flag("F", Some(flags.into()));
            flag("T", Some(exptime.signed().into()));
            flag("C", compare.map(i128::from));
            let mode = match mode {
                Mode::Set => " c MS",
                Mode::Add => " c ME",
                Mode::Replace => " c MR",
                Mode::Append => " c MA",
                Mode::Prepend => " c MP",
            };
            out.extend_from_slice(mode.as_bytes());
            out.extend_from_slice(if invalidates { b" I" } else { b"" });
        }
        Ask::Count { is_up, delta, create, compare } => {
            flag("D", Some(delta.into()));
            flag("J", create.map(|(initial, _)| initial.into()));
            flag("N", create.map(|(_, exptime)| exptime.signed().into()));
            flag("C", compare.map(i128::from));
            out.extend_from_slice(if is_up { b" v t c" } else { b" v t c MD" });
        }
        Ask::Delete { compare, invalidates } => {
            flag("C", compare.map(i128::from));
            flag("T", invalidates.map(|exptime| exptime.signed().into()));
            out.extend_from_slice(if invalidates.is_some() { b" I" } else { b"" });
        }
        Ask::Fence => (),
    }
}

fn push_word(out: &mut Vec<u8>, word: impl std::fmt::Display) {
    write!(out, " {word}").expect("a Vec takes all");
}

fn push_value(value: Option<&[u8]>, out: &mut Vec<u8>) {
    if let Some(value) = value {
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

/// Parses the beginning of the input as the reply to `request`.
pub(super) fn parse(request: &Request, names: &Names, input: &[u8]) -> Result<Parsed> {
    if request.dialect == Dialect::Classic && request.is_quiet {
        return Ok(Parsed::Silent);
    }
    let (answer, after) = match read(Encoding::Text, input, MAX_VALUE)? {
        Received::Whole(answer, after) => (answer, after),
        Received::Part(needed) => return Ok(Parsed::Part(needed)),
    };
    match (request.dialect, &request.ask) {
        (_, Ask::Fence) if answer.code == Code::Fence => Ok(Parsed::Whole(Vec::new(), after)),
        (_, Ask::Fence) => bail!("a reply without a request: {}", shown(answer.head)),
        (Dialect::Meta, _) => parse_meta(request, answer, after),
        (_, Ask::Get { .. }) => parse_values(request, names, input),
        _ => Ok(Parsed::Whole(vec![parse_line(request, answer)?], after)),
    }
}

fn parse_line(request: &Request, answer: Answer<'_>) -> Result<Reply> {
    let done = || Reply::Done(Reported::default());
    Ok(match (&request.ask, answer.head) {
        (Ask::Store { .. }, b"STORED") | (Ask::Touch { .. }, b"TOUCHED") | (Ask::Delete { .. }, b"DELETED") => done(),
        (Ask::Store { .. }, b"NOT_STORED") => Reply::NotStored,
        (Ask::Store { .. }, b"EXISTS") => Reply::Exists,
        (_, b"NOT_FOUND") => Reply::NotFound,
        (Ask::Count { .. }, digits) if answer.value.is_some() => {
            Reply::Done(Reported { number: Some(decimal(digits)?), ..Reported::default() })
        }
        _ => parse_error(answer)?,
    })
}

fn parse_error(answer: Answer<'_>) -> Result<Reply> {
    Ok(match answer.code {
        Code::NotNumeric => Reply::NotNumeric,
        Code::TooLarge => Reply::Refused(Refusal::TooLarge),
        Code::Midway => Reply::Refused(Refusal::Midway),
        Code::OutOfMemory => Reply::Refused(Refusal::OutOfMemory),
        _ => bail!("not a reply: {}", shown(answer.head)),
    })
}

/// Parses the reply to a classic `get`: the found items, in the order of the keys.
fn parse_values(request: &Request, names: &Names, input: &[u8]) -> Result<Parsed> {
    let mut keys = request.keys.iter().map(|(key, _)| names.of(*key));
    let (mut replies, mut at) = (Vec::new(), 0);
    loop {
        let answer = match read(Encoding::Text, &input[at..], MAX_VALUE)? {
            Received::Whole(answer, length) => {
                at += length;
                answer
            }
            Received::Part(needed) => return Ok(Parsed::Part(at + needed)),
        };
        if answer.code == Code::End {
            replies.extend(keys.map(|_| Reply::NotFound));
            return Ok(Parsed::Whole(replies, at));
        }
        let is_item = answer.code == Code::Item && answer.cas.is_some() == asks_for_cas(request);
        ensure!(is_item, "not an item: {}", shown(answer.head));
        let skipped = keys.position(|key| key == answer.key);
        let skipped = skipped.with_context(|| format!("an unrequested item or flag: {}", shown(answer.key)))?;
        replies.extend((0..skipped).map(|_| Reply::NotFound));
        replies.push(Reply::Done(answer.properties()?.0));
    }
}

fn parse_meta(request: &Request, answer: Answer<'_>, after: usize) -> Result<Parsed> {
    let opaque = format!("O{}", request.number);
    let is_its_own = answer.words().any(|word| word == opaque.as_bytes());
    if request.is_quiet && !is_its_own {
        return Ok(Parsed::Silent);
    }
    let whole = |reply| Ok(Parsed::Whole(vec![reply], after));
    match answer.head {
        // memcached 1.6.18 returns only `EN` for a miss.
        b"EN" => return whole(Reply::NotFound),
        [b'E', b'N', ..] | [b'N', b'F', ..] if is_its_own => return whole(Reply::NotFound),
        [b'N', b'S', ..] if is_its_own => return whole(Reply::NotStored),
        [b'E', b'X', ..] if is_its_own => return whole(Reply::Exists),
        [b'H', b'D', ..] | [b'V', b'A', ..] if is_its_own => (),
        _ => return whole(parse_error(answer)?),
    }
    let (mut reported, others) = answer.properties()?;
    if let Some(word) = others.iter().find(|word| word[0] != b'O') {
        bail!("an unrequested item or flag: {}", shown(word));
    }
    if !matches!(request.ask, Ask::Get { .. } | Ask::Touch { .. }) {
        reported.facts = None;
        reported.number = reported.value.take().map(|digits| decimal(&digits)).transpose()?;
    }
    whole(Reply::Done(reported))
}
