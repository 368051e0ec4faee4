//! One client. It sends batches of requests, some in text and some in the binary protocol, and
//! checks every reply.
//!
//! A client receives all replies to a batch before it sends the next one, so the model knows the
//! state before each request. If a client disconnects in the middle of a batch, it does not know
//! which requests the server has executed or will execute, so it never uses the keys of that batch
//! again. A request that was sent only in part must have no effect.
//!
//! If the server is replaced during the run (`--hand-over`), it may close connections. Requests
//! without a reply are then like those of a client that disconnects. Another process must serve the
//! next connection, and must have all items, with new CAS values that are larger than all before.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::connection::{Connection, Ending, Pace, Taken};
use super::draw::Draw;
use super::model::{Question, Slot};
use super::reply::{Parsed, Refusal, Reply};
use super::request::{Ask, Dialect, Key, Names, Request, scramble};
use super::shared::{Common, Floor, lock};
use super::{binary, serving, text};
use crate::client::Address;
use crate::client::reply::Reported;

/// The number of remembered requests and replies. When a reply is wrong, the last `SHOWN` are
/// shown, and `SHOWN_OF_KEY` earlier ones about the same key.
const REMEMBERED: usize = 1_000;
const SHOWN: usize = 5;
const SHOWN_OF_KEY: usize = 25;

/// The number of batches after which the first client flushes everything: the initial number, and
/// the maximum. The number doubles each time.
const BATCHES_PER_FLUSH: (u64, u64) = (40, 5_000);

#[derive(Debug)]
pub(super) struct Client<'a> {
    index: u16,
    common: &'a Common<'a>,
    address: &'a Address,
    names: Names,
    slots: Vec<Slot>,
    draw: Draw,
    /// Randomness for cutting batches and breaking connections. It is separate from that of the
    /// requests, so that these depend only on the seed.
    chance: SmallRng,
    text: Option<Connection>,
    binary: Option<Connection>,
    /// The server process of the newest connection; 0 if the server is not replaced during the run.
    process: u64,
    /// The last server process that has closed a connection; 0 if none has.
    departed: u64,
    /// The largest CAS value in a reply so far, and the largest in one of an earlier process.
    last_cas: u64,
    cas_before: u64,
    history: VecDeque<(Request, Vec<Reply>)>,
    flushes: u64,
}

impl<'a> Client<'a> {
    pub(super) fn new(index: u16, common: &'a Common<'a>, address: &'a Address) -> Self {
        let plan = common.plan;
        Self {
            index,
            common,
            address,
            names: Names::new(&plan.prefix, index.into()),
            slots: (0..plan.keys).map(|_| Slot::default()).collect(),
            draw: Draw::new(plan.seed, index),
            chance: SmallRng::seed_from_u64(scramble(plan.seed.wrapping_add(u64::from(index) << 32))),
            text: None,
            binary: None,
            process: 0,
            departed: 0,
            last_cas: 0,
            cas_before: 0,
            history: VecDeque::new(),
            flushes: 0,
        }
    }

    /// Runs until the time is over or another client has found a fault.
    pub(super) fn run(&mut self) -> Result<()> {
        let outcome = self.converse();
        self.common.is_over.fetch_or(outcome.is_err(), Relaxed);
        outcome.with_context(|| self.history())
    }

    /// Describes the requests that led to the reported fault.
    fn history(&self) -> String {
        format!("client {}, seed {}, after\n{}", self.index, self.common.plan.seed, self.conversation())
    }

    fn converse(&mut self) -> Result<()> {
        let (mut batch, (mut gap, longest)) = (0, BATCHES_PER_FLUSH);
        let mut flush_at = gap;
        while self.common.plan.length.goes_on(batch, self.common.clock.elapsed()) && !self.common.is_over.load(Relaxed)
        {
            if self.index == 0 && batch == flush_at && !self.common.plan.others_flush {
                self.flush()?;
                gap = longest.min(gap * 2);
                flush_at += gap;
            }
            let common = self.common;
            let _in_flight = common.pause.read().unwrap_or_else(PoisonError::into_inner);
            let flushes = common.flushes.load(Relaxed);
            if flushes != self.flushes {
                self.flushes = flushes;
                self.slots.iter_mut().for_each(Slot::flush);
            }
            self.batch(batch)?;
            batch += 1;
        }
        Ok(())
    }

