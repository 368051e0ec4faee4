//! Settings that clients can change by `slabs`, `lru` and `lru_crawler`.
//!
//! This server has no slab classes, no segmented LRU and no crawler to tune, but tools for
//! memcached expect these commands. So the server checks and answers them as memcached does, and
//! `stats settings` shows the new values. They have no other effect, with one exception: while the
//! crawler is disabled, dumps are refused.

use crate::options::Extended;
use relativist_memcache::{Words, number};
use std::sync::{Mutex, MutexGuard, PoisonError};

const OK: &str = "OK\r\n";
const ERROR: &str = "ERROR\r\n";
const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";

/// The highest number of a size class in memcached.
const LAST_CLASS: u32 = 63;

/// The current settings.
#[derive(Debug)]
pub struct Tuning(Mutex<Extended>);

impl Tuning {
    /// The settings of the command line.
    pub fn new(extended: &Extended) -> Tuning {
        Tuning(Mutex::new(extended.clone()))
    }

    /// The current settings.
    pub(super) fn get(&self) -> Extended {
        self.lock().clone()
    }

    /// Adopts the options of `after` that differ from those of `before`.
    pub(crate) fn reload(&self, before: &Extended, after: &Extended) {
        let mut settings = self.lock();
        (settings.maxconns_fast, settings.idle_timeout) = (after.maxconns_fast, after.idle_timeout);
        settings.read_buf_mem_limit = after.read_buf_mem_limit;
        settings.evict_for = after.evict_for;
        // Clients can change this one.
        if after.lru_crawler != before.lru_crawler {
            settings.lru_crawler = after.lru_crawler;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Extended> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `slabs automove ...`, `slabs reassign ...`
    pub(super) fn slabs(&self, mut args: Words<'_>) -> &'static str {
        let mut settings = self.lock();
        match (args.next(), args.next(), args.next(), args.next()) {
            (Some(b"automove"), Some(b"ratio"), ratio, _) => {
                set(&mut settings.ignored.slab_automove_ratio, ratio.and_then(fraction))
            }
            (Some(b"automove"), Some(b"freeratio"), ratio, _) => {
                set(&mut settings.ignored.slab_automove_freeratio, ratio.and_then(fraction))
            }
            (Some(b"automove"), Some(b"window"), window, _) => match window.and_then(number::unsigned_32) {
                None => BAD_FORMAT,
                Some(window @ 3..=1800) => set(&mut settings.ignored.slab_automove_window, Some(window)),
                Some(_) => "CLIENT_ERROR automove window too low or too high\r\n",
            },
            (Some(b"automove"), Some(level), ..) => match number::unsigned_32(level) {
                None => BAD_FORMAT,
                Some(level @ 0..=2) => set(&mut settings.ignored.slab_automove, Some(level)),
                Some(_) => ERROR,
            },
            (Some(b"reassign"), Some(from), Some(to), None) => reassign(number::signed_32(from), number::signed_32(to)),
            _ => ERROR,
        }
    }

    /// `lru tune ...`, `lru mode ...`, `lru temp_ttl ...`
    pub(super) fn lru(&self, mut args: Words<'_>) -> &'static str {
        let mut settings = self.lock();
        let verb = args.next();
        let words = [args.next(), args.next(), args.next(), args.next()];
        match (verb, words) {
            (Some(b"tune"), [Some(hot), Some(warm), Some(hot_factor), Some(warm_factor)]) => {
                match (number::unsigned_32(hot), number::unsigned_32(warm), fraction(hot_factor), fraction(warm_factor))
                {
                    (Some(hot), Some(warm), ..) if u64::from(hot) + u64::from(warm) > 80 => {
                        "ERROR hot and warm pcts must not exceed 80\r\n"
                    }
                    (Some(_), Some(_), Some(hot), Some(warm)) if hot <= 0.0 || warm <= 0.0 => {
                        "ERROR hot/warm age factors must be greater than 0\r\n"
                    }
                    (Some(hot), Some(warm), Some(hot_factor), Some(warm_factor)) => {
                        (settings.ignored.hot_lru_pct, settings.ignored.warm_lru_pct) = (hot, warm);
                        (settings.ignored.hot_max_factor, settings.ignored.warm_max_factor) = (hot_factor, warm_factor);
                        OK
                    }
                    _ => ERROR,
                }
            }
            (Some(b"mode"), [Some(mode), ..]) if settings.ignored.lru_maintainer => match mode {
                b"flat" => set(&mut settings.ignored.lru_segmented, Some(false)),
                b"segmented" => set(&mut settings.ignored.lru_segmented, Some(true)),
                _ => ERROR,
            },
            (Some(b"temp_ttl"), [Some(ttl), ..]) if settings.ignored.lru_maintainer => match number::signed_32(ttl) {
                Some(ttl) => set(&mut settings.ignored.temporary_ttl, Some(u32::try_from(ttl).ok())),
                None => ERROR,
            },
            _ => ERROR,
        }
    }

    /// `lru_crawler ...`, except the dumps.
    pub(super) fn lru_crawler(&self, mut args: Words<'_>) -> &'static str {
        let mut settings = self.lock();
        match (args.next(), args.next(), args.next()) {
            (Some(b"enable"), None, _) => set(&mut settings.lru_crawler, Some(true)),
            (Some(b"disable"), None, _) => set(&mut settings.lru_crawler, Some(false)),
            (Some(b"crawl"), Some(_), None) if !settings.lru_crawler => CRAWLER_DISABLED,
            (Some(b"crawl"), Some(classes), None) => Classes::parse(classes).map_or(BAD_CLASS, |_| OK),
            (Some(b"sleep"), Some(sleep), None) => match number::unsigned_32(sleep) {
                None => BAD_FORMAT,
                Some(sleep @ 0..=1_000_000) => set(&mut settings.ignored.lru_crawler_sleep, Some(sleep)),
                Some(_) => "CLIENT_ERROR sleep must be one second or less\r\n",
            },
            (Some(b"tocrawl"), Some(count), None) => match number::unsigned_32(count) {
                None => BAD_FORMAT,
                count => set(&mut settings.ignored.lru_crawler_tocrawl, count),
            },
            _ => ERROR,
        }
    }
}

pub(super) const CRAWLER_DISABLED: &str = "CLIENT_ERROR lru crawler disabled\r\n";
pub(super) const BAD_CLASS: &str = "BADCLASS invalid class id\r\n";

/// The size classes that a command names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Classes {
    /// The class of all items, and possibly others.
    Ours,
    /// Only classes without items.
    Others,
}

impl Classes {
    /// Parses `all`, `hash`, or a comma-separated list of numbers.
    pub(super) fn parse(word: &[u8]) -> Option<Classes> {
        if matches!(word, b"all" | b"hash") {
            return Some(Classes::Ours);
        }
        let mut classes = Classes::Others;
        for class in word.split(|byte| *byte == b',') {
            match number::unsigned_32(class)? {
                class if class == u32::from(super::CLASS) => classes = Classes::Ours,
                1..=LAST_CLASS => (),
                _ => return None,
            }
        }
        Some(classes)
    }
}

fn reassign(from: Option<i32>, to: Option<i32>) -> &'static str {
    let is_class = |class: i32| (1..=LAST_CLASS as i32).contains(&class);
    match (from, to) {
        (Some(from), Some(to)) if from == to => "SAME src and dst class are identical\r\n",
        (Some(from), Some(to)) if !is_class(from) || !is_class(to) => "BADCLASS invalid src or dst class id\r\n",
        (Some(_), Some(_)) => "NOSPARE source class has no spare pages\r\n",
        _ => BAD_FORMAT,
    }
}

fn set<T>(place: &mut T, value: Option<T>) -> &'static str {
    match value {
        Some(value) => {
            *place = value;
            OK
        }
        None => ERROR,
    }
}

fn fraction(word: &[u8]) -> Option<f64> {
    str::from_utf8(word).ok()?.parse().ok().filter(|number: &f64| number.is_finite())
}
