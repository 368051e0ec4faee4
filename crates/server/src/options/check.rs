//! Checks whether the options contradict each other.

use super::{Binding, MEBIBYTE, Options, asks_for_certificate};
use crate::error::StartError;
use crate::observability::hot_keys::Mode;

/// The smallest `-I`, in bytes.
const MIN_ITEM_LIMIT: usize = 1 << 10;

/// The largest `-I`, in bytes.
const MAX_ITEM_LIMIT: usize = 1 << 30;

/// The maximum share of memcached's hot and warm LRU segments together, in percent.
const MAX_HOT_AND_WARM: u32 = 80;

/// Two of memcached's size classes differ by more than this, in bytes.
const MIN_CLASS_STEP: u32 = 8;

/// A contradiction: how to find it, and its message.
type Check = (fn(&Options) -> bool, &'static str);

/// All contradictions. The first one found is reported.
const CHECKS: &[Check] = &[
    (|o| o.max_item_size < MIN_ITEM_LIMIT, "items (-I) cannot be limited to less than 1024 bytes"),
    (|o| o.max_item_size > MAX_ITEM_LIMIT, "items (-I) cannot be larger than a gigabyte"),
    (|o| o.max_item_size > o.memory_bytes() / 2, "items (-I) cannot be larger than half of the memory (-m)"),
    (|o| o.slab_growth_factor <= 1.0 || o.slab_growth_factor.is_nan(), "the growth factor (-f) must be greater than 1"),
    (|o| !o.chunks_fit(), "the chunk size (-o slab_chunk_max) must divide a mebibyte and the item size (-I)"),
    (
        |o| !o.classes_rise(),
        "size classes (-o slab_sizes) must grow by more than 8 bytes each, from -n up to slab_chunk_max",
    ),
    (
        |o| o.extended.ignored.hot_lru_pct + o.extended.ignored.warm_lru_pct > MAX_HOT_AND_WARM,
        "hot_lru_pct and warm_lru_pct (-o) cannot exceed 80 together",
    ),
    (
        |o| o.extended.ignored.temporary_ttl.is_some() && !o.extended.ignored.lru_maintainer,
        "temporary_ttl (-o) needs lru_maintainer",
    ),
    (
        |o| !o.enable_ssl && o.listen.iter().any(|address| address.security.is_some()),
        "the prefixes notls:, btls: and mtls: (-l) need TLS (-Z)",
    ),
    (|o| o.enable_ssl && o.extended.ssl.chain_cert.is_none(), "TLS (-Z) needs a certificate (-o ssl_chain_cert=FILE)"),
    (|o| o.enable_ssl && o.extended.ssl.key.is_none(), "TLS (-Z) needs the certificate's key (-o ssl_key=FILE)"),
    (
        |o| o.enable_ssl && asks_for_certificate(o.security()) && o.extended.ssl.ca_cert.is_none(),
        "client certificates need an authority (-o ssl_ca_cert=FILE)",
    ),
    (
        |o| !o.requires_login() && o.listen.iter().any(|address| address.without_login),
        "the prefix nologin: (-l) needs a login that it can leave out (-Y, -S)",
    ),
    (
        |o| o.hot_keys == Mode::Clear && o.disable_dumping,
        "hot keys cannot be listed (--hot-keys clear) while commands that list keys are refused (-X)",
    ),
    (|o| o.auth_file.is_some() && o.enable_sasl, "logins can be by text (-Y) or by SASL (-S), not by both"),
    (|o| o.requires_login() && o.udp_port != 0, "UDP (-U) has no logins (-Y, -S)"),
    (|o| o.auth_file.is_some() && o.names_other_than(Binding::Ascii), "the login by text (-Y) needs the text protocol"),
    (|o| o.enable_sasl && o.names_other_than(Binding::Binary), "SASL (-S) needs the binary protocol"),
];

impl Options {
    /// Checks that the options fit together.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), StartError> {
        match CHECKS.iter().find(|(is_wrong, _)| is_wrong(self)) {
            Some((_, problem)) => Err(StartError::Usage((*problem).into())),
            None => Ok(()),
        }
    }

    /// Whether `-B` or a prefix of `-l` names another protocol, or both protocols.
    fn names_other_than(&self, only: Binding) -> bool {
        let with_login = self.listen.iter().filter(|address| !address.without_login);
        let named = with_login.map(|address| address.binding).chain([self.protocol]);
        named.flatten().any(|binding| binding != only)
    }

    /// Whether the chunk size divides a mebibyte and `-I`, as memcached requires. The default chunk
    /// size is not checked: no `-I` below 512 KiB would fit it.
    fn chunks_fit(&self) -> bool {
        let divides = |kibibytes: u32| {
            let chunk = (kibibytes as usize) << 10;
            [MEBIBYTE, self.max_item_size].iter().all(|whole| whole % chunk == 0)
        };
        self.extended.ignored.slab_chunk_max.is_none_or(divides)
    }

    /// Whether memcached would allow these size classes.
    fn classes_rise(&self) -> bool {
        let sizes = &self.extended.ignored.slab_sizes;
        let possible = self.slab_min_size..=self.extended.ignored.chunk_bytes();
        sizes.iter().all(|size| possible.contains(size))
            && sizes.is_sorted_by(|one, next| one.saturating_add(MIN_CLASS_STEP) < *next)
    }
}