    fn batch(&mut self, batch: u64) -> Result<()> {
        self.draw.begin(batch, self.common.clock.earliest());
        let is_binary = self.draw.random.random_range(0..3) == 0;
        let depth = match self.draw.random.random_range(0..4) {
            0 => 1,
            1 => self.draw.random.random_range(1..10),
            _ => self.draw.random.random_range(10..100),
        };
        let mut requests: VecDeque<Request> =
            (0..depth).map(|_| self.draw.draw(is_binary, &self.slots, self.common)).collect();
        if self.draw.random.random_range(0..60) == 0 {
            return self.leave_in_the_middle(&requests, is_binary);
        }
        requests.push_back(self.draw.fence(is_binary));
        if self.chance.random_range(0..100) == 0 {
            *self.connection(is_binary) = None;
        }
        let pace = Pace::any(&mut self.chance);
        self.exchange(requests, is_binary, pace)
    }

    /// Encodes requests. Returns the bytes, and the range of each request in them.
    fn encode(&self, requests: &VecDeque<Request>) -> (Vec<u8>, Vec<Range<usize>>) {
        let mut output = Vec::new();
        let mut push = |request: &Request| {
            let begin = output.len();
            let push = if request.dialect == Dialect::Binary { binary::push } else { text::push };
            push(request, &self.names, &self.common.pool, &mut output);
            begin..output.len()
        };
        let ranges = requests.iter().map(&mut push).collect();
        (output, ranges)
    }

    fn connection(&mut self, is_binary: bool) -> &mut Option<Connection> {
        if is_binary { &mut self.binary } else { &mut self.text }
    }

    fn open(&mut self, is_binary: bool) -> Result<Connection> {
        if let Some(connection) = self.connection(is_binary).take() {
            return Ok(connection);
        }
        let connection = Connection::open(self.common.plan, self.address, is_binary)?;
        if connection.process != self.process {
            self.follow(connection.process);
        }
        let is_replaced = self.departed == 0 || connection.process != self.departed;
        ensure!(is_replaced, "the server has closed a connection, but was not replaced");
        Ok(connection)
    }

    /// Notes that this process serves now. The one before it will send no more replies.
    fn follow(&mut self, process: u64) {
        if self.process != 0 {
            self.slots.iter_mut().for_each(Slot::hand_over);
            (self.text, self.binary, self.cas_before) = (None, None, self.last_cas);
        }
        self.process = process;
    }

    /// Notes that the server has closed a connection, which only one that is replaced may do.
    fn closed(&mut self, process: u64) -> Result<()> {
        ensure!(self.common.plan.is_replaced(), "the server closed the connection");
        self.departed = process;
        self.common.counts.closed.fetch_add(1, Relaxed);
        Ok(())
    }

    fn exchange(&mut self, mut requests: VecDeque<Request>, is_binary: bool, pace: Pace) -> Result<()> {
        let (output, ranges) = self.encode(&requests);
        let mut connection = self.open(is_binary)?;
        let mut chance = self.chance.clone();
        let ending = connection.exchange(&output, pace, &mut chance, |input| self.take(&mut requests, input))?;
        self.chance = chance;
        match ending {
            Ending::Answered => *self.connection(is_binary) = Some(connection),
            Ending::Closed(sent) => {
                self.closed(connection.process)?;
                self.give_up(&requests, &ranges[ranges.len() - requests.len()..], sent);
            }
        }
        Ok(())
    }

    /// Parses and checks the first reply in the input.
    fn take(&mut self, requests: &mut VecDeque<Request>, input: &[u8]) -> Result<Taken> {
        let Some(request) = requests.front() else { bail!("a reply without a request") };
        let parse = if request.dialect == Dialect::Binary { binary::parse } else { text::parse };
        let parsed = parse(request, &self.names, input);
        let (replies, bytes) = match parsed.with_context(|| format!("in the reply to {request:?}"))? {
            Parsed::Part(needed) => return Ok(Taken::Wait(needed)),
            Parsed::Whole(replies, bytes) => (replies, bytes),
            Parsed::Silent => (vec![silence(request)], 0),
        };
        let request = requests.pop_front().expect("it was there");
        let judged = self.check(&request, &replies).with_context(|| format!("wrong: {replies:?}"));
        self.remember(request, replies);
        if let Some(name) = judged? {
            lock(&self.common.ledger).note(name, self.history());
        }
        Ok(if requests.is_empty() { Taken::All(bytes) } else { Taken::Some(bytes) })
    }

