//! Requests and replies of the classic and the meta protocol. A connection may mix both.

use std::io::Write as _;

use anyhow::{Context, Result, bail, ensure};
use relativist_memcache::encode_key;

use super::reply::{Facts, Parsed, Refusal, Reply, Reported};
use super::request::{Ask, Dialect, Key, Mode, Names, Pool, Request};
use crate::client::shown;

const MAX_LINE: usize = 2048;

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
    let Some((line, after)) = line(input)? else { return Ok(Parsed::Part(input.len() + 1)) };
    match (request.dialect, &request.ask) {
        (_, Ask::Fence) if line == b"MN" => Ok(Parsed::Whole(Vec::new(), after)),
        (_, Ask::Fence) => bail!("a reply without a request: {}", shown(line)),
        (Dialect::Meta, _) => parse_meta(request, line, &input[after..], after),
        (_, Ask::Get { .. }) => parse_values(request, names, input),
        _ => Ok(Parsed::Whole(vec![parse_line(request, line)?], after)),
    }
}

/// Returns the first line without its end, and the position of the next line.
fn line(input: &[u8]) -> Result<Option<(&[u8], usize)>> {
    let Some(end) = memchr::memchr(b'\n', &input[..input.len().min(MAX_LINE)]) else {
        ensure!(input.len() < MAX_LINE, "a line without an end: {}", shown(input));
        return Ok(None);
    };
    let line = input[..end].strip_suffix(b"\r").with_context(|| format!("no CR: {}", shown(&input[..end])))?;
    Ok(Some((line, end + 1)))
}

fn parse_line(request: &Request, line: &[u8]) -> Result<Reply> {
    let done = || Reply::Done(Reported::default());
    Ok(match (&request.ask, line) {
        (Ask::Store { .. }, b"STORED") | (Ask::Touch { .. }, b"TOUCHED") | (Ask::Delete { .. }, b"DELETED") => done(),
        (Ask::Store { .. }, b"NOT_STORED") => Reply::NotStored,
        (Ask::Store { .. }, b"EXISTS") => Reply::Exists,
        (_, b"NOT_FOUND") => Reply::NotFound,
        (Ask::Count { .. }, _) if line.first().is_some_and(u8::is_ascii_digit) => {
            Reply::Done(Reported { number: Some(decimal(line)?), ..Reported::default() })
        }
        _ => parse_error(line)?,
    })
}

fn parse_error(line: &[u8]) -> Result<Reply> {
    Ok(match line {
        b"CLIENT_ERROR cannot increment or decrement non-numeric value" => Reply::NotNumeric,
        b"SERVER_ERROR object too large for cache" => Reply::Refused(Refusal::TooLarge),
        b"SERVER_ERROR Out of memory during read" => Reply::Refused(Refusal::Midway),
        _ if line.starts_with(b"SERVER_ERROR out of memory") => Reply::Refused(Refusal::OutOfMemory),
        _ => bail!("not a reply: {}", shown(line)),
    })
}

fn decimal<T: std::str::FromStr>(digits: &[u8]) -> Result<T> {
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    number.with_context(|| format!("not a number: {}", shown(digits)))
}

/// Returns the value at the beginning of `input` and its length with the line end. If the value is
/// incomplete, returns the number of bytes needed.
fn value(input: &[u8], length: usize) -> Result<std::result::Result<(Vec<u8>, usize), usize>> {
    let whole = length + 2;
    let Some(bytes) = input.get(..whole) else { return Ok(Err(whole)) };
    let value =
        bytes.strip_suffix(b"\r\n").with_context(|| format!("a value that does not end after {length} bytes"))?;
    Ok(Ok((value.to_vec(), whole)))
}

