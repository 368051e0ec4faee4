//! Byte-exact conversations recorded from memcached 1.6.45, each replayed against a fresh server.

use crate::harness::Running;
use crate::replay::play;

macro_rules! transcripts {
    ($($name:ident: $file:literal, $count:literal;)*) => {
        $(
            #[test]
            fn $name() {
                let server = Running::start("-t 2 --debug-time");
                let text = include_str!(concat!("../transcripts/", $file, ".txt"));
                assert_eq!(play(text, server.address), $count);
            }
        )*
    };
}

transcripts! {
    classic_storage: "classic-storage", 111;
    classic_errors: "classic-errors", 119;
    incr_decr: "incr-decr", 95;
    multiget: "multiget", 15;
    noreply: "noreply", 42;
    flush: "flush", 35;
    flush_clock: "flush-clock", 12;
    expiry: "expiry", 61;
    expiry_late: "expiry-late", 8;
    expiry_real: "expiry-real", 8;
    malformed: "malformed", 79;
}
