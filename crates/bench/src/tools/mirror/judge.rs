//! What the replies of both servers say about each key, whether they agree, and what the servers
//! hold then.
//!
//! Replies may differ without a fault: a server evicts an item, an item expires a second earlier,
//! CAS values are each server's own, memory is short on one of them. These cases have fates of
//! their own.

use relativist_check::client::reply::{Answer, Code, Encoding, MAX_VALUE, Received, Reported, read};
use relativist_check::client::shown;

use super::keys::State;
use super::report::Fate;
use super::request::{Request, Verb};

/// Times to live may differ by this number of seconds, because servers round them differently.
const MAX_TTL_DIFFERENCE: u64 = 2;

/// The reply for one key.
#[derive(Debug)]
pub(super) struct Part<'a> {
    /// `None`: the server sent no reply, as the client wished.
    code: Option<Code>,
    /// Bytes that must be the same on both servers.
    fixed: &'a [u8],
    others: Vec<&'a [u8]>,
    reported: Reported,
    /// Whether there was an item before the request, if the reply shows that.
    pub(super) presence: Option<bool>,
}

impl<'a> Part<'a> {
    fn new(request: &Request, code: Option<Code>, fixed: &'a [u8]) -> Self {
        let presence = match code {
            Some(Code::Done | Code::Item) => match request.verb {
                Verb::Set => None,
                verb => Some(verb != Verb::Add),
            },
            Some(Code::NotFound) => Some(false),
            Some(Code::NotStored) => Some(request.verb == Verb::Add),
            Some(Code::Exists | Code::NotNumeric) => Some(true),
            _ => None,
        };
        Self { code, fixed, others: Vec::new(), reported: Reported::default(), presence }
    }

    /// Returns the part of a request without a reply. For a read that means that the item is
    /// missing; for some other requests, that they have succeeded.
    fn of_silence(request: &Request) -> Self {
        let succeeds = match request.encoding {
            Encoding::Text => request.bytes.starts_with(b"ms"),
            Encoding::Binary => !request.is_read(),
        };
        let is_miss = request.is_read() || request.bytes.starts_with(b"mg");
        let code = if is_miss { Some(Code::NotFound) } else { succeeds.then_some(Code::Done) };
        Self { code: None, ..Self::new(request, code, b"") }
    }

    fn of(request: &Request, answer: &Answer<'a>) -> Option<Self> {
        let code = match answer.code {
            Code::Exists if request.encoding == Encoding::Binary && request.verb == Verb::Add => Code::NotStored,
            code => code,
        };
        let is_described = code == Code::Item || answer.words().next().is_some();
        let fixed = match request.encoding {
            Encoding::Text if is_described => b"",
            Encoding::Text => answer.head,
            // The opcode.
            Encoding::Binary => &answer.head[1..2],
        };
        let mut part = Self::new(request, Some(code), fixed);
        (part.reported, part.others) = answer.properties().ok()?;
        // CAS values are each server's own, and when an item was accessed depends on the order of
        // the reads of several clients. The key is that of the request.
        part.others.retain(|word| !matches!(word[0], b'k' | b'l'));
        (part.reported.was_fetched, part.reported.cas) = (None, None);
        let is_created = match (request.initial, &part.reported) {
            (Some(initial), Reported { value: Some(value), .. }) => is_number(value, initial, request.encoding),
            (Some(_), _) if part.is_success() => {
                part.presence = None;
                false
            }
            // `mg` with `N` creates an empty item.
            (None, Reported { facts: Some(facts), value, .. }) => {
                request.verb == Verb::Other && facts.is_won && value.as_ref().is_some_and(Vec::is_empty)
            }
            _ => false,
        };
        if is_created {
            part.presence = Some(false);
        }
        Some(part)
    }

    fn is_success(&self) -> bool {
        matches!(self.code, Some(Code::Done | Code::Item))
    }

    fn is_error(&self) -> bool {
        matches!(self.code, Some(Code::Error | Code::NotNumeric | Code::TooLarge))
    }

    fn is_out_of_memory(&self) -> bool {
        matches!(self.code, Some(Code::OutOfMemory | Code::Midway))
    }

    /// Whether the reply shows the value and the flags of an item.
    fn is_whole(&self) -> bool {
        self.reported.value.is_some() && self.reported.flags.is_some()
    }

