//! Execution: a decoded command goes in, the engine does it, the reply is appended to an output buffer.
//!
//! Nothing here knows of sockets. A [`Service`] is what all threads share: the engine, the time, the counters. Each thread
//! executes through an [`Executor`], which adds the counters of that thread.
//!
//! One command can ask for more output than a connection should hold (`get` with thousands of keys of large values). So
//! fetching stops when the output has reached a limit, and tells where; the caller sends what there is and resumes from
//! there.

mod statistics;

use crate::clock::Ticker;
use crate::engine::{Content, CountError, Direction, Engine, Hit, Lookup, Mode, Store};
use crate::gate::Gate;
use crate::log::Log;
use crate::options::PROTOCOL_VERSION;
use crate::stats::{Counter, Counters, Registry};
use relativist_memcache::{Arithmetic, Command, Rejection, RequestError, StoreVerb, reply};
use std::sync::Arc;

/// What all threads of a server share.
pub struct Service<E> {
    /// The storage.
    pub engine: E,
    /// The time, and who drives it.
    pub ticker: Ticker,
    /// Second in which the service was started.
    pub started: u32,
    /// Everybody's counters.
    pub counters: Registry,
    /// The limit on connections.
    pub gate: Arc<Gate>,
    /// Messages to the operator.
    pub log: Log,
    /// What the statistics tell about the configuration.
    pub settings: Settings,
}

/// The part of the configuration that clients may ask for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Worker threads.
    pub threads: usize,
    /// TCP port, 0 for none.
    pub port: u16,
    /// Addresses listened on.
    pub addresses: String,
    /// Path of the Unix socket.
    pub unix_socket: Option<String>,
    /// Largest value, in bytes.
    pub max_value: usize,
    /// Whether the test command `debugtime` is offered.
    pub debug_time: bool,
}

/// How an execution ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome<'b> {
    /// The command is done.
    Done,
    /// The output is full. The fetch is to be resumed when it was sent.
    Paused {
        /// What to do with the keys that are left.
        fetch: Fetch,
        /// The first of them, where it stands in the command line.
        next: &'b [u8],
    },
    /// The client wants the connection closed.
    Quit,
}

/// What `get` and its relatives do with each key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fetch {
    /// The expiry that found items are given.
    exptime: Option<i32>,
    /// Whether the reply tells the unique.
    with_unique: bool,
}

/// Executes commands on one thread.
#[derive(Clone, Copy)]
pub struct Executor<'s, E> {
    service: &'s Service<E>,
    counters: &'s Counters,
    output_limit: usize,
}

