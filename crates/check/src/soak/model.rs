//! The model of a key that only one client uses. Its item is exactly what that client stored, or
//! missing if it expired or was evicted.
//!
//! Most replies show whether there was an item. So a reply is checked in two steps. The first one
//! checks whether an item, or no item, was possible. The second one checks the rest of the reply,
//! and computes the new item.

use std::fmt;

use anyhow::{Context, Result, bail, ensure};

use super::reply::{Refusal, Reply};
use super::request::{Ask, Dialect, Exptime, Mode, Pool};
use crate::client::reply::Reported;

/// The earliest and the latest second at which an operation may have happened, by the server's
/// clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    pub(super) earliest: u32,
    pub(super) latest: u32,
}

/// If memory runs out while a value of at least this size arrives, memcached keeps the old item.
pub(super) const LARGE: usize = 400_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Forever,
    /// The item expires at a second between these two.
    Until {
        earliest: u32,
        latest: u32,
    },
}

impl Life {
    fn new(exptime: Exptime, when: When) -> Self {
        match exptime {
            Exptime::Never => Self::Forever,
            Exptime::Past => Self::Until { earliest: 0, latest: 0 },
            Exptime::In(seconds) => Self::Until { earliest: when.earliest + seconds, latest: when.latest + seconds },
            Exptime::At(second) => Self::Until { earliest: second, latest: second },
        }
    }

    fn is_over(self, when: When) -> bool {
        matches!(self, Self::Until { latest, .. } if latest <= when.earliest)
    }

    fn goes_on(self, when: When) -> bool {
        matches!(self, Self::Forever) || matches!(self, Self::Until { earliest, .. } if earliest > when.latest)
    }

    fn admits(self, ttl: Option<u32>, when: When) -> bool {
        match (self, ttl) {
            (Self::Forever, None) => true,
            (Self::Until { earliest, latest }, Some(ttl)) => {
                (earliest.saturating_sub(when.latest)..=latest.saturating_sub(when.earliest)).contains(&ttl)
            }
            _ => false,
        }
    }
}

#[derive(Clone)]
struct Item {
    /// The possible values. There are several after a number has become shorter: memcached pads it
    /// with spaces, but only if nothing else, such as its crawler, uses the item at that moment.
    values: Vec<Vec<u8>>,
    flags: u32,
    life: Life,
    /// The CAS value; `None` if it is only known to differ from the earlier one.
    cas: Option<u64>,
    is_stale: bool,
    is_claimed: bool,
    was_fetched: Option<bool>,
    /// Whether the item may be missing, because no reply showed whether it was stored.
    is_doubtful: bool,
}

impl fmt::Debug for Item {
    /// Prints only the lengths of values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths: Vec<usize> = self.values.iter().map(Vec::len).collect();
        let Self { flags, life, cas, is_stale, is_claimed, .. } = self;
        write!(f, "an item of {lengths:?} bytes, flags {flags}, {life:?}, CAS value {cas:?}")?;
        write!(f, ", {}stale, {}claimed", if *is_stale { "" } else { "not " }, if *is_claimed { "" } else { "not " })
    }
}

/// A key that only one client uses, and its item.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) generation: u32,
    item: Option<Item>,
    /// The last CAS value reported for the item.
    pub(super) cas: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    pub(super) ask: &'a Ask,
    pub(super) dialect: Dialect,
    pub(super) pool: &'a Pool,
    /// The server must refuse longer values.
    pub(super) largest: usize,
}

impl Slot {
    /// Replaces a key whose state is unknown by a new one.
    pub(super) fn retire(&mut self) {
        *self = Self { generation: self.generation + 1, ..Self::default() };
    }

    pub(super) fn flush(&mut self) {
        self.item = None;
    }

    /// Notes that another process serves. It has the same item, under a new CAS value.
    pub(super) fn hand_over(&mut self) {
        if let Some(item) = &mut self.item {
            item.cas = None;
        }
    }

    /// Checks the reply to a request that was executed at `when`. Returns whether an item is
    /// missing that must therefore have been evicted.
    pub(super) fn check(&mut self, question: Question<'_>, reply: &Reply, when: When) -> Result<bool> {
        let mut is_missing = false;
        if self.item.as_ref().is_some_and(|item| item.life.is_over(when)) {
            self.item = None;
        }
        match (presence(question.ask, reply), &self.item) {
            (Some(true), None) => bail!("the server reports an item, but there can be none"),
            (Some(false), Some(item)) => {
                is_missing = item.life.goes_on(when) && !item.is_doubtful;
                self.item = None;
            }
            _ => (),
        }
        let before = self.cas;
        if let Reply::Done(Reported { cas: Some(cas), .. }) = reply {
            self.cas = *cas;
        }
        self.item = answered(question, self.item.take(), reply, when, before)?;
        Ok(is_missing)
    }
}

