//! Compares two replies for one key, and concludes what the servers hold.
//!
//! Replies may differ without a fault: a server evicts an item, an item expires a second earlier,
//! CAS values are each server's own, memory is short on one of them. These cases have verdicts of
//! their own.

use serde::Serialize;

use super::keys::State;
use super::reply::{Outcome, Part};
use super::request::{Request, Verb};

/// Times to live may differ by this number of seconds, because servers round them differently.
const MAX_TTL_DIFFERENCE: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Same,
    /// The servers were not known to hold the same item.
    Unknown,
    /// A write of another client overlapped with the request.
    Overlapped,
    /// The item is missing on one server only.
    Missing {
        on_secondary: bool,
        expires: bool,
    },
    /// One server, or both, refused the request for lack of memory.
    OutOfMemory,
    Different(Difference),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Difference {
    /// The items have different values, or different numbers.
    Value,
    /// Flags or other fields of the reply differ.
    Status,
    TimeToLive,
    /// One of the replies is an error, or they are different errors.
    Error,
    /// One server has an item that both must have removed.
    Presence,
    /// The reply of the secondary is malformed.
    Malformed,
}

impl Difference {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Status => "status",
            Self::TimeToLive => "time to live",
            Self::Error => "error",
            Self::Presence => "presence",
            Self::Malformed => "malformed reply",
        }
    }
}

/// Compares the replies of both servers. `state` is what they held before; `None` if a write of
/// another client overlapped. Returns what they hold now, too.
pub(super) fn judge(
    request: &Request,
    state: Option<State>,
    primary: &Part<'_>,
    secondary: &Part<'_>,
) -> (Verdict, State) {
    let Some(state) = state else { return (Verdict::Overlapped, State::Unknown) };
    let is_status_same = primary.status == secondary.status && primary.outcome == secondary.outcome;
    let is_value_same = primary.value == secondary.value;
    if is_status_same && is_value_same && are_close(primary.ttl, secondary.ttl) {
        return (Verdict::Same, after(request, state, primary, secondary));
    }
    if [primary, secondary].iter().any(|part| part.outcome == Outcome::OutOfMemory) {
        return (Verdict::OutOfMemory, State::Unknown);
    }
    if let (Some(before), Some(there)) = (primary.presence, secondary.presence)
        && before != there
    {
        let verdict = match state {
            State::Unknown => Verdict::Unknown,
            State::Absent => Verdict::Different(Difference::Presence),
            State::Present { expires, .. } => Verdict::Missing { on_secondary: before, expires },
        };
        return (verdict, State::Unknown);
    }
    let is_only_one_error = primary.is_error() != secondary.is_error();
    let depends_on_item = match request.verb {
        Verb::Set | Verb::Keyless | Verb::Flush => false,
        Verb::Get => !is_only_one_error,
        _ => true,
    };
    if state == State::Unknown && depends_on_item {
        return (Verdict::Unknown, State::Unknown);
    }
    let difference = if primary.is_error() || secondary.is_error() {
        Difference::Error
    } else if !is_value_same {
        Difference::Value
    } else if is_status_same {
        Difference::TimeToLive
    } else {
        Difference::Status
    };
    (Verdict::Different(difference), State::Unknown)
}

fn are_close(primary: Option<i64>, secondary: Option<i64>) -> bool {
    match (primary, secondary) {
        (Some(primary @ 0..), Some(secondary @ 0..)) => primary.abs_diff(secondary) <= MAX_TTL_DIFFERENCE,
        _ => primary == secondary,
    }
}

