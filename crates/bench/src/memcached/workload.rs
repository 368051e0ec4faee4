//! Workloads: the number of clients, their requests and their rate.

use std::fmt;
use std::num::NonZero;
use std::str::FromStr;

use anyhow::{Result, ensure};
use clap::{ValueEnum, value_parser};
use serde::{Serialize, Serializer};

use crate::harness::options::parse_count;
use crate::harness::sampling::Distribution;

pub const MAX_KEY: usize = 250;

/// The maximum size of a value that memcached supports.
const MAX_VALUE: usize = 1 << 30;

/// The maximum number of value bytes in the buffers of all clients together.
const MAX_BUFFERS: u64 = 4 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// `get` and `set`
    Classic,
    /// `mg` and `ms`
    Meta,
}

/// The workload of all clients together.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize)]
pub struct Workload {
    /// Number of clients. Each has one connection. They are divided among the threads
    #[arg(long, default_value_t = DEFAULT.clients, value_parser = value_parser!(u16).range(1..))]
    pub clients: u16,

    /// Number of threads that drive the clients
    #[arg(long, default_value_t = DEFAULT.threads, value_parser = value_parser!(u16).range(1..=1024))]
    pub threads: u16,

    /// Requests that a client sends in one write. It sends the next ones when all of them are
    /// answered. With --rate: maximum number of unanswered requests per client
    #[arg(long, default_value_t = DEFAULT.depth, value_parser = value_parser!(u16).range(1..=4096))]
    pub depth: u16,

    /// Keys per GET
    #[arg(long, default_value_t = DEFAULT.keys_per_get, value_parser = value_parser!(u16).range(1..=4096))]
    pub keys_per_get: u16,

    /// Requests per second of all clients together. Each request is sent when it is due, even if
    /// earlier ones are unanswered, and its latency counts from then [default: as fast as replies
    /// arrive]
    #[arg(long, value_parser = parse_rate)]
    pub rate: Option<f64>,

    /// Percentage of requests that are SETs
    #[arg(long, value_name = "PERCENT", default_value_t = DEFAULT.sets, value_parser = value_parser!(u8).range(0..=100))]
    pub sets: u8,

    /// Number of items. All are stored before the measurement, unless --no-preload is given
    #[arg(long, default_value_t = DEFAULT.items, value_parser = parse_count)]
    pub items: u64,

    /// Let SETs store new items until the server has this number of items, then end the
    /// measurement. Needs --rate
    #[arg(long, value_name = "ITEMS", value_parser = parse_count)]
    pub grow: Option<u64>,

    /// Distribution of the requested items
    #[arg(long, value_enum, default_value_t = DEFAULT.popularity)]
    pub popularity: Distribution,

    /// Bytes of a key: a number, a range such as 10-40, or several with weights such as
    /// 10-20:9,250:1
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT.key_size)]
    pub key_size: Sizes,

    /// Bytes of a value, in the same format, such as 100:90,1000-4000:9,1000000:1. Servers need -I
    /// for values above 1 MiB
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT.value_size)]
    pub value_size: Sizes,

    /// Protocol of the requests
    #[arg(long, value_enum, default_value_t = DEFAULT.protocol)]
    pub protocol: Protocol,

    /// Do not store the items before the measurement
    #[arg(long)]
    pub no_preload: bool,
}

/// The default workload.
pub const DEFAULT: Workload = Workload {
    clients: 50,
    threads: 1,
    depth: 1,
    keys_per_get: 1,
    rate: None,
    sets: 0,
    items: 100_000,
    grow: None,
    popularity: Distribution::Uniform,
    key_size: Sizes::one(10),
    value_size: Sizes::one(100),
    protocol: Protocol::Classic,
    no_preload: false,
};

impl Workload {
    /// Returns a workload in which SETs grow the table from 2^16 to 2^22 buckets, while GETs are
    /// measured.
    ///
    /// memcached starts with 2^16 buckets and doubles them at 1.5 items per bucket. The items of
    /// this workload fill more than 2^21 buckets. The rate is a quarter to a third of what either
    /// server can do, so that requests wait for the growth and not for each other.
    pub fn growth(threads: u16, quick: bool) -> Self {
        Self {
            threads,
            items: 65_536,
            grow: Some(if quick { 200_000 } else { 3_200_000 }),
            rate: Some(20_000.0),
            sets: 90,
            depth: 64,
            ..DEFAULT
        }
    }