/// Parses the reply to a classic `get`: the found items, in the order of the keys.
fn parse_values(request: &Request, names: &Names, input: &[u8]) -> Result<Parsed> {
    let mut keys = request.keys.iter().map(|(key, _)| names.of(*key));
    let (mut replies, mut at) = (Vec::new(), 0);
    loop {
        let Some((line, length)) = line(&input[at..])? else { return Ok(Parsed::Part(input.len() + 1)) };
        at += length;
        if line == b"END" {
            replies.extend(keys.map(|_| Reply::NotFound));
            return Ok(Parsed::Whole(replies, at));
        }
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let (name, flags, length, cas) = match (words[..].strip_prefix(&[&b"VALUE"[..]]), asks_for_cas(request)) {
            (Some(&[name, flags, length]), false) => (name, flags, length, None),
            (Some(&[name, flags, length, cas]), true) => (name, flags, length, Some(decimal(cas)?)),
            _ => bail!("not an item: {}", shown(line)),
        };
        let Some(skipped) = keys.position(|key| key == name) else {
            bail!("an unrequested item or flag: {}", shown(name))
        };
        let (value, taken) = match value(&input[at..], decimal(length)?)? {
            Ok(whole) => whole,
            Err(needed) => return Ok(Parsed::Part(at + needed)),
        };
        at += taken;
        replies.extend((0..skipped).map(|_| Reply::NotFound));
        let reported = Reported { value: Some(value), flags: Some(decimal(flags)?), cas, ..Reported::default() };
        replies.push(Reply::Done(reported));
    }
}

fn parse_meta(request: &Request, line: &[u8], rest: &[u8], after: usize) -> Result<Parsed> {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let code = words.next().unwrap_or_default();
    let words: Vec<&[u8]> = words.collect();
    let opaque = format!("O{}", request.number);
    let is_its_own = words.contains(&opaque.as_bytes());
    if request.is_quiet && !is_its_own {
        return Ok(Parsed::Silent);
    }
    let whole = |reply| Ok(Parsed::Whole(vec![reply], after));
    match code {
        // memcached 1.6.18 returns only `EN` for a miss.
        b"EN" if words.is_empty() || is_its_own => return whole(Reply::NotFound),
        b"NF" if is_its_own => return whole(Reply::NotFound),
        b"NS" if is_its_own => return whole(Reply::NotStored),
        b"EX" if is_its_own => return whole(Reply::Exists),
        b"HD" | b"VA" if is_its_own => (),
        _ => return whole(parse_error(line)?),
    }
    let is_get = matches!(request.ask, Ask::Get { .. } | Ask::Touch { .. });
    let flags = if code == b"VA" { words.split_first().context("no length")?.1 } else { &words[..] };
    let mut reported = reported(flags)?;
    reported.facts = reported.facts.filter(|_| is_get);
    if code == b"HD" {
        return whole(Reply::Done(reported));
    }
    let (value, taken) = match value(rest, decimal(words[0])?)? {
        Ok(whole) => whole,
        Err(needed) => return Ok(Parsed::Part(after + needed)),
    };
    if is_get {
        reported.value = Some(value);
    } else {
        reported.number = Some(decimal(&value)?);
    }
    Ok(Parsed::Whole(vec![Reply::Done(reported)], after + taken))
}

/// Parses the properties in the words of a meta reply. (Opaques were checked before.)
fn reported(words: &[&[u8]]) -> Result<Reported> {
    let (mut reported, mut facts) = (Reported::default(), Facts::default());
    for word in words {
        let Some((letter, token)) = word.split_first() else { continue };
        match letter {
            b's' => reported.size = Some(decimal(token)?),
            b'f' => reported.flags = Some(decimal(token)?),
            b'c' => reported.cas = Some(decimal(token)?),
            b't' if token == b"-1" => reported.ttl = Some(None),
            b't' => reported.ttl = Some(Some(decimal(token)?)),
            b'h' => reported.was_fetched = Some(token == b"1"),
            b'W' => facts.is_won = true,
            b'X' => facts.is_stale = true,
            b'Z' => facts.is_claimed = true,
            b'O' => (),
            _ => bail!("an unrequested item or flag: {}", shown(word)),
        }
    }
    reported.facts = Some(facts);
    Ok(reported)
}