impl<'s, E: Engine> Executor<'s, E> {
    /// An executor that counts on `counters`, and pauses fetching when the output has reached `output_limit` bytes.
    pub fn new(service: &'s Service<E>, counters: &'s Counters, output_limit: usize) -> Executor<'s, E> {
        Executor { service, counters, output_limit }
    }

    /// Executes `command` and appends the reply to `out`.
    pub fn execute<'b>(&self, command: Command<'b>, out: &mut Vec<u8>) -> Outcome<'b> {
        match command {
            Command::Get { keys, with_unique } => {
                return self.fetch(Fetch { exptime: None, with_unique }, keys, out);
            }
            Command::GetAndTouch { exptime, keys, with_unique } => {
                return self.fetch(Fetch { exptime: Some(exptime), with_unique }, keys, out);
            }
            Command::Store { verb, key, flags, exptime, value, noreply } => {
                answer(out, noreply, self.store(verb, key, Content { flags, exptime, value }));
            }
            Command::Arithmetic { key, op, delta, noreply } => self.count(key, op, delta, noreply, out),
            Command::Delete { key, noreply } => answer(out, noreply, self.delete(key)),
            Command::Touch { key, exptime, noreply } => answer(out, noreply, self.touch(key, exptime)),
            Command::FlushAll { exptime, noreply } => answer(out, noreply, self.flush(exptime)),
            Command::Version => reply::version(out, PROTOCOL_VERSION),
            Command::Verbosity { level, noreply } => {
                self.service.log.set_verbosity(u8::try_from(level).unwrap_or(u8::MAX));
                answer(out, noreply, reply::OK);
            }
            Command::Stats { args } => statistics::report(self.service, args, out),
            Command::Quit => return Outcome::Quit,
        }
        Outcome::Done
    }

    /// Goes on with a paused fetch; `rest` is its command line from the next key on.
    pub fn resume<'b>(&self, fetch: Fetch, rest: &'b [u8], out: &mut Vec<u8>) -> Outcome<'b> {
        let text = rest.strip_suffix(b"\n").unwrap_or(rest);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let keys = text.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        self.fetch(fetch, keys, out)
    }

    /// Answers a request that the decoder refused; `line` is what it consumed.
    pub fn reject(&self, line: &[u8], rejection: &Rejection, out: &mut Vec<u8>) {
        match rejection.error {
            RequestError::TooLarge => self.counters.store_too_large.bump(),
            RequestError::InvalidExptime if line.starts_with(b"flush_all") => self.counters.cmd_flush.bump(),
            RequestError::UnknownCommand if self.service.settings.debug_time && line.starts_with(b"debugtime") => {
                return out.extend_from_slice(self.debug_time(line));
            }
            _ => (),
        }
        out.extend_from_slice(rejection.reply());
    }

    /// Removes what a refused `set` would have replaced.
    pub fn invalidate(&self, key: &[u8]) {
        self.service.engine.delete(key);
    }

    /// Answers each key, until the output is full.
    fn fetch<'b>(&self, fetch: Fetch, keys: impl Iterator<Item = &'b [u8]>, out: &mut Vec<u8>) -> Outcome<'b> {
        for next in keys {
            if out.len() >= self.output_limit {
                return Outcome::Paused { fetch, next };
            }
            match fetch.exptime {
                None => self.get(next, fetch.with_unique, out),
                Some(exptime) => self.get_and_touch(exptime, next, fetch.with_unique, out),
            }
        }
        out.extend_from_slice(reply::END);
        Outcome::Done
    }

    fn get(&self, key: &[u8], with_unique: bool, out: &mut Vec<u8>) {
        self.counters.cmd_get.bump();
        let lookup = self.service.engine.get(key, |hit| append_hit(out, key, with_unique, hit));
        self.count_lookup(lookup, &self.counters.get_hits, &self.counters.get_misses);
    }

    fn get_and_touch(&self, exptime: i32, key: &[u8], with_unique: bool, out: &mut Vec<u8>) {
        self.counters.cmd_touch.bump();
        let lookup = self.service.engine.get_and_touch(key, exptime, |hit| append_hit(out, key, with_unique, hit));
        self.count_lookup(lookup, &self.counters.touch_hits, &self.counters.touch_misses);
    }

    fn count_lookup(&self, lookup: Lookup, hits: &Counter, misses: &Counter) {
        match lookup {
            Lookup::Hit => return hits.bump(),
            Lookup::Miss => (),
            Lookup::Expired => self.counters.get_expired.bump(),
            Lookup::Flushed => self.counters.get_flushed.bump(),
        }
        misses.bump();
    }

    fn store(&self, verb: StoreVerb, key: &[u8], content: Content<'_>) -> &'static [u8] {
        self.counters.cmd_set.bump();
        let store = self.service.engine.store(mode(verb), key, content);
        match store {
            Store::Stored => self.counters.total_items.bump(),
            Store::OutOfMemory => self.counters.store_no_memory.bump(),
            _ => (),
        }
        if let StoreVerb::Cas(_) = verb {
            match store {
                Store::Stored => self.counters.cas_hits.bump(),
                Store::Exists => self.counters.cas_badval.bump(),
                Store::NotFound => self.counters.cas_misses.bump(),
                _ => (),
            }
        }
        match store {
            Store::Stored => reply::STORED,
            Store::NotStored => reply::NOT_STORED,
            Store::Exists => reply::EXISTS,
            Store::NotFound => reply::NOT_FOUND,
            Store::OutOfMemory => reply::OUT_OF_MEMORY,
        }
    }

    fn count(&self, key: &[u8], op: Arithmetic, delta: u64, noreply: bool, out: &mut Vec<u8>) {
        let (direction, hits, misses) = match op {
            Arithmetic::Incr => (Direction::Up, &self.counters.incr_hits, &self.counters.incr_misses),
            Arithmetic::Decr => (Direction::Down, &self.counters.decr_hits, &self.counters.decr_misses),
        };
        match self.service.engine.count(key, direction, delta) {
            Ok(number) => {
                hits.bump();
                if !noreply {
                    reply::number(out, number);
                }
            }
            Err(CountError::NotFound) => {
                misses.bump();
                answer(out, noreply, reply::NOT_FOUND);
            }
            Err(CountError::NotANumber) => answer(out, noreply, reply::NON_NUMERIC),
            Err(CountError::OutOfMemory) => {
                self.counters.store_no_memory.bump();
                answer(out, noreply, reply::OUT_OF_MEMORY);
            }
        }
    }

    fn delete(&self, key: &[u8]) -> &'static [u8] {
        if self.service.engine.delete(key) {
            self.counters.delete_hits.bump();
            reply::DELETED
        } else {
            self.counters.delete_misses.bump();
            reply::NOT_FOUND
        }
    }

    fn touch(&self, key: &[u8], exptime: i32) -> &'static [u8] {
        self.counters.cmd_touch.bump();
        if self.service.engine.touch(key, exptime) {
            self.counters.touch_hits.bump();
            reply::TOUCHED
        } else {
            self.counters.touch_misses.bump();
            reply::NOT_FOUND
        }
    }

    fn flush(&self, exptime: i32) -> &'static [u8] {
        self.counters.cmd_flush.bump();
        self.service.engine.flush(exptime);
        reply::OK
    }

    /// `debugtime p` freezes the clock, `debugtime r` lets it go on, `debugtime N` moves it by N seconds.
    fn debug_time(&self, line: &[u8]) -> &'static [u8] {
        let ticker = &self.service.ticker;
        let line = String::from_utf8_lossy(line);
        match line.split_whitespace().nth(1) {
            Some("p") => ticker.freeze(),
            Some("r") => ticker.resume(),
            Some(word) => match word.parse() {
                Ok(seconds) => ticker.jump(seconds),
                Err(_) => return reply::ERROR,
            },
            None => return reply::ERROR,
        }
        reply::OK
    }
}

fn append_hit(out: &mut Vec<u8>, key: &[u8], with_unique: bool, hit: Hit<'_>) {
    reply::value(out, key, hit.flags, with_unique.then_some(hit.unique), hit.value);
}

fn answer(out: &mut Vec<u8>, noreply: bool, reply: &[u8]) {
    if !noreply {
        out.extend_from_slice(reply);
    }
}

fn mode(verb: StoreVerb) -> Mode {
    match verb {
        StoreVerb::Set => Mode::Set,
        StoreVerb::Add => Mode::Add,
        StoreVerb::Replace => Mode::Replace,
        StoreVerb::Append => Mode::Append,
        StoreVerb::Prepend => Mode::Prepend,
        StoreVerb::Cas(unique) => Mode::CompareUnique(unique),
    }
}
