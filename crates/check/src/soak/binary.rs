//! Requests and replies of the binary protocol.

use anyhow::{Context, Result, bail, ensure};

use super::reply::{Parsed, Refusal, Reply, Reported};
use super::request::{Ask, Mode, Names, Pool, Request};
use crate::client::shown;

pub(super) const HEADER: usize = 24;

/// The expiry in a counting request that must not create an item.
const DO_NOT_CREATE: u32 = u32::MAX;

/// The maximum size of a reply to these requests.
const MAX_BODY: usize = 1 << 22;

pub(super) fn push(request: &Request, names: &Names, pool: &Pool, out: &mut Vec<u8>) {
    let (mut extras, mut value, mut cas) = (Vec::new(), Vec::new(), 0);
    match request.ask {
        Ask::Get { touch: Some(exptime), .. } | Ask::Touch { exptime } => {
            extras.extend_from_slice(&exptime.unsigned().to_be_bytes());
        }
        Ask::Store { mode, text, flags, exptime, compare, .. } => {
            if !matches!(mode, Mode::Append | Mode::Prepend) {
                extras.extend_from_slice(&flags.to_be_bytes());
                extras.extend_from_slice(&exptime.unsigned().to_be_bytes());
            }
            pool.push(text, &mut value);
            cas = compare.unwrap_or(0);
        }
        Ask::Count { delta, create, compare, .. } => {
            let (initial, exptime) =
                create.map_or((0, DO_NOT_CREATE), |(initial, exptime)| (initial, exptime.unsigned()));
            extras.extend_from_slice(&delta.to_be_bytes());
            extras.extend_from_slice(&initial.to_be_bytes());
            extras.extend_from_slice(&exptime.to_be_bytes());
            cas = compare.unwrap_or(0);
        }
        Ask::Delete { compare, .. } => cas = compare.unwrap_or(0),
        Ask::Get { touch: None, .. } | Ask::Fence => (),
    }
    let name = request.keys.first().map(|(key, _)| names.of(*key)).unwrap_or_default();
    let body = extras.len() + name.len() + value.len();
    out.extend_from_slice(&[0x80, opcode(request)]);
    out.extend_from_slice(&(name.len() as u16).to_be_bytes());
    out.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
    out.extend_from_slice(&(body as u32).to_be_bytes());
    out.extend_from_slice(&request.number.to_be_bytes());
    out.extend_from_slice(&cas.to_be_bytes());
    [extras, name, value].iter().for_each(|part| out.extend_from_slice(part));
}

/// Returns whether a `get` also requests the key. Every other one does.
fn requests_key(request: &Request) -> bool {
    matches!(request.ask, Ask::Get { .. }) && request.number.is_multiple_of(2)
}

fn opcode(request: &Request) -> u8 {
    let (loud, quiet) = match (request.ask, requests_key(request)) {
        (Ask::Get { touch: None, .. }, false) => (0x00, 0x09),
        (Ask::Get { touch: None, .. }, true) => (0x0c, 0x0d),
        (Ask::Get { .. }, false) => (0x1d, 0x1e),
        (Ask::Get { .. }, true) => (0x23, 0x24),
        (Ask::Store { mode, .. }, _) => match mode {
            Mode::Set => (0x01, 0x11),
            Mode::Add => (0x02, 0x12),
            Mode::Replace => (0x03, 0x13),
            Mode::Append => (0x0e, 0x19),
            Mode::Prepend => (0x0f, 0x1a),
        },
        (Ask::Delete { .. }, _) => (0x04, 0x14),
        (Ask::Count { is_up: true, .. }, _) => (0x05, 0x15),
        (Ask::Count { .. }, _) => (0x06, 0x16),
        (Ask::Touch { .. }, _) => (0x1c, 0x1c),
        (Ask::Fence, _) => (0x0a, 0x0a),
    };
    if request.is_quiet { quiet } else { loud }
}

/// Parses the beginning of the input as the reply to `request`.
pub(super) fn parse(request: &Request, names: &Names, input: &[u8]) -> Result<Parsed> {
    let Some(header) = input.first_chunk::<HEADER>() else { return Ok(Parsed::Part(HEADER)) };
    ensure!(header[0] == 0x81, "not a reply: {}", shown(header));
    let number = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
    if request.is_quiet && number != request.number {
        return Ok(Parsed::Silent);
    }
    ensure!(number == request.number && header[1] == opcode(request), "a reply to another request: {}", shown(header));
    let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    ensure!(body <= MAX_BODY, "a reply of {body} bytes");
    let Some(body) = input.get(HEADER..HEADER + body) else { return Ok(Parsed::Part(HEADER + body)) };
    let whole = HEADER + body.len();
    let cas = header[16..].iter().fold(0, |cas, byte| cas << 8 | u64::from(*byte));
    let reply = match u16::from_be_bytes([header[6], header[7]]) {
        0 if request.ask == Ask::Fence => return Ok(Parsed::Whole(Vec::new(), whole)),
        0 => {
            let (key, extras) = (usize::from(u16::from_be_bytes([header[2], header[3]])), usize::from(header[4]));
            let (extras, rest) = body.split_at_checked(extras).context("extras beyond the body")?;
            let (key, value) = rest.split_at_checked(key).context("a key beyond the body")?;
            let wanted = if requests_key(request) { names.of(request.keys[0].0) } else { Vec::new() };
            ensure!(key == wanted, "a reply about {} instead of {}", shown(key), shown(&wanted));
            Reply::Done(reported(request, cas, extras, value)?)
        }
        status => failure(&request.ask, status)?,
    };
    Ok(Parsed::Whole(vec![reply], whole))
}

fn reported(request: &Request, cas: u64, extras: &[u8], value: &[u8]) -> Result<Reported> {
    let cas = Some(cas).filter(|_| !matches!(request.ask, Ask::Delete { .. }));
    let mut reported = Reported { cas, ..Reported::default() };
    match request.ask {
        Ask::Get { .. } => {
            let flags = extras.try_into().context("no flags")?;
            (reported.flags, reported.value) = (Some(u32::from_be_bytes(flags)), Some(value.to_vec()));
        }
        Ask::Count { .. } => reported.number = Some(u64::from_be_bytes(value.try_into().context("no number")?)),
        _ => ensure!(value.is_empty(), "an unrequested value: {}", shown(value)),
    }
    Ok(reported)
}

/// Converts an error status to the reply that the text protocols send in that case.
fn failure(ask: &Ask, status: u16) -> Result<Reply> {
    let is_added = matches!(ask, Ask::Store { mode: Mode::Add, compare: None, .. });
    let is_replaced = matches!(ask, Ask::Store { mode: Mode::Replace, compare: None, .. });
    Ok(match status {
        1 if is_replaced => Reply::NotStored,
        1 => Reply::NotFound,
        2 if is_added => Reply::NotStored,
        2 => Reply::Exists,
        3 => Reply::Refused(Refusal::TooLarge),
        5 => Reply::NotStored,
        6 => Reply::NotNumeric,
        0x82 => Reply::Refused(Refusal::OutOfMemory),
        _ => bail!("status {status:#x}"),
    })
}
