//! The options of `-o`.

use super::Ssl;
use relativist_store::policy::EvictFor;
use std::str::FromStr;

/// The largest chunk, in KiB.
const MAX_CHUNK: u32 = 1024;

/// The options of `-o`.
#[derive(Clone, Debug, PartialEq)]
pub struct Extended {
    /// Refuse connections beyond the limit with an error, instead of letting them wait.
    pub maxconns_fast: bool,
    /// Seconds of silence after which a TCP connection is closed; 0 for never.
    pub idle_timeout: u32,
    /// Enable the histogram of item sizes.
    pub track_sizes: bool,
    /// Enable commands that list keys.
    pub lru_crawler: bool,
    /// Log buffer per watching client, in KiB.
    pub watcher_logbuf_size: u32,
    /// The sandbox: `None` restricts files, `Some(true)` also system calls, `Some(false)` nothing.
    pub drop_privileges: Option<bool>,
    /// The limit on the buffers of all connections, in MiB; 0 for one that follows from `-m`.
    pub read_buf_mem_limit: u32,
    /// What eviction makes few of.
    pub evict_for: EvictFor,
    /// TLS settings.
    pub ssl: Ssl,
    /// Options without effect.
    pub ignored: Ignored,
}

/// Options that tune parts of memcached that this server does not have. They are checked, shown by
/// `stats settings`, and otherwise ignored. The names are memcached's.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "memcached documents them")]
pub struct Ignored {
    pub slab_reassign: bool,
    pub slab_automove: u32,
    pub slab_automove_ratio: f64,
    pub slab_automove_window: u32,
    pub slab_automove_freeratio: f64,
    /// KiB of the largest chunk, if given.
    pub slab_chunk_max: Option<u32>,
    /// Bytes of each size class, if given.
    pub slab_sizes: Vec<u32>,
    pub hashpower: u32,
    pub hash_algorithm: String,
    pub lru_maintainer: bool,
    pub lru_segmented: bool,
    pub lru_crawler_sleep: u32,
    pub lru_crawler_tocrawl: u32,
    pub hot_lru_pct: u32,
    pub warm_lru_pct: u32,
    pub hot_max_factor: f64,
    pub warm_max_factor: f64,
    pub temporary_ttl: Option<u32>,
    pub tail_repair_time: u32,
    pub worker_logbuf_size: u32,
}

impl Default for Extended {
    /// The defaults of memcached.
    fn default() -> Extended {
        Extended {
            maxconns_fast: true,
            idle_timeout: 0,
            track_sizes: false,
            lru_crawler: true,
            watcher_logbuf_size: 256,
            drop_privileges: None,
            read_buf_mem_limit: 0,
            evict_for: EvictFor::default(),
            ssl: Ssl::default(),
            ignored: Ignored::default(),
        }
    }
}

impl Default for Ignored {
    /// The defaults of memcached.
    fn default() -> Ignored {
        Ignored {
            slab_reassign: true,
            slab_automove: 1,
            slab_automove_ratio: 0.8,
            slab_automove_window: 10,
            slab_automove_freeratio: 0.01,
            slab_chunk_max: None,
            slab_sizes: Vec::new(),
            hashpower: 16,
            hash_algorithm: "murmur3".into(),
            lru_maintainer: true,
            lru_segmented: true,
            lru_crawler_sleep: 100,
            lru_crawler_tocrawl: 0,
            hot_lru_pct: 20,
            warm_lru_pct: 40,
            hot_max_factor: 0.2,
            warm_max_factor: 2.0,
            temporary_ttl: None,
            tail_repair_time: 0,
            worker_logbuf_size: 64,
        }
    }
}

impl Ignored {
    /// Bytes of the largest chunk.
    pub fn chunk_bytes(&self) -> u32 {
        self.slab_chunk_max.unwrap_or(512) << 10
    }

    /// Applies `no_modern`, which stands for the defaults of memcached before 1.5.
    fn apply_no_modern(&mut self) {
        (self.slab_reassign, self.slab_automove) = (false, 0);
        (self.lru_maintainer, self.lru_segmented) = (false, false);
        self.slab_chunk_max = Some(MAX_CHUNK);
        self.hash_algorithm = "jenkins".into();
    }

