//! What clients do: how many there are, what they ask for and how fast.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, ensure};
use clap::{ValueEnum, value_parser};
use serde::Serialize;

use crate::compare::draws::Distribution;
use crate::options::parse_count;

/// memcached's limit.
pub const LONGEST_KEY: usize = 250;

/// What servers store unless they are told to take larger ones.
const LARGEST_VALUE: usize = 1 << 20;

/// The syntax of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// `get` and `set`
    Classic,
    /// `mg` and `ms`
    Meta,
}

/// What all clients together do to a server.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize)]
pub struct Work {
    /// Clients, each with a connection, shared out among the threads
    #[arg(long, default_value_t = DEFAULT.clients, value_parser = value_parser!(u16).range(1..))]
    pub clients: u16,

    /// Threads that drive the clients
    #[arg(long, default_value_t = DEFAULT.threads, value_parser = value_parser!(u16).range(1..=1024))]
    pub threads: u16,

    /// Requests that a client sends together, by one write; the next ones follow when all of them are answered. With --rate:
    /// how many may be unanswered
    #[arg(long, default_value_t = DEFAULT.depth, value_parser = value_parser!(u16).range(1..=4096))]
    pub depth: u16,

    /// Keys that a GET asks for
    #[arg(long, default_value_t = DEFAULT.keys_per_get, value_parser = value_parser!(u16).range(1..=4096))]
    pub keys_per_get: u16,

    /// Requests per second of all clients together, sent when they are due whether or not earlier ones are answered. Latencies
    /// count from when a request was due [default: as fast as answers come]
    #[arg(long, value_parser = parse_rate)]
    pub rate: Option<f64>,

    /// Percentage of requests that are SETs
    #[arg(long, value_name = "PERCENT", default_value_t = DEFAULT.sets, value_parser = value_parser!(u8).range(0..=100))]
    pub sets: u8,

    /// Items that are stored before anything is measured, and asked for
    #[arg(long, default_value_t = DEFAULT.items, value_parser = parse_count)]
    pub items: u64,

    /// SETs store items that are new, one after the other, until there are so many; that ends the measurement. Needs --rate
    #[arg(long, value_name = "ITEMS", value_parser = parse_count)]
    pub grow: Option<u64>,

    /// How often which item is asked for
    #[arg(long, value_enum, default_value_t = DEFAULT.popularity)]
    pub popularity: Distribution,

    /// Bytes of a key, or their range, such as 10-40
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT.key_size)]
    pub key_size: Sizes,

    /// Bytes of a value, or their range
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT.value_size)]
    pub value_size: Sizes,

    /// The syntax of requests
    #[arg(long, value_enum, default_value_t = DEFAULT.protocol)]
    pub protocol: Protocol,

    /// Store nothing beforehand
    #[arg(long)]
    pub no_preload: bool,

    /// Read replies without comparing keys and values: for `relativist echo`, which stores nothing
    #[arg(long, requires = "no_preload")]
    pub unchecked: bool,
}

/// What is done if nothing else is asked for.
pub const DEFAULT: Work = Work {
    clients: 50,
    threads: 1,
    depth: 1,
    keys_per_get: 1,
    rate: None,
    sets: 0,
    items: 100_000,
    grow: None,
    popularity: Distribution::Uniform,
    key_size: Sizes { least: 10, most: 10 },
    value_size: Sizes { least: 100, most: 100 },
    protocol: Protocol::Classic,
    no_preload: false,
    unchecked: false,
};

impl Work {
    /// Checks what the command line's syntax can't.
    ///
    /// # Errors
    /// A sentence about what is impossible.
    pub fn check(&self) -> Result<()> {
        let digits = digits(self.all_items());
        let Sizes { least, most } = self.key_size;
        ensure!(most <= LONGEST_KEY, "--key-size {}: keys have {LONGEST_KEY} bytes at most", self.key_size);
        ensure!(
            least >= digits,
            "--key-size {}: {} items need keys of {digits} bytes at least",
            self.key_size,
            self.all_items()
        );
        ensure!(self.value_size.most <= LARGEST_VALUE, "--value-size {}: at most 2^20", self.value_size);
        ensure!(self.threads <= self.clients, "--threads {}: there are only {} clients", self.threads, self.clients);
        if let Some(grow) = self.grow {
            ensure!(grow > self.items, "--grow {grow}: there are {} items from the start", self.items);
            ensure!(self.rate.is_some() && self.sets > 0, "--grow needs --rate, and --sets above 0");
        }
        Ok(())
    }