    /// Returns the time to live; -1 if the item does not expire. If an item has expired already,
    /// memcached shows the negative time as a number without sign, and relativistd shows 0.
    fn ttl(&self) -> Option<i64> {
        let shown = |ttl: u32| i32::try_from(ttl).map_or(0, i64::from);
        self.reported.ttl.map(|ttl| ttl.map_or(-1, shown))
    }

    /// Returns the code and the properties that must be the same on both servers.
    fn status(&self) -> (Option<Code>, &[u8], &[&[u8]], Reported) {
        let reported = Reported { value: None, ttl: None, ..self.reported.clone() };
        (self.code, self.fixed, &self.others, reported)
    }

    /// Formats the reply for an example: without the key.
    pub(super) fn show(&self) -> String {
        let Some(code) = self.code else { return "nothing".into() };
        let value = self.reported.value.as_ref().map(|value| shown(value)).unwrap_or_default();
        match code {
            Code::Error | Code::Other => shown(self.fixed),
            _ => format!("{code:?} {} {:?} {value}", shown(self.fixed), self.reported),
        }
    }
}

/// Returns whether a count reported this number.
fn is_number(value: &[u8], number: u64, encoding: Encoding) -> bool {
    match encoding {
        Encoding::Text => value == number.to_string().as_bytes(),
        Encoding::Binary => value == number.to_be_bytes(),
    }
}

/// Returns the reply for each key, or for the request if it has no keys. Returns `None` if the
/// reply is malformed.
pub(super) fn parts<'a>(request: &Request, reply: &'a [u8]) -> Option<Vec<Part<'a>>> {
    let (mut answers, mut rest) = (Vec::new(), reply);
    while !rest.is_empty() {
        let Ok(Received::Whole(answer, length)) = read(request.encoding, rest, MAX_VALUE) else { return None };
        answers.push(answer);
        rest = &rest[length..];
    }
    match &answers[..] {
        [] => Some(vec![Part::of_silence(request)]),
        _ if request.is_classic_read() => items(request, &answers),
        [answer] => Some(vec![Part::of(request, answer)?]),
        // Only a request with an error can get several lines.
        _ => (request.verb == Verb::Keyless).then(|| vec![Part::new(request, Some(Code::Error), reply)]),
    }
}

/// Returns the found items in the order of the keys, and the missing ones.
fn items<'a>(request: &Request, answers: &[Answer<'a>]) -> Option<Vec<Part<'a>>> {
    let (last, items) = answers.split_last()?;
    let (mut parts, mut keys) = (Vec::new(), request.keys.iter());
    let missing = || Part::new(request, Some(Code::NotFound), b"");
    for item in items {
        let skipped = keys.position(|key| key == item.key)?;
        parts.extend((0..skipped).map(|_| missing()));
        parts.push(Part::of(request, item).filter(|_| item.code == Code::Item)?);
    }
    for _ in keys {
        parts.push(if last.code == Code::End { missing() } else { Part::of(request, last)? });
    }
    let is_complete =
        last.code == Code::End || parts.last().is_some_and(|part| part.is_error() || part.is_out_of_memory());
    is_complete.then_some(parts)
}

/// Returns whether a request succeeded, according to its reply.
pub(super) fn is_success(request: &Request, reply: &[u8]) -> bool {
    parts(request, reply).is_some_and(|parts| parts.iter().all(Part::is_success))
}

/// Compares the replies of both servers. `state` is what they held before; `None` if a write of
/// another client overlapped. Returns what they hold now, too.
pub(super) fn judge(
    request: &Request,
    state: Option<State>,
    primary: &Part<'_>,
    secondary: &Part<'_>,
) -> (Fate, State) {
    let Some(state) = state else { return (Fate::Overlapped, State::Unknown) };
    let is_status_same = primary.status() == secondary.status();
    let is_value_same = primary.reported.value == secondary.reported.value;
    if is_status_same && is_value_same && are_close(primary.ttl(), secondary.ttl()) {
        return (Fate::Same, after(request, state, primary));
    }
    if primary.is_out_of_memory() || secondary.is_out_of_memory() {
        return (Fate::OutOfMemory, State::Unknown);
    }
    if let (Some(before), Some(there)) = (primary.presence, secondary.presence)
        && before != there
    {
        let fate = match state {
            State::Unknown => Fate::Unknown,
            State::Absent => Fate::Presence,
            State::Present { .. } if !before => Fate::MissingOnPrimary,
            State::Present { expires: true, .. } => Fate::ExpiringMissing,
            State::Present { expires: false, .. } => Fate::LastingMissing,
        };
        return (fate, State::Unknown);
    }
    let is_only_one_error = primary.is_error() != secondary.is_error();
    let depends_on_item = match request.verb {
        Verb::Set | Verb::Keyless | Verb::Flush => false,
        Verb::Get => !is_only_one_error,
        _ => true,
    };
    let fate = if state == State::Unknown && depends_on_item {
        Fate::Unknown
    } else if primary.is_error() || secondary.is_error() {
        Fate::Error
    } else if !is_value_same {
        Fate::Value
    } else if is_status_same {
        Fate::TimeToLive
    } else {
        Fate::Status
    };
    (fate, State::Unknown)
}