/// Returns what both servers hold after a request with the same outcome on both.
fn after(request: &Request, state: State, primary: &Part<'_>, secondary: &Part<'_>) -> State {
    let cas = primary.cas.zip(secondary.cas);
    let stored = State::Present { expires: request.expires, cas };
    // The state, if the request has changed the item.
    let changed = match state {
        State::Present { expires, .. } => State::Present { expires, cas },
        _ => state,
    };
    let outcome = primary.outcome;
    if matches!(outcome, Outcome::Error | Outcome::OutOfMemory) {
        // A `set` that fails removes the item. A count that finds something else than a number does
        // not.
        let is_unchanged = !request.verb.is_write() || primary.presence == Some(true);
        return if is_unchanged { state } else { State::Unknown };
    }
    match (request.verb, outcome) {
        (Verb::Keyless | Verb::Flush | Verb::Other, _) => State::Unknown,
        (Verb::Get | Verb::GetAndTouch, Outcome::Unspoken) | (_, Outcome::NotFound) => State::Absent,
        (Verb::Get, _) => match state {
            State::Present { expires, cas: known } => State::Present { expires, cas: cas.or(known) },
            _ if primary.is_whole => State::Present { expires: true, cas },
            _ => State::Unknown,
        },
        (Verb::GetAndTouch, _) if state == State::Unknown && !primary.is_whole => State::Unknown,
        (Verb::GetAndTouch, _) => stored,
        (Verb::Delete, Outcome::Success | Outcome::Unspoken) => State::Absent,
        (Verb::Set, Outcome::Success | Outcome::Unspoken) | (Verb::Add | Verb::Replace, Outcome::Success) => stored,
        (Verb::Add, Outcome::Unspoken) => match state {
            State::Absent => stored,
            // The item may have expired on one server only, which has then stored another one.
            State::Present { expires: true, .. } => State::Unknown,
            _ => state,
        },
        (Verb::Replace, Outcome::Unspoken) => match state {
            State::Present { expires, .. } => State::present(expires || request.expires),
            _ => state,
        },
        (Verb::Replace | Verb::Append, Outcome::NotStored) => State::Absent,
        (Verb::Touch, Outcome::Success) if state != State::Unknown => stored,
        (Verb::Touch, Outcome::Unspoken) => match state {
            State::Present { .. } => State::present(true),
            _ => state,
        },
        (_, Outcome::Exists | Outcome::NotStored) => state,
        _ => changed,
    }
}

#[cfg(test)]
mod tests {
    use super::super::framing::Dialect;
    use super::super::reply::parts;
    use super::*;
    use relativist_memcache::{Decoded, Decoder, Limits};

    /// Judges the replies of two servers to a request.
    fn verdict(bytes: &str, state: State, primary: &str, secondary: &str) -> (Verdict, State) {
        let Decoded::Command { command, .. } = Decoder::new(Limits::default()).decode(bytes.as_bytes()) else {
            panic!("{bytes}")
        };
        let request = Request { bytes: bytes.as_bytes().to_vec(), ..Request::of_text(&command) };
        assert_eq!(request.dialect, Dialect::Text);
        let [primary, secondary] = [primary, secondary].map(|reply| parts(&request, reply.as_bytes()).expect(reply));
        judge(&request, Some(state), &primary[0], &secondary[0])
    }

    const KNOWN: State = State::Present { expires: false, cas: None };

    #[test]
    fn values_flags_times_and_errors_are_compared_if_the_item_is_known() {
        let hit = |flags: u32, value: &str| format!("VALUE k {flags} 1\r\n{value}\r\nEND\r\n");
        let cases = [
            ("get k\r\n", hit(0, "a"), hit(0, "b"), Difference::Value),
            ("get k\r\n", hit(0, "a"), hit(1, "a"), Difference::Status),
            ("mg k t\r\n", "HD t10\r\n".into(), "HD t14\r\n".into(), Difference::TimeToLive),
            ("mg k t\r\n", "HD t-1\r\n".into(), "HD t1\r\n".into(), Difference::TimeToLive),
            ("incr k 1\r\n", "5\r\n".into(), "6\r\n".into(), Difference::Status),
            ("incr k 1\r\n", "5\r\n".into(), "CLIENT_ERROR x\r\n".into(), Difference::Error),
        ];
        for (request, primary, secondary, difference) in cases {
            let judged = verdict(request, KNOWN, &primary, &secondary);
            assert_eq!(judged, (Verdict::Different(difference), State::Unknown), "{request} {secondary}");
            let unknown = verdict(request, State::Unknown, &primary, &secondary);
            assert_eq!(unknown, (Verdict::Unknown, State::Unknown), "{request}");
        }
        let set = "set k 0 0 1\r\nx\r\n";
        let refused = verdict(set, State::Unknown, "STORED\r\n", "SERVER_ERROR object too large for cache\r\n");
        assert_eq!(refused.0, Verdict::Different(Difference::Error));
        let full = verdict(set, KNOWN, "STORED\r\n", "SERVER_ERROR out of memory storing object\r\n");
        assert_eq!(full, (Verdict::OutOfMemory, State::Unknown));
    }