    fn remember(&mut self, request: Request, replies: Vec<Reply>) {
        self.common.counts.requests.fetch_add(1, Relaxed);
        if self.history.len() == REMEMBERED {
            self.history.pop_front();
        }
        // Values are not kept, because they take memory and are not shown.
        let replies = replies.into_iter().map(|reply| match reply {
            Reply::Done(reported) => {
                let size = reported.value.as_ref().map(|value| value.len() as u64).or(reported.size);
                Reply::Done(Reported { value: None, size, ..reported })
            }
            other => other,
        });
        self.history.push_back((request, replies.collect()));
    }

    /// Checks the replies to a request. Returns the name of a missing item, if its eviction has not
    /// been reported.
    fn check(&mut self, request: &Request, replies: &[Reply]) -> Result<Option<Vec<u8>>> {
        let mut suspect = None;
        let when = self.common.clock.since(request.earliest);
        for ((key, floor), reply) in request.keys.iter().zip(replies) {
            if let Reply::Done(Reported { cas: Some(cas), .. }) = *reply {
                let before = self.cas_before;
                ensure!(cas > before, "a CAS value of {cas}, where a predecessor of the server had {before}");
                self.last_cas = self.last_cas.max(cas);
            }
            let is_refused = matches!(reply, Reply::Refused(Refusal::OutOfMemory | Refusal::Midway));
            self.common.counts.refusals.fetch_add(is_refused.into(), Relaxed);
            match *key {
                Key::Value(index) => self.common.judge_value(index, *floor, &request.ask, reply)?,
                Key::Counter(index) => self.common.judge_counter(index, *floor, &request.ask, reply)?,
                Key::Own { slot, .. } => {
                    let Common { pool, largest, .. } = self.common;
                    let question = Question { ask: &request.ask, dialect: request.dialect, pool, largest: *largest };
                    let slot = &mut self.slots[slot as usize];
                    let is_missing = slot.check(question, reply, when).with_context(|| format!("{key:?}"))?;
                    if is_missing {
                        suspect = self.common.miss(self.names.of(*key)).or(suspect);
                    }
                }
            }
        }
        Ok(suspect)
    }

    /// Describes the last requests and replies, and before them the earlier ones about the keys of
    /// the last one.
    fn conversation(&self) -> String {
        let last = self.history.len().saturating_sub(SHOWN);
        let keys = self.history.back().map_or(&[][..], |(request, _)| &request.keys);
        let is_about =
            |request: &Request| request.keys.iter().any(|(key, _)| keys.iter().any(|(other, _)| key == other));
        let before = self.history.range(..last).filter(|(request, _)| is_about(request));
        let before: Vec<_> = before.rev().take(SHOWN_OF_KEY).collect();
        let shown = before.into_iter().rev().chain(self.history.range(last..));
        shown.map(|(request, replies)| format!("{request:?}\n    {replies:?}\n")).collect()
    }