fn are_close(primary: Option<i64>, secondary: Option<i64>) -> bool {
    match (primary, secondary) {
        (Some(primary @ 0..), Some(secondary @ 0..)) => primary.abs_diff(secondary) <= MAX_TTL_DIFFERENCE,
        _ => primary == secondary,
    }
}

/// Returns what both servers hold after a request with this outcome on both.
fn after(request: &Request, state: State, part: &Part<'_>) -> State {
    let stored = State::Present { expires: request.expires };
    if part.is_error() || part.is_out_of_memory() {
        // A `set` that fails removes the item. A count that finds something else than a number does
        // not.
        let is_unchanged = !request.verb.is_write() || part.presence == Some(true);
        return if is_unchanged { state } else { State::Unknown };
    }
    match (request.verb, part.code) {
        (Verb::Keyless | Verb::Flush | Verb::Other, _) => State::Unknown,
        (Verb::Get | Verb::GetAndTouch, None) | (_, Some(Code::NotFound)) => State::Absent,
        (Verb::Replace | Verb::Append, Some(Code::NotStored)) => State::Absent,
        (Verb::Delete, None | Some(Code::Done)) => State::Absent,
        (Verb::Set, None | Some(Code::Done)) | (Verb::Add | Verb::Replace, Some(Code::Done)) => stored,
        (Verb::Get, _) if state == State::Unknown && part.is_whole() => State::Present { expires: true },
        (Verb::GetAndTouch, _) if state != State::Unknown || part.is_whole() => stored,
        (Verb::Touch, Some(Code::Done)) if state != State::Unknown => stored,
        // It is not known whether the request has changed the item, or its expiry.
        (Verb::Add | Verb::Replace | Verb::Touch, None) => State::Unknown,
        _ => state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relativist_memcache::{Decoded, Decoder, Limits};

    /// Judges the replies of two servers to a request.
    fn verdict(bytes: &str, state: State, primary: &str, secondary: &str) -> (Fate, State) {
        let Decoded::Command { command, .. } = Decoder::new(Limits::default()).decode(bytes.as_bytes()) else {
            panic!("{bytes}")
        };
        let request = Request { bytes: bytes.as_bytes().to_vec(), ..Request::of_text(&command) };
        assert_eq!(request.encoding, Encoding::Text);
        let [primary, secondary] = [primary, secondary].map(|reply| parts(&request, reply.as_bytes()).expect(reply));
        judge(&request, Some(state), &primary[0], &secondary[0])
    }

    const KNOWN: State = State::Present { expires: false };

    #[test]
    fn values_flags_times_and_errors_are_compared_if_the_item_is_known() {
        let hit = |flags: u32, value: &str| format!("VALUE k {flags} 1\r\n{value}\r\nEND\r\n");
        let cases = [
            ("get k\r\n", hit(0, "a"), hit(0, "b"), Fate::Value),
            ("get k\r\n", hit(0, "a"), hit(1, "a"), Fate::Status),
            ("mg k t\r\n", "HD t10\r\n".into(), "HD t14\r\n".into(), Fate::TimeToLive),
            ("mg k t\r\n", "HD t-1\r\n".into(), "HD t1\r\n".into(), Fate::TimeToLive),
            ("incr k 1\r\n", "5\r\n".into(), "6\r\n".into(), Fate::Value),
            ("incr k 1\r\n", "5\r\n".into(), "CLIENT_ERROR x\r\n".into(), Fate::Error),
        ];
        for (request, primary, secondary, difference) in cases {
            let judged = verdict(request, KNOWN, &primary, &secondary);
            assert_eq!(judged, (difference, State::Unknown), "{request} {secondary}");
            let unknown = verdict(request, State::Unknown, &primary, &secondary);
            assert_eq!(unknown, (Fate::Unknown, State::Unknown), "{request}");
        }
        let set = "set k 0 0 1\r\nx\r\n";
        let refused = verdict(set, State::Unknown, "STORED\r\n", "SERVER_ERROR object too large for cache\r\n");
        assert_eq!(refused.0, Fate::Error);
        let full = verdict(set, KNOWN, "STORED\r\n", "SERVER_ERROR out of memory storing object\r\n");
        assert_eq!(full, (Fate::OutOfMemory, State::Unknown));
    }

    #[test]
    fn what_may_differ_is_not_compared() {
        let seen = State::Present { expires: true };
        assert_eq!(
            verdict("gets k\r\n", State::Unknown, "VALUE k 0 1 5\r\na\r\nEND\r\n", "VALUE k 0 1 9\r\na\r\nEND\r\n"),
            (Fate::Same, seen)
        );
        let [primary, secondary] = ["VA 1 c5 t10 l3 h1 kk\r\na\r\n", "VA 1 c9 t9 l0 h0 kk\r\na\r\n"];
        let same = verdict("mg k c t l h k v\r\n", KNOWN, primary, secondary);
        assert_eq!(same, (Fate::Same, KNOWN));
        // These replies show only a part of an item.
        for request in ["mg k t\r\n", "mg k t T30\r\n"] {
            assert_eq!(verdict(request, State::Unknown, "HD t9\r\n", "HD t9\r\n").1, State::Unknown);
        }
        let whole = verdict("mg k f v\r\n", State::Unknown, "VA 1 f7\r\na\r\n", "VA 1 f7\r\na\r\n");
        assert_eq!(whole.1, State::Present { expires: true });
        // An item that has expired already.
        assert_eq!(verdict("mg k t T-1\r\n", KNOWN, "HD t4294967232\r\n", "HD t0\r\n").0, Fate::Same);
    }

    #[test]
    fn missing_items_are_told_from_items_that_should_be_gone() {
        let hit = "VALUE k 0 1\r\na\r\nEND\r\n";
        let missing = Fate::LastingMissing;
        assert_eq!(verdict("get k\r\n", KNOWN, hit, "END\r\n").0, missing);
        assert_eq!(verdict("delete k\r\n", KNOWN, "DELETED\r\n", "NOT_FOUND\r\n").0, missing);
        assert_eq!(verdict("add k 0 0 1\r\nx\r\n", KNOWN, "NOT_STORED\r\n", "STORED\r\n").0, missing);
        assert_eq!(verdict("ma k N0\r\n", KNOWN, "HD\r\n", "HD\r\n").1, State::Unknown);
        assert_eq!(verdict("ma k N0 J7 v\r\n", KNOWN, "VA 1\r\n8\r\n", "VA 1\r\n7\r\n").0, missing);
        assert_eq!(verdict("mg k N0 v\r\n", KNOWN, "VA 1\r\na\r\n", "VA 0 W\r\n\r\n").0, missing);
        let expired = State::Present { expires: true };
        let missing = Fate::MissingOnPrimary;
        let not_a_number = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
        assert_eq!(verdict("incr k 1\r\n", expired, "NOT_FOUND\r\n", not_a_number).0, missing);
        assert_eq!(verdict("ma k N0 J7 v\r\n", expired, "VA 1\r\n7\r\n", not_a_number).0, missing);
        let missing = Fate::ExpiringMissing;
        assert_eq!(verdict("ms k 1 q MR\r\nx\r\n", expired, "", "NS\r\n").0, missing);
        assert_eq!(verdict("add k 0 0 1 noreply\r\nx\r\n", expired, "", "").1, State::Unknown);
        let gone = verdict("delete k\r\n", KNOWN, "DELETED\r\n", "DELETED\r\n");
        assert_eq!(gone, (Fate::Same, State::Absent));
        let back = verdict("get k\r\n", State::Absent, "END\r\n", hit);
        assert_eq!(back.0, Fate::Presence);
        assert_eq!(verdict("get k\r\n", State::Unknown, hit, "END\r\n").0, Fate::Unknown);
    }
}
