//! Random requests.
//!
//! The requests depend only on the seed, except for CAS values, which were reported by the server.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::model::{LARGE, Slot};
use super::request::{Ask, Dialect, Exptime, Key, MAX_VALUE, Mark, Mode, Request, Text, scramble};
use super::shared::{Common, Floor};

/// The minimum and maximum size of values, in phases. The sizes change from phase to phase, so that
/// the server has to reuse memory for other sizes.
const MIXES: [(u32, u32); 8] =
    [(0, 60), (10_000, 200_000), (50, 1_000), (300_000, 1_000_000), (0, 200), (1_000, 9_000), (0, 40), (0, 5_000)];

/// The number of batches of a client in each phase: the initial number, and the maximum. The number
/// doubles after each round of all phases.
const BATCHES_PER_MIX: (u64, u64) = (10, 2_560);

/// The minimum initial value of a counter. Counting does not reach numbers of this size in any
/// other way.
const INITIALS: u64 = 1 << 62;

#[derive(Debug)]
pub(super) struct Draw {
    pub(super) random: SmallRng,
    client: u16,
    /// The earliest time that the server's clock may show now.
    now: u32,
    mix: (u32, u32),
    number: u32,
}

impl Draw {
    pub(super) fn new(seed: u64, client: u16) -> Self {
        let random = SmallRng::seed_from_u64(scramble(seed ^ scramble(u64::from(client) + 1)));
        Self { random, client, now: 0, mix: MIXES[0], number: 0 }
    }

    pub(super) fn begin(&mut self, batch: u64, now: u32) {
        let (mut left, (mut each, most)) = (batch, BATCHES_PER_MIX);
        while each < most && left >= each * MIXES.len() as u64 {
            (left, each) = (left - each * MIXES.len() as u64, each * 2);
        }
        self.mix = MIXES[(left / each) as usize % MIXES.len()];
        self.now = now;
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.random.random_range(0..count) == 0
    }

    pub(super) fn fence(&mut self, is_binary: bool) -> Request {
        let dialect = if is_binary { Dialect::Binary } else { Dialect::Meta };
        self.request(dialect, Ask::Fence, Vec::new())
    }

    fn request(&mut self, dialect: Dialect, ask: Ask, keys: Vec<(Key, Floor)>) -> Request {
        self.number = self.number.wrapping_add(1);
        Request { dialect, ask, keys, number: self.number, is_quiet: false, earliest: self.now }
    }

    pub(super) fn draw(&mut self, is_binary: bool, slots: &[Slot], common: &Common) -> Request {
        let dialect = match is_binary {
            true => Dialect::Binary,
            false if self.one_in(2) => Dialect::Meta,
            false => Dialect::Classic,
        };
        match self.random.random_range(0..100) {
            0..12 => self.shared_value(dialect, common),
            12..22 => self.counter(dialect, common),
            _ => self.own(dialect, slots, common),
        }
    }

    fn own(&mut self, dialect: Dialect, slots: &[Slot], common: &Common) -> Request {
        let index = self.slot(slots.len(), common);
        let slot = &slots[index];
        // Usually the last reported CAS value, and sometimes one that no item of the key has.
        let compare = match self.random.random_range(0..4) {
            0 => slot.cas.saturating_sub(1),
            _ => slot.cas,
        };
        let compare = Some(compare).filter(|cas| *cas > 1);
        let ask = match self.random.random_range(0..100) {
            0..34 => self.get(dialect),
            34..54 => self.store(Mode::Set, None, dialect, common),
            54..60 => self.store(Mode::Add, None, dialect, common),
            60..65 => self.store(Mode::Replace, None, dialect, common),
            65..69 => self.store(Mode::Append, None, dialect, common),
            69..73 => self.store(Mode::Prepend, None, dialect, common),
            73..80 => self.store(Mode::Set, compare, dialect, common),
            80..88 => self.count(dialect),
            88..93 => Ask::Touch { exptime: self.exptime() },
            _ => self.delete(dialect, compare),
        };
        let own =
            |index: usize| (Key::Own { slot: index as u32, generation: slots[index].generation }, Floor::default());
        let mut keys = vec![own(index)];
        if dialect == Dialect::Classic && matches!(ask, Ask::Get { .. }) && self.one_in(4) {
            let is_touched = matches!(ask, Ask::Get { touch: Some(_), .. });
            for _ in 0..self.random.random_range(1..12) {
                // Touching a shared item would change its expiry.
                let key = match self.random.random_range(if is_touched { 2..4 } else { 0..4 }) {
                    0 => common.any_value(&mut self.random),
                    1 => common.any_counter(&mut self.random),
                    _ => own(self.slot(slots.len(), common)),
                };
                keys.push(key);
            }
        }
        let mut request = self.request(dialect, ask, keys);
        request.is_quiet = self.may_be_quiet(&request, common) && self.one_in(4);
        request
    }

    /// Draws a key. If values are large, fewer keys are used, so that all items together need the
    /// planned memory. Some keys are used more often than others.
    fn slot(&mut self, slots: usize, common: &Common) -> usize {
        let [least, most] = [self.mix.0, self.mix.1].map(|size| size.min(common.largest_piece()) as usize);
        let average = (least + most) / 2 + 100;
        let reach = (common.bytes_per_client / average).clamp(4, slots.max(4)).min(slots);
        let range = if self.one_in(2) { reach.div_ceil(8) } else { reach };
        self.random.random_range(0..range)
    }