    /// Checks combinations of options that the command line parser cannot check.
    pub fn check(&self) -> Result<()> {
        let digits = digits(self.all_items());
        ensure!(self.key_size.most() <= MAX_KEY, "--key-size {}: keys have at most {MAX_KEY} bytes", self.key_size);
        ensure!(
            self.key_size.least() >= digits,
            "--key-size {}: {} items need keys of at least {digits} bytes",
            self.key_size,
            self.all_items()
        );
        ensure!(self.value_size.most() <= MAX_VALUE, "--value-size {}: at most 2^30", self.value_size);
        let buffers = self.buffers();
        ensure!(
            buffers <= MAX_BUFFERS,
            "--value-size {}: {} clients may need {} MiB of buffers: use fewer clients{} or smaller values",
            self.value_size,
            self.clients,
            buffers >> 20,
            if self.sets > 0 && self.depth > 1 { ", a smaller --depth" } else { "" }
        );
        ensure!(self.threads <= self.clients, "--threads {}: there are only {} clients", self.threads, self.clients);
        if let Some(grow) = self.grow {
            ensure!(grow > self.items, "--grow {grow}: must be above --items {}", self.items);
            ensure!(self.rate.is_some() && self.sets > 0, "--grow needs --rate, and --sets above 0");
        }
        Ok(())
    }

    /// Returns the maximum number of value bytes that all clients together hold: for each client,
    /// the values that it sends together and the value that it receives.
    fn buffers(&self) -> u64 {
        let values = if self.sets > 0 { u32::from(self.depth) + 1 } else { 1 };
        u64::from(self.clients) * u64::from(values) * self.value_size.most() as u64
    }

    /// Returns the maximum number of items at the end.
    pub fn all_items(&self) -> u64 {
        self.grow.unwrap_or(self.items)
    }

    /// Returns the seconds until all items of `--grow` are stored.
    pub fn seconds_of_growth(&self) -> Option<f64> {
        let per_second = self.rate? * f64::from(self.sets) / 100.0;
        Some((self.grow? - self.items) as f64 / per_second)
    }
}

impl fmt::Display for Workload {
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

/// Returns the number of hexadecimal digits in the largest item number.
pub fn digits(items: u64) -> usize {
    (items - 1).max(1).ilog(16) as usize + 1
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.replace('_', "").parse::<f64>() {
        Ok(rate) if (1.0..=1e9).contains(&rate) => Ok(rate),
        _ => Err("expected requests per second between 1 and 1e9".into()),
    }
}

/// Sizes of keys or values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All sizes of a range are equally frequent.
    Even(Range),
    /// Several ranges, with frequencies in proportion to their weights.
    Weighted(Vec<(Range, NonZero<u16>)>),
}

/// A range of sizes: the smallest and the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    least: usize,
    most: usize,
}

impl Range {
    /// Returns the size that these random bits select.
    #[inline]
    fn pick(self, random: u32) -> usize {
        self.least + ((random as usize * (self.most - self.least + 1)) >> 32)
    }
}

impl Sizes {
    pub const fn one(size: usize) -> Self {
        Self::range(size, size)
    }

    /// Makes all sizes from `least` to `most` equally frequent.
    pub const fn range(least: usize, most: usize) -> Self {
        Self::Even(Range { least, most })
    }

    fn ranges(&self) -> impl Iterator<Item = Range> {
        let (one, several) = match self {
            Self::Even(range) => (Some(*range), [].as_slice()),
            Self::Weighted(ranges) => (None, ranges.as_slice()),
        };
        one.into_iter().chain(several.iter().map(|(range, _)| *range))
    }

    pub fn least(&self) -> usize {
        self.ranges().map(|range| range.least).min().unwrap_or(0)
    }

    pub fn most(&self) -> usize {
        self.ranges().map(|range| range.most).max().unwrap_or(0)
    }