/// Returns whether a reply shows that there was an item, or none; `None` if it does not show that.
fn presence(ask: &Ask, reply: &Reply) -> Option<bool> {
    match (ask, reply) {
        (_, Reply::Unspoken | Reply::Refused(_)) | (Ask::Store { mode: Mode::Set, compare: None, .. }, _) => None,
        (Ask::Store { mode: Mode::Add, .. }, _) => Some(matches!(reply, Reply::NotStored)),
        // A client wins an existing item only if it is stale, or if the request has `recache`,
        // which no request combines with `vivify`.
        (Ask::Get { vivify: Some(_), .. }, Reply::Done(reported)) => {
            Some(reported.facts.is_none_or(|facts| !facts.is_won || facts.is_stale))
        }
        (Ask::Count { create: Some((initial, _)), .. }, Reply::Done(reported)) => {
            Some(reported.number != Some(*initial))
        }
        (_, Reply::Done(_) | Reply::Exists | Reply::NotNumeric) => Some(true),
        (_, Reply::NotFound | Reply::NotStored) => Some(false),
    }
}

/// Checks a reply, given the item before it. Returns the item after it. New CAS values must not be
/// the `known` one.
fn answered(
    question: Question<'_>,
    present: Option<Item>,
    reply: &Reply,
    when: When,
    known: u64,
) -> Result<Option<Item>> {
    let fits = |compare: Option<u64>, item: &Item| compare.is_none_or(|cas| item.cas == Some(cas));
    Ok(match (*question.ask, present, reply) {
        (_, present, Reply::Refused(refusal)) => refused(question, present, *refusal)?,
        (Ask::Get { touch, recache, .. }, Some(item), Reply::Done(reported)) => {
            Some(item.read(touch, recache, reported, when, known)?)
        }
        (Ask::Get { vivify: Some(exptime), .. }, None, Reply::Done(reported)) => {
            let mut item = Item::new(Vec::new(), 0, Life::new(exptime, when));
            item.check(reported, when, known)?;
            (item.is_claimed, item.cas, item.was_fetched) = (true, reported.cas, None);
            Some(item)
        }
        (Ask::Get { vivify: None, .. } | Ask::Touch { .. } | Ask::Delete { .. }, None, Reply::NotFound) => None,
        // The meta protocol has no separate touch command, so touching an item also reads it.
        (Ask::Touch { exptime }, Some(item), Reply::Done(reported)) => {
            Some(Item { was_fetched: None, ..item.read(Some(exptime), None, reported, when, known)? })
        }
        (Ask::Delete { .. }, _, Reply::Unspoken) => None,
        (Ask::Delete { compare, invalidates }, Some(item), Reply::Done(_)) => {
            ensure!(fits(compare, &item), "the server deleted an item with another CAS value: {item:?}");
            invalidates.map(|exptime| item.invalidated(exptime, when))
        }
        (Ask::Delete { compare, .. } | Ask::Count { compare, .. }, Some(item), Reply::Exists) => {
            ensure!(!fits(compare, &item), "the server refused the right CAS value: {item:?}");
            Some(item)
        }
        (Ask::Count { is_up, delta, create, compare }, present, reply) => match (present, create, reply) {
            (Some(item), _, Reply::Done(reported)) => {
                ensure!(fits(compare, &item), "the server changed a counter with another CAS value: {item:?}");
                Some(item.counted(is_up, delta, reported, when, known)?)
            }
            (Some(item), _, Reply::NotNumeric) => {
                Some(item.narrowed(|value| number(value).is_none()).context("the server refused to change a number")?)
            }
            (None, Some((initial, exptime)), Reply::Done(reported)) => {
                let item = Item::new(initial.to_string().into_bytes(), 0, Life::new(exptime, when));
                Some(item.stored(reported, known)?)
            }
            (None, None, Reply::NotFound) => None,
            _ => bail!("not a possible reply"),
        },
        (Ask::Store { .. }, present, reply) => stored(question, present, reply, when, known)?,
        _ => bail!("not a possible reply"),
    })
}