    #[test]
    fn what_may_differ_is_not_compared() {
        let seen = State::Present { expires: true, cas: Some((5, 9)) };
        assert_eq!(
            verdict("gets k\r\n", State::Unknown, "VALUE k 0 1 5\r\na\r\nEND\r\n", "VALUE k 0 1 9\r\na\r\nEND\r\n"),
            (Verdict::Same, seen)
        );
        let [primary, secondary] = ["VA 1 c5 t10 l3 h1 kk\r\na\r\n", "VA 1 c9 t9 l0 h0 kk\r\na\r\n"];
        let same = verdict("mg k c t l h k v\r\n", KNOWN, primary, secondary);
        assert_eq!(same, (Verdict::Same, State::Present { expires: false, cas: Some((5, 9)) }));
        // These replies show only a part of an item.
        for request in ["mg k t\r\n", "mg k t T30\r\n"] {
            assert_eq!(verdict(request, State::Unknown, "HD t9\r\n", "HD t9\r\n").1, State::Unknown);
        }
        let whole = verdict("mg k f v\r\n", State::Unknown, "VA 1 f7\r\na\r\n", "VA 1 f7\r\na\r\n");
        assert_eq!(whole.1, State::Present { expires: true, cas: None });
        // An item that has expired already.
        assert_eq!(verdict("mg k t T-1\r\n", KNOWN, "HD t4294967232\r\n", "HD t0\r\n").0, Verdict::Same);
    }

    #[test]
    fn missing_items_are_told_from_items_that_should_be_gone() {
        let hit = "VALUE k 0 1\r\na\r\nEND\r\n";
        let missing = Verdict::Missing { on_secondary: true, expires: false };
        assert_eq!(verdict("get k\r\n", KNOWN, hit, "END\r\n").0, missing);
        assert_eq!(verdict("delete k\r\n", KNOWN, "DELETED\r\n", "NOT_FOUND\r\n").0, missing);
        assert_eq!(verdict("add k 0 0 1\r\nx\r\n", KNOWN, "NOT_STORED\r\n", "STORED\r\n").0, missing);
        assert_eq!(verdict("ma k N0\r\n", KNOWN, "HD\r\n", "HD\r\n").1, State::Unknown);
        assert_eq!(verdict("ma k N0 J7 v\r\n", KNOWN, "VA 1\r\n8\r\n", "VA 1\r\n7\r\n").0, missing);
        assert_eq!(verdict("mg k N0 v\r\n", KNOWN, "VA 1\r\na\r\n", "VA 0 W\r\n\r\n").0, missing);
        let expired = State::Present { expires: true, cas: None };
        let missing = Verdict::Missing { on_secondary: false, expires: true };
        let not_a_number = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
        assert_eq!(verdict("incr k 1\r\n", expired, "NOT_FOUND\r\n", not_a_number).0, missing);
        assert_eq!(verdict("ma k N0 J7 v\r\n", expired, "VA 1\r\n7\r\n", not_a_number).0, missing);
        let missing = Verdict::Missing { on_secondary: true, expires: true };
        assert_eq!(verdict("ms k 1 q MR\r\nx\r\n", expired, "", "NS\r\n").0, missing);
        assert_eq!(verdict("add k 0 0 1 noreply\r\nx\r\n", expired, "", "").1, State::Unknown);
        let gone = verdict("delete k\r\n", KNOWN, "DELETED\r\n", "DELETED\r\n");
        assert_eq!(gone, (Verdict::Same, State::Absent));
        let back = verdict("get k\r\n", State::Absent, "END\r\n", hit);
        assert_eq!(back.0, Verdict::Different(Difference::Presence));
        assert_eq!(verdict("get k\r\n", State::Unknown, hit, "END\r\n").0, Verdict::Unknown);
    }
}