    /// Returns the size that these random bits select.
    #[inline]
    pub fn pick(&self, random: u32) -> usize {
        match self {
            Self::Even(range) => range.pick(random),
            Self::Weighted(ranges) => {
                let sum: u64 = ranges.iter().map(|(_, weight)| u64::from(weight.get())).sum();
                // The high half selects the range by its weight. The low half, which is just as
                // random, selects the size in the range.
                let scaled = u64::from(random) * sum;
                let mut place = scaled >> 32;
                for &(range, weight) in ranges {
                    match place.checked_sub(weight.get().into()) {
                        Some(rest) => place = rest,
                        None => return range.pick(scaled as u32),
                    }
                }
                unreachable!("the place is below the sum of the weights")
            }
        }
    }
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        match (least.parse(), most.parse()) {
            (Ok(least), Ok(most)) if 0 < least && least <= most => Ok(Self { least, most }),
            _ => Err(format!("{text:?} is neither a number of bytes such as 100, nor a range such as 64-1024")),
        }
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains([':', ',']) {
            return text.parse().map(Self::Even);
        }
        let weighted = |part: &str| {
            let (range, weight) = part.split_once(':').unwrap_or((part, "1"));
            let weight = weight.parse().map_err(|_| format!("{weight:?} is not a weight from 1 to 65535"))?;
            Ok::<_, String>((range.parse()?, weight))
        };
        text.split(',').map(weighted).collect::<Result<_, _>>().map(Self::Weighted)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, most } = self;
        if least == most { write!(f, "{least}") } else { write!(f, "{least}-{most}") }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Even(range) => range.fmt(f),
            Self::Weighted(ranges) => {
                for (number, (range, weight)) in ranges.iter().enumerate() {
                    write!(f, "{}{range}:{weight}", if number > 0 { "," } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

impl Serialize for Sizes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_ranges_and_several_of_them() {
        assert_eq!("100".parse(), Ok(Sizes::one(100)));
        assert_eq!("10-40".parse(), Ok(Sizes::range(10, 40)));
        let several: Sizes = "10-40:9,5,1000:30".parse().unwrap();
        assert_eq!((several.least(), several.most()), (5, 1000));
        assert_eq!(several.to_string(), "10-40:9,5:1,1000:30");
        assert_eq!(several.to_string().parse(), Ok(several));
        for text in ["", "0", "40-10", "-5", "10-", "ten", "1-2-3", "1:0", "1:", ":1", "1,", "1:65536", "1:2:3"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_cover_their_ranges_by_weight() {
        let sizes = Sizes::range(3, 6);
        assert_eq!([0, 0x3fff_ffff, 0x4000_0000, u32::MAX].map(|random| sizes.pick(random)), [3, 3, 4, 6]);
        let weighted: Sizes = "1-2:2,3-4:6".parse().unwrap();
        let counts =
            (0..8000u32).map(|step| weighted.pick(step * (u32::MAX / 8000))).fold([0; 5], |mut counts, size| {
                counts[size] += 1;
                counts
            });
        for (count, expected) in counts.into_iter().zip([0i32, 1000, 1000, 3000, 3000]) {
            assert!((count - expected).abs() <= 2, "{counts:?}");
        }
    }

    #[test]
    fn what_would_not_fit_the_memory_is_refused() {
        let large = Workload { value_size: Sizes::one(1 << 30), clients: 4, ..DEFAULT };
        large.check().unwrap();
        let error = Workload { depth: 2, sets: 1, ..large }.check().unwrap_err().to_string();
        assert!(error.contains("12288 MiB") && error.contains("a smaller --depth"), "{error}");
        assert!(Workload { value_size: Sizes::one((1 << 30) + 1), clients: 1, ..DEFAULT }.check().is_err());
    }

    #[test]
    fn items_have_keys_of_enough_digits() {
        assert_eq!([1, 2, 16, 17, 256, 257, 1 << 32].map(digits), [1, 1, 1, 2, 2, 3, 8]);
        let workload = Workload { items: 257, key_size: Sizes::range(2, 9), ..DEFAULT };
        assert!(workload.check().unwrap_err().to_string().contains("at least 3 bytes"));
    }

    #[test]
    fn growth_takes_as_long_as_its_sets() {
        let workload = Workload { items: 1000, grow: Some(3000), rate: Some(400.0), sets: 50, ..DEFAULT };
        assert_eq!(workload.seconds_of_growth(), Some(10.0));
        assert!(Workload { rate: None, ..workload }.check().is_err());
    }
}
