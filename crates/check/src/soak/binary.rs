//! Requests and replies of the binary protocol.

use anyhow::{Context, Result, ensure};

use super::reply::{Parsed, Refusal, Reply};
use super::request::{Ask, Mode, Names, Pool, Request};
use crate::client::reply::{Answer, Code, Encoding, MAX_VALUE, Received, Reported, read};
use crate::client::shown;

/// The expiry in a counting request that must not create an item.
const DO_NOT_CREATE: u32 = u32::MAX;

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
    let (answer, whole) = match read(Encoding::Binary, input, MAX_VALUE)? {
        Received::Whole(answer, whole) => (answer, whole),
        Received::Part(needed) => return Ok(Parsed::Part(needed)),
    };
    let (of, number) = answer.opcode_and_opaque();
    if request.is_quiet && number != request.number {
        return Ok(Parsed::Silent);
    }
    let is_its_own = number == request.number && of == opcode(request);
    ensure!(is_its_own, "a reply to another request: {}", shown(answer.head));
    let reply = match answer.code {
        Code::Fence => return Ok(Parsed::Whole(Vec::new(), whole)),
        Code::Done => {
            let wanted = if requests_key(request) { names.of(request.keys[0].0) } else { Vec::new() };
            ensure!(answer.key == wanted, "a reply about {} instead of {}", shown(answer.key), shown(&wanted));
            Reply::Done(reported(request, answer)?)
        }
        code => failure(&request.ask, code).with_context(|| format!("a wrong status: {}", shown(answer.head)))?,
    };
    Ok(Parsed::Whole(vec![reply], whole))
}

fn reported(request: &Request, answer: Answer<'_>) -> Result<Reported> {
    let (reported, _) = answer.properties()?;
    let value = reported.value.unwrap_or_default();
    let only = Reported { cas: reported.cas, ..Reported::default() };
    Ok(match request.ask {
        Ask::Get { .. } => Reported { flags: Some(reported.flags.context("no flags")?), value: Some(value), ..only },
        Ask::Count { .. } => {
            let number = value[..].try_into().context("no number")?;
            Reported { number: Some(u64::from_be_bytes(number)), ..only }
        }
        _ => {
            ensure!(value.is_empty(), "an unrequested value: {}", shown(&value));
            Reported { cas: only.cas.filter(|_| !matches!(request.ask, Ask::Delete { .. })), ..only }
        }
    })
}

/// Converts an error to the reply that the text protocols send in that case.
fn failure(ask: &Ask, code: Code) -> Option<Reply> {
    let is_added = matches!(ask, Ask::Store { mode: Mode::Add, compare: None, .. });
    let is_replaced = matches!(ask, Ask::Store { mode: Mode::Replace, compare: None, .. });
    Some(match code {
        Code::NotFound if is_replaced => Reply::NotStored,
        Code::NotFound => Reply::NotFound,
        Code::Exists if is_added => Reply::NotStored,
        Code::Exists => Reply::Exists,
        Code::TooLarge => Reply::Refused(Refusal::TooLarge),
        Code::NotStored => Reply::NotStored,
        Code::NotNumeric => Reply::NotNumeric,
        Code::OutOfMemory => Reply::Refused(Refusal::OutOfMemory),
        _ => return None,
    })
}