fn stored(
    question: Question<'_>,
    present: Option<Item>,
    reply: &Reply,
    when: When,
    known: u64,
) -> Result<Option<Item>> {
    let Ask::Store { mode, text, flags, exptime, compare, invalidates } = *question.ask else {
        unreachable!("the caller saw it")
    };
    ensure!(
        text.len(question.pool) <= question.largest || *reply == Reply::Unspoken,
        "the server stored a value above its limit"
    );
    let mut value = Vec::new();
    question.pool.push(text, &mut value);
    let new = |value| Item::new(value, flags, Life::new(exptime, when));
    let is_right = |item: &Item| compare.is_none_or(|cas| item.cas == Some(cas));
    Ok(match (mode, present, reply) {
        (Mode::Set, _, Reply::Unspoken) => Some(Item { is_doubtful: true, ..new(value) }),
        (Mode::Append | Mode::Prepend, Some(mut item), Reply::Done(reported)) if is_right(&item) => {
            for before in &mut item.values {
                *before = if mode == Mode::Append { [&**before, &value].concat() } else { [&*value, before].concat() };
            }
            (item.is_stale, item.is_claimed, item.was_fetched) = (false, false, Some(false));
            Some(item.stored(reported, known)?)
        }
        (Mode::Set | Mode::Replace, Some(item), Reply::Done(reported)) if !is_right(&item) && invalidates => {
            // The CAS value in the request is older than that of the item, so the new item is
            // stale.
            let Item { life, is_claimed, .. } = item;
            let stale = Item { life, is_claimed, is_stale: true, was_fetched: None, ..new(value) };
            Some(stale.stored(reported, known)?)
        }
        (Mode::Set | Mode::Replace, Some(item), Reply::Done(reported)) if is_right(&item) => {
            Some(new(value).stored(reported, known)?)
        }
        (Mode::Set, None, Reply::Done(reported)) if compare.is_none() => Some(new(value).stored(reported, known)?),
        (Mode::Add, None, Reply::Done(reported)) => Some(new(value).stored(reported, known)?),
        (Mode::Add, Some(item), Reply::NotStored) => Some(item),
        (Mode::Replace | Mode::Append | Mode::Prepend, None, Reply::NotStored) => None,
        (_, Some(item), Reply::Exists) if !is_right(&item) && !invalidates => Some(item),
        (_, None, Reply::NotFound) if compare.is_some() => None,
        (_, present, _) => bail!("not a possible reply if the item is {present:?}"),
    })
}

fn refused(question: Question<'_>, present: Option<Item>, refusal: Refusal) -> Result<Option<Item>> {
    let is_too_large = matches!(question.ask, Ask::Store { text, .. } if text.len(question.pool) > question.largest);
    ensure!(is_too_large == (refusal == Refusal::TooLarge), "the server refused for a wrong reason");
    let doubtful = |item: Item| Item { is_doubtful: true, ..item };
    let is_large = matches!(question.ask, Ask::Store { text, .. } if text.len(question.pool) >= LARGE);
    Ok(match (question.dialect, question.ask) {
        _ if refusal == Refusal::Midway || (is_large && !is_too_large) => present.map(doubtful),
        // The old item is removed, because its value must never be read after the client tried to
        // replace it.
        (Dialect::Meta, Ask::Store { .. }) | (_, Ask::Store { mode: Mode::Set, compare: None, .. }) => None,
        (Dialect::Binary, Ask::Store { mode: Mode::Set, .. }) | (Dialect::Meta, Ask::Delete { .. }) => {
            present.map(doubtful)
        }
        (_, Ask::Store { .. } | Ask::Count { .. } | Ask::Get { vivify: Some(_), .. }) => present,
        _ => bail!("the server lacks memory for a request that needs none"),
    })
}

/// Parses the digits up to the first space.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.split(|&byte| byte == b' ').next()?;
    std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

fn difference(reported: &[u8], own: &[u8]) -> String {
    let same = reported.iter().zip(own).take_while(|(one, other)| one == other).count();
    let show = |bytes: &[u8]| bytes[same..bytes.len().min(same + 40)].escape_ascii().to_string();
    format!(
        "after {same} bytes {:?} instead of {:?}, {} bytes instead of {}",
        show(reported),
        show(own),
        reported.len(),
        own.len()
    )
}

impl Item {
    fn new(value: Vec<u8>, flags: u32, life: Life) -> Self {
        Self {
            values: vec![value],
            flags,
            life,
            cas: None,
            is_stale: false,
            is_claimed: false,
            was_fetched: Some(false),
            is_doubtful: false,
        }
    }

    /// Returns the item after it was stored, with the reported properties.
    fn stored(self, reported: &Reported, known: u64) -> Result<Self> {
        if let Some(cas) = reported.cas {
            ensure!(cas != known, "a new item has the CAS value {cas}, which was reported before");
        }
        Ok(Self { cas: reported.cas, is_doubtful: false, ..self })
    }