    /// Returns whether the request can be quiet, because the model knows what a missing reply
    /// means.
    fn may_be_quiet(&self, request: &Request, common: &Common) -> bool {
        match (request.dialect, request.ask) {
            (Dialect::Binary, Ask::Touch { .. } | Ask::Fence) => false,
            (Dialect::Binary, Ask::Count { create, .. }) => create.is_none(),
            (Dialect::Binary, _) => true,
            (Dialect::Classic, Ask::Store { mode: Mode::Set, compare: None, text, .. }) => {
                text.len(&common.pool) < LARGE
            }
            (Dialect::Classic | Dialect::Meta, Ask::Delete { compare: None, invalidates: None }) => true,
            (Dialect::Meta, Ask::Get { vivify: None, .. }) => true,
            _ => false,
        }
    }

    fn get(&mut self, dialect: Dialect) -> Ask {
        let (mut touch, mut vivify, mut recache) = (None, None, None);
        match (self.random.random_range(0..16), dialect) {
            (0 | 1, _) => touch = Some(self.exptime()),
            (2 | 3, Dialect::Meta) => vivify = Some(Exptime::In(self.random.random_range(1..60))),
            (4 | 5, Dialect::Meta) => recache = Some(20),
            _ => (),
        }
        Ask::Get { touch, vivify, recache }
    }

    /// Draws an expiry: mostly never, sometimes soon, so that some items expire during the run, and
    /// sometimes late.
    fn exptime(&mut self) -> Exptime {
        match self.random.random_range(0..16) {
            0 => Exptime::Past,
            1..4 => Exptime::In(self.random.random_range(1..6)),
            4 | 5 => Exptime::At(self.now + self.random.random_range(1..100)),
            6 => Exptime::In(self.random.random_range(1_000..100_000)),
            _ => Exptime::Never,
        }
    }

    fn store(&mut self, mode: Mode, compare: Option<u64>, dialect: Dialect, common: &Common) -> Ask {
        let (least, most) = self.mix;
        let place = self.random.random();
        let length = match mode {
            Mode::Append | Mode::Prepend => self.random.random_range(0..300),
            _ if self.one_in(4_000) && common.largest < MAX_VALUE => MAX_VALUE as u32,
            _ => self.random.random_range(least..most).min(common.largest_piece()),
        };
        let text = match self.random.random_range(0..8) {
            0 | 1 if mode != Mode::Prepend => {
                Text::Number(self.random.random::<u64>() >> self.random.random_range(0..63))
            }
            _ => Text::Piece { place, length },
        };
        let flags = if self.one_in(2) { 0 } else { self.random.random() };
        let exptime = if matches!(mode, Mode::Append | Mode::Prepend) { Exptime::Never } else { self.exptime() };
        let invalidates = compare.is_some() && dialect == Dialect::Meta && self.one_in(3);
        Ask::Store { mode, text, flags, exptime, compare, invalidates }
    }

    fn count(&mut self, dialect: Dialect) -> Ask {
        let initial = INITIALS + self.random.random_range(0..INITIALS);
        let creates = dialect != Dialect::Classic && self.one_in(2);
        let create = creates.then(|| (initial, self.exptime())).filter(|(_, exptime)| *exptime != Exptime::Past);
        let delta = self.random.random::<u64>() >> self.random.random_range(0..64);
        Ask::Count { is_up: self.one_in(2), delta, create, compare: None }
    }

    fn delete(&mut self, dialect: Dialect, compare: Option<u64>) -> Ask {
        let compare = compare.filter(|_| dialect != Dialect::Classic && self.one_in(3));
        let invalidates = (dialect == Dialect::Meta && self.one_in(2)).then_some(Exptime::In(1_000));
        Ask::Delete { compare, invalidates }
    }

    fn shared_value(&mut self, dialect: Dialect, common: &Common) -> Request {
        let key = common.any_value(&mut self.random);
        let Key::Value(index) = key.0 else { unreachable!("it is one") };
        let ask = match self.random.random_range(0..20) {
            0 => Ask::Delete { compare: None, invalidates: None },
            1 => Ask::Touch { exptime: Exptime::Never },
            2..8 => {
                let version = common.next_version(self.client);
                let text = Text::Marked(Mark { key: index, writer: self.client, version });
                let mode = if self.one_in(4) { Mode::Add } else { Mode::Set };
                let (exptime, compare, invalidates) = (Exptime::Never, None, false);
                Ask::Store { mode, text, flags: version, exptime, compare, invalidates }
            }
            _ => Ask::Get { touch: None, vivify: None, recache: None },
        };
        self.request(dialect, ask, vec![key])
    }

    fn counter(&mut self, dialect: Dialect, common: &Common) -> Request {
        let (key, floor) = common.any_counter(&mut self.random);
        let Key::Counter(index) = key else { unreachable!("it is one") };
        let store = |mode, number, compare| {
            let (flags, exptime, invalidates) = (0, Exptime::Never, false);
            Ask::Store { mode, text: Text::Number(number), flags, exptime, compare, invalidates }
        };
        let delta = self.random.random_range(1..100);
        let ask = match (self.random.random_range(0..20), floor.seen()) {
            (0 | 1, _) => store(Mode::Add, common.next_beginning(), None),
            (2..5, Some((number, cas))) => store(Mode::Set, number + delta, Some(cas)),
            (5..12, _) => Ask::Count { is_up: true, delta, create: None, compare: None },
            _ => Ask::Get { touch: None, vivify: None, recache: None },
        };
        common.expect_counted(index, &ask, floor);
        self.request(dialect, ask, vec![(key, floor)])
    }
}
