//! Byte-exact conversations recorded from memcached 1.6.45, each replayed against a fresh server: the program itself, started
//! with the options that the transcript names.

use crate::replay::play;

macro_rules! transcripts {
    ($($name:ident: $file:literal, $count:literal;)*) => {
        $(
            #[test]
            fn $name() {
                let text = include_str!(concat!("../transcripts/", $file, ".txt"));
                assert_eq!(play(text), $count);
            }
        )*
    };
}

transcripts! {
    admin: "admin", 71;
    admin_disabled: "admin-disabled", 14;
    ascii_only: "ascii-only", 2;
    auth: "auth", 47;
    binary: "binary", 118;
    binary_errors: "binary-errors", 93;
    binary_only: "binary-only", 3;
    binary_quiet: "binary-quiet", 28;
    classic_errors: "classic-errors", 160;
    classic_storage: "classic-storage", 111;
    expiry: "expiry", 63;
    expiry_late: "expiry-late", 10;
    expiry_real: "expiry-real", 11;
    flush: "flush", 35;
    flush_clock: "flush-clock", 12;
    idle_timeout: "idle-timeout", 3;
    incr_decr: "incr-decr", 95;
    item_size: "item-size", 13;
    item_size_small: "item-size-small", 5;
    malformed: "malformed", 87;
    meta_arith: "meta-arith", 119;
    meta_base64: "meta-base64", 58;
    meta_delete: "meta-delete", 77;
    meta_get: "meta-get", 179;
    meta_set: "meta-set", 184;
    meta_stale: "meta-stale", 141;
    meta_ttl: "meta-ttl", 73;
    multiget: "multiget", 15;
    nocas: "nocas", 20;
    noreply: "noreply", 43;
    quirks: "quirks", 41;
    sasl: "sasl", 51;
    shutdown: "shutdown", 4;
    stats: "stats", 41;
    stats_conns: "stats-conns", 1;
    stats_groups: "stats-groups", 37;
    stats_minimal: "stats-minimal", 4;
    stats_prefix: "stats-prefix", 4;
    stats_sizes: "stats-sizes", 11;
    udp: "udp", 19;
}