    /// Checks the reported properties, and returns the item after it was read.
    fn read(
        mut self,
        touch: Option<Exptime>,
        recache: Option<u32>,
        reported: &Reported,
        when: When,
        known: u64,
    ) -> Result<Self> {
        if let Some(exptime) = touch {
            self.life = Life::new(exptime, when);
        }
        self.check(reported, when, known)?;
        if let Some(facts) = reported.facts {
            ensure!(facts.is_stale == self.is_stale, "wrong stale flag: {self:?}");
            ensure!(facts.is_claimed == self.is_claimed, "wrong claimed flag: {self:?}");
            let (may_win, must_win) = self.is_won(recache, when);
            ensure!(!facts.is_won || may_win, "the client must not win the item: {self:?}");
            ensure!(facts.is_won || !must_win, "the first client that asks must win the item: {self:?}");
            self.is_claimed |= facts.is_won;
        }
        self.cas = reported.cas.or(self.cas);
        (self.was_fetched, self.is_doubtful) = (Some(true), false);
        Ok(self)
    }

    /// Returns whether the server may select a client that reads the item now to renew it, and
    /// whether it must.
    fn is_won(&self, recache: Option<u32>, when: When) -> (bool, bool) {
        match (self.is_claimed, self.is_stale, recache, self.life) {
            (true, ..) => (false, false),
            (_, true, ..) => (true, true),
            (_, _, Some(limit), Life::Until { earliest, latest }) => {
                (earliest.saturating_sub(when.latest) < limit, latest.saturating_sub(when.earliest) < limit)
            }
            _ => (false, false),
        }
    }

    /// Keeps the possible values that fulfil the condition. Returns `None` if there are none.
    fn narrowed(mut self, is_like: impl Fn(&[u8]) -> bool) -> Option<Self> {
        self.values.retain(|value| is_like(value));
        (!self.values.is_empty()).then_some(self)
    }

    /// Checks the reported properties, and records what they reveal about the item.
    fn check(&mut self, reported: &Reported, when: When, known: u64) -> Result<()> {
        if let Some(value) = &reported.value {
            ensure!(self.values.contains(value), "a wrong value, {}", difference(value, &self.values[0]));
            self.values.retain(|own| own == value);
        }
        ensure!(reported.flags.is_none_or(|flags| flags == self.flags), "wrong flags, not {}", self.flags);
        self.values.retain(|own| reported.size.is_none_or(|size| size == own.len() as u64));
        ensure!(!self.values.is_empty(), "a wrong size");
        let is_its_own = |cas| self.cas.map_or(cas != known, |own| cas == own);
        ensure!(reported.cas.is_none_or(is_its_own), "a wrong CAS value: {:?} of {known}", self.cas);
        let is_past = matches!(self.life, Life::Until { latest: 0, .. });
        ensure!(
            reported.ttl.is_none_or(|ttl| is_past || self.life.admits(ttl, when)),
            "a wrong time to live: {:?} in {when:?}",
            self.life
        );
        let fetched = reported.was_fetched.zip(self.was_fetched);
        ensure!(fetched.is_none_or(|(reported, own)| reported == own), "wrong fetched flag: {:?}", self.was_fetched);
        Ok(())
    }

    fn counted(self, is_up: bool, delta: u64, reported: &Reported, when: When, known: u64) -> Result<Self> {
        let sum = |number: u64| if is_up { number.wrapping_add(delta) } else { number.saturating_sub(delta) };
        let is_right = |value: &[u8]| {
            number(value).is_some_and(|number| reported.number.is_none_or(|reported| reported == sum(number)))
        };
        let item = self.narrowed(is_right).context("a wrong number")?;
        ensure!(reported.ttl.is_none_or(|ttl| item.life.admits(ttl, when)), "a wrong time to live: {:?}", item.life);
        let length = item.values[0].len();
        let sums = item.values.iter().filter_map(|value| Some((sum(number(value)?).to_string(), value.len())));
        let mut values: Vec<Vec<u8>> =
            sums.flat_map(|(sum, width)| [format!("{sum:<width$}").into_bytes(), sum.into_bytes()]).collect();
        values.dedup();
        let is_longer = values[0].len() > length;
        let marks = if is_longer { (false, false) } else { (item.is_stale, item.is_claimed) };
        Self { values, is_stale: marks.0, is_claimed: marks.1, was_fetched: None, ..item }.stored(reported, known)
    }

    fn invalidated(self, exptime: Exptime, when: When) -> Self {
        let life = Life::new(exptime, when);
        Self { life, cas: None, is_stale: true, is_claimed: false, was_fetched: None, ..self }
    }
}