    /// How many items there may be in the end.
    #[must_use]
    pub fn all_items(&self) -> u64 {
        self.grow.unwrap_or(self.items)
    }

    /// Seconds until all items of `--grow` are stored.
    #[must_use]
    pub fn seconds_of_growth(&self) -> Option<f64> {
        let per_second = self.rate? * f64::from(self.sets) / 100.0;
        Some((self.grow? - self.items) as f64 / per_second)
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sets {
            0 => f.write_str("GET")?,
            100 => f.write_str("SET")?,
            sets => write!(f, "{} % GET, {sets} % SET", 100 - sets)?,
        }
        if self.keys_per_get > 1 {
            write!(f, " of {} keys", self.keys_per_get)?;
        }
        write!(f, ", {} clients", self.clients)?;
        match (self.rate, self.depth) {
            (Some(rate), _) => write!(f, ", {rate} requests/s")?,
            (None, 1) => f.write_str(", one outstanding")?,
            (None, depth) => write!(f, ", {depth} deep")?,
        }
        write!(f, "; {} items", self.items)?;
        if let Some(grow) = self.grow {
            write!(f, " growing to {grow}")?;
        }
        write!(f, " of {} + {} bytes, {}", self.key_size, self.value_size, self.popularity.name())?;
        if self.protocol == Protocol::Meta { f.write_str(", meta commands") } else { Ok(()) }
    }
}

/// Hexadecimal digits that tell so many items apart.
#[must_use]
pub fn digits(items: u64) -> usize {
    (items - 1).max(1).ilog(16) as usize + 1
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.replace('_', "").parse::<f64>() {
        Ok(rate) if (1.0..=1e9).contains(&rate) => Ok(rate),
        _ => Err("expected requests per second between 1 and 1e9".into()),
    }
}

/// A size, or a range of sizes that are all as frequent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// The smallest.
    pub least: usize,
    /// The largest.
    pub most: usize,
}

impl Sizes {
    /// The size that goes with some random bits.
    #[must_use]
    pub fn pick(self, random: u32) -> usize {
        self.least + ((random as usize * (self.most - self.least + 1)) >> 32)
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        match (least.parse(), most.parse()) {
            (Ok(least), Ok(most)) if 0 < least && least <= most => Ok(Self { least, most }),
            _ => Err("expected a number of bytes such as 100, or a range such as 64-1024".into()),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, most } = self;
        if least == most { write!(f, "{least}") } else { write!(f, "{least}-{most}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_and_ranges() {
        assert_eq!("100".parse(), Ok(Sizes { least: 100, most: 100 }));
        assert_eq!("10-40".parse(), Ok(Sizes { least: 10, most: 40 }));
        for text in ["", "0", "40-10", "-5", "10-", "ten", "1-2-3"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_cover_their_range_evenly() {
        let sizes = Sizes { least: 3, most: 6 };
        assert_eq!([0, 0x3fff_ffff, 0x4000_0000, u32::MAX].map(|random| sizes.pick(random)), [3, 3, 4, 6]);
    }

    #[test]
    fn items_have_keys_of_enough_digits() {
        assert_eq!([1, 2, 16, 17, 256, 257, 1 << 32].map(digits), [1, 1, 1, 2, 2, 3, 8]);
        let work = Work { items: 257, key_size: Sizes { least: 2, most: 9 }, ..DEFAULT };
        assert!(work.check().unwrap_err().to_string().contains("3 bytes at least"));
    }

    #[test]
    fn growth_takes_as_long_as_its_sets() {
        let work = Work { items: 1000, grow: Some(3000), rate: Some(400.0), sets: 50, ..DEFAULT };
        assert_eq!(work.seconds_of_growth(), Some(10.0));
        assert!(Work { rate: None, ..work }.check().is_err());
    }
}