    /// Sends a part of a batch and disconnects.
    fn leave_in_the_middle(&mut self, requests: &VecDeque<Request>, is_binary: bool) -> Result<()> {
        let (output, ranges) = self.encode(requests);
        let cut = self.draw.random.random_range(0..output.len());
        let is_reset = self.chance.random_range(0..2) == 0;
        let connection = self.open(is_binary)?;
        let process = connection.process;
        let (sent, is_closed) = connection.abandon(&output[..cut], is_reset)?;
        if is_closed {
            self.closed(process)?;
        }
        self.give_up(requests, &ranges, sent);
        self.common.counts.resets.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Gives up requests whose replies will not be received. They are in these ranges of the
    /// output, of which `sent` bytes were sent.
    fn give_up(&mut self, requests: &VecDeque<Request>, ranges: &[Range<usize>], sent: usize) {
        for (request, range) in requests.iter().zip(ranges) {
            if range.end > sent {
                self.common.take_back(request);
            } else {
                self.common.give_up(request);
            }
            // A request that was sent in part counts, too: if its value is too large, servers
            // remove the old item as soon as the request begins to arrive.
            let is_begun = range.start < sent;
            for (key, _) in request.keys.iter().filter(|_| is_begun) {
                if let Key::Own { slot, generation } = *key
                    && generation == self.slots[slot as usize].generation
                {
                    self.slots[slot as usize].retire();
                }
            }
        }
    }

    /// Flushes everything while no other client has requests in flight.
    fn flush(&mut self) -> Result<()> {
        let common = self.common;
        let _alone = common.pause.write().unwrap_or_else(PoisonError::into_inner);
        for index in Common::counters() {
            let number = self.look_at(Key::Counter(index))?.map(|reported| reported.value.unwrap_or_default());
            let number = number.map(|digits| std::str::from_utf8(&digits)?.parse().context("not a number"));
            if common.balance(index, number.transpose()?)?
                && let Some(name) = common.miss(self.names.of(Key::Counter(index)))
            {
                lock(&common.ledger).note(name, format!("counter {index}, seed {}", common.plan.seed));
            }
        }
        match self.chance.random_range(0..3) {
            0 => self.ask_plainly(b"flush_all\r\n", b"OK\r\n")?,
            1 => {
                let request = [&[0x80, 0x08][..], &[0; 22]].concat();
                let answer = [&[0x81, 0x08][..], &[0; 22]].concat();
                self.ask_plainly(&request, &answer)?;
            }
            _ => {
                self.ask_plainly(b"flush_all 1\r\n", b"OK\r\n")?;
                let due = common.clock.latest() + 1;
                while common.clock.earliest() < due {
                    if common.is_over.load(Relaxed) {
                        return Ok(());
                    }
                    sleep(Duration::from_millis(10));
                }
            }
        }
        common.flushed();
        Ok(())
    }

    /// Reads the item of a shared key.
    fn look_at(&mut self, key: Key) -> Result<Option<Reported>> {
        self.draw.begin(0, self.common.clock.earliest());
        let ask = Ask::Get { touch: None, vivify: None, recache: None };
        let request = Request {
            dialect: Dialect::Classic,
            ask,
            keys: vec![(key, Floor::default())],
            number: 0,
            is_quiet: false,
            earliest: 0,
        };
        let (output, _) = self.encode(&VecDeque::from([request.clone()]));
        let mut answer = None;
        self.insist(&output, |input| {
            Ok(match text::parse(&request, &self.names, input)? {
                Parsed::Whole(mut replies, bytes) => {
                    answer = replies.pop();
                    Taken::All(bytes)
                }
                Parsed::Part(needed) => Taken::Wait(needed),
                Parsed::Silent => bail!("no answer"),
            })
        })?;
        Ok(match answer {
            Some(Reply::Done(reported)) => Some(reported),
            _ => None,
        })
    }

    /// Sends a request on a new connection, and expects exactly this reply.
    fn ask_plainly(&self, request: &[u8], answer: &[u8]) -> Result<()> {
        self.insist(request, |input| match input.len() {
            length if length < answer.len() => Ok(Taken::Wait(answer.len())),
            length if input == answer => Ok(Taken::All(length)),
            _ => Err(anyhow!("unexpected reply to a flush: {:?}", input.escape_ascii().to_string())),
        })
    }

    /// Sends a request on a new connection until it is answered. It may be executed twice: a server
    /// that is replaced may close the connection before it replies.
    fn insist(&self, output: &[u8], mut take: impl FnMut(&[u8]) -> Result<Taken>) -> Result<()> {
        for _ in 0..serving::attempts(self.common.plan) {
            let mut connection = Connection::new(self.address.connect()?, 0)?;
            let ending = connection.exchange(output, Pace::Whole, &mut self.chance.clone(), &mut take)?;
            if ending == Ending::Answered {
                return Ok(());
            }
        }
        bail!("the server closed the connection")
    }
}

/// Returns what it means that the server sent no reply.
fn silence(request: &Request) -> Reply {
    match (request.dialect, request.ask) {
        (Dialect::Binary | Dialect::Meta, Ask::Get { .. }) => Reply::NotFound,
        (Dialect::Binary, _) => Reply::Done(Reported::default()),
        _ => Reply::Unspoken,
    }
}