    /// Applies one option. False if there is none of that name.
    fn apply(&mut self, value: &Value<'_>) -> Result<bool, String> {
        match value.name {
            "slab_reassign" => self.slab_reassign = true,
            "no_slab_reassign" => self.slab_reassign = false,
            "lru_maintainer" => (self.lru_maintainer, self.lru_segmented) = (true, true),
            "no_lru_maintainer" => (self.lru_maintainer, self.lru_segmented) = (false, false),
            "hashpower" => self.hashpower = value.number(12..=32)?,
            "hash_algorithm" => self.hash_algorithm = value.one_of(&["jenkins", "murmur3", "xxh3"])?,
            "slab_automove" if value.text.is_none() => self.slab_automove = 1,
            "slab_automove" => self.slab_automove = value.number(0..=2)?,
            "no_slab_automove" => self.slab_automove = 0,
            "slab_automove_ratio" => self.slab_automove_ratio = value.up_to(1.0)?,
            "slab_automove_window" => self.slab_automove_window = value.number(3..=u32::MAX)?,
            "slab_automove_freeratio" => self.slab_automove_freeratio = value.parse()?,
            "slab_chunk_max" => self.slab_chunk_max = Some(value.number(1..=MAX_CHUNK)?),
            "lru_crawler_sleep" => self.lru_crawler_sleep = value.number(0..=1_000_000)?,
            "lru_crawler_tocrawl" => self.lru_crawler_tocrawl = value.number(0..=u32::MAX)?,
            "hot_lru_pct" => self.hot_lru_pct = value.number(1..=80)?,
            "warm_lru_pct" => self.warm_lru_pct = value.number(1..=80)?,
            "hot_max_factor" => self.hot_max_factor = value.up_to(f64::INFINITY)?,
            "warm_max_factor" => self.warm_max_factor = value.up_to(f64::INFINITY)?,
            "temporary_ttl" => self.temporary_ttl = Some(value.number(0..=u32::MAX)?),
            "tail_repair_time" => self.tail_repair_time = value.number(10..=u32::MAX)?,
            "worker_logbuf_size" => self.worker_logbuf_size = value.number(1..=1 << 20)?,
            "slab_sizes" => self.slab_sizes = value.list()?,
            "no_hashexpand" | "inline_ascii_resp" | "no_inline_ascii_resp" | "modern" => (),
            "no_chunked_items" | "resp_obj_mem_limit" => (),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Extended {
    /// Applies one option of `-o`.
    pub(super) fn apply(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let value = Value { name, text: value };
        match name {
            "maxconns_fast" => self.maxconns_fast = true,
            "no_maxconns_fast" => self.maxconns_fast = false,
            "idle_timeout" => self.idle_timeout = value.number(0..=u32::MAX)?,
            "track_sizes" => self.track_sizes = true,
            "lru_crawler" => self.lru_crawler = true,
            "no_lru_crawler" => self.lru_crawler = false,
            "no_modern" => {
                (self.maxconns_fast, self.lru_crawler) = (false, false);
                self.ignored.apply_no_modern();
            }
            "watcher_logbuf_size" => self.watcher_logbuf_size = value.number(1..=1 << 20)?,
            "read_buf_mem_limit" => self.read_buf_mem_limit = value.number(0..=u32::MAX)?,
            "evict_for" => self.evict_for = value.evict_for()?,
            "ssl_chain_cert" => self.ssl.chain_cert = Some(value.given()?.into()),
            "ssl_key" => self.ssl.key = Some(value.given()?.into()),
            "ssl_keyformat" => self.ssl.keyformat = value.number(1..=2)?,
            "ssl_verify_mode" => self.ssl.verify_mode = value.number(0..=3)?,
            "ssl_ciphers" => self.ssl.ciphers = Some(value.given()?.into()),
            "ssl_ca_cert" => self.ssl.ca_cert = Some(value.given()?.into()),
            "ssl_wbuf_size" => self.ssl.wbuf_size = value.number(1..=1 << 20)?,
            "ssl_session_cache" => self.ssl.session_cache = true,
            "ssl_kernel_tls" => self.ssl.kernel_tls = true,
            "ssl_min_version" => self.ssl.min_version = value.number(0..=3)?,
            "drop_privileges" => self.drop_privileges = Some(true),
            "no_drop_privileges" => self.drop_privileges = Some(false),
            // An option of memcached's test build, which its test tools pass.
            "relaxed_privileges" => (),
            // The empty word after a trailing comma.
            "" if value.text.is_none() => (),
            _ if self.ignored.apply(&value)? => (),
            _ => return Err(format!("Illegal suboption \"{name}\"")),
        }
        Ok(())
    }
}

/// An option's value.
struct Value<'w> {
    name: &'w str,
    text: Option<&'w str>,
}

impl<'w> Value<'w> {
    fn given(&self) -> Result<&'w str, String> {
        self.text
            .map(str::trim_start)
            .filter(|text| !text.is_empty())
            .ok_or_else(|| format!("Missing {} argument", self.name))
    }

    fn parse<T: FromStr>(&self) -> Result<T, String> {
        self.given()?.parse().map_err(|_| format!("could not parse argument to {}", self.name))
    }

    fn number(&self, range: std::ops::RangeInclusive<u32>) -> Result<u32, String> {
        let number = self.parse()?;
        let is_right = range.contains(&number);
        let (min, max) = range.into_inner();
        is_right.then_some(number).ok_or_else(|| format!("{} must be from {min} to {max}", self.name))
    }

    /// Parses a number from 0, excluded, to `high`.
    fn up_to(&self, high: f64) -> Result<f64, String> {
        let number: f64 = self.parse()?;
        let is_right = number.is_finite() && number > 0.0 && number <= high;
        is_right.then_some(number).ok_or_else(|| format!("{} must be more than 0 and at most {high}", self.name))
    }

    /// Parses numbers separated by dashes.
    fn list(&self) -> Result<Vec<u32>, String> {
        let number = |word: &str| word.parse().map_err(|_| format!("{}: {word:?} is not a number", self.name));
        self.given()?.split('-').map(number).collect()
    }

    fn evict_for(&self) -> Result<EvictFor, String> {
        match self.given()? {
            "requests" => Ok(EvictFor::Requests),
            "bytes" => Ok(EvictFor::Bytes),
            _ => Err(format!("{} must be requests or bytes", self.name)),
        }
    }

    fn one_of(&self, words: &[&str]) -> Result<String, String> {
        let given = self.given()?;
        words.contains(&given).then(|| given.into()).ok_or_else(|| format!("Unknown {} option", self.name))
    }
}
