//! Replays conversations recorded from memcached 1.6.45, byte by byte. Each has a new server: the
//! program, started with the transcript's options. All backends are tested at the same time.

use crate::certificates::Authority;
use crate::harness::Io;
use crate::replay::play;
use std::thread;

fn play_on_each(text: &str, count: usize) {
    thread::scope(|scope| {
        for io in Io::available() {
            scope.spawn(move || assert_eq!(play(text, io, None), count, "{}", io.flag()));
        }
    });
}

macro_rules! transcripts {
    ($($name:ident: $file:literal, $count:literal;)*) => {
        $(
            #[test]
            fn $name() {
                let text = include_str!(concat!("../transcripts/", $file, ".txt"));
                play_on_each(text, $count);
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
    meta_corners: "meta-corners", 65;
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
    tuning: "tuning", 23;
    udp: "udp", 19;
}

/// memcached would write these keys unencoded, and so break the lines.
#[test]
fn keys_with_line_ends_are_encoded_in_dumps() {
    play_on_each(
        r"
>x 80 01 0004 08 00 0000 0000000d 00000001 0000000000000000 0000000000000000
> a\r\nbx
<x 81 01 0000 00 00 0000 00000000 00000001
< {b8:cas}
@new
> lru_crawler mgdump all\r\n
< OK\r\nmg YQ0KYg== b\r\nEN\r\n

> mg YQ0KYg== b v\r\n
< VA 1\r\nx\r\n

> stats cachedump 1 0\r\n
< ITEM a%0D%0Ab [1 b; 0 s]\r\nEND\r\n
",
        4,
    );
}

/// memcached would write this key unencoded after the `append`, and so break the line.
#[test]
fn keys_with_blanks_stay_encoded_when_items_are_replaced() {
    play_on_each(
        r"
> ms YSBi 1 b\r\n
> 1\r\n
< HD\r\n

> ms YSBi 1 b MA\r\n
> 2\r\n
< HD\r\n

> mg YSBi b k\r\n
< HD kYSBi b\r\n
",
        3,
    );
}

/// A failed login ends the login before it.
#[test]
fn a_mechanism_that_is_too_long_logs_out() {
    play_on_each(
        r"
@file pwdb ops:hunter2\n
@env MEMCACHED_SASL_PWDB={file:pwdb}
@args -S

>x 80 21 0005 00 00 0000 00000011 00000001 0000000000000000
> PLAIN\0ops\0hunter2
<x 81 21 0000 00 00 0000 0000000d 00000001 0000000000000000
< Authenticated

>x 80 21 0028 00 00 0000 00000028 00000002 0000000000000000
> {rep:m:40}
<x 81 21 0000 00 00 0004 00000011 00000002 0000000000000000
< Invalid arguments

>x 80 0a 0000 00 00 0000 00000000 00000003 0000000000000000
<x 81 0a 0000 00 00 0020 0000000d 00000003 0000000000000000
< Auth failure.
@closed
",
        4,
    );
}

/// The request has more misses than the server looks up at a time.
#[test]
fn many_misses_fit_into_a_datagram() {
    play_on_each(
        r"
@needs udp
@udp
>x 0007 0000 0001 0000
> get{rep: m:3000}\r\n
<x 0007 0000 0001 0000
< END\r\n
",
        1,
    );
}

/// Replays some of these conversations by TLS. The server's other settings are the same.
#[test]
fn encryption_changes_nothing() {
    let authority = &Authority::new();
    thread::scope(|scope| {
        for io in Io::available() {
            for (text, count) in [
                (include_str!("../transcripts/auth.txt"), 47),
                (include_str!("../transcripts/binary.txt"), 118),
                (include_str!("../transcripts/classic-storage.txt"), 111),
                (include_str!("../transcripts/malformed.txt"), 87),
                (include_str!("../transcripts/meta-get.txt"), 179),
                (include_str!("../transcripts/multiget.txt"), 15),
                (include_str!("../transcripts/sasl.txt"), 51),
            ] {
                scope.spawn(move || assert_eq!(play(text, io, Some(authority)), count, "{}", io.flag()));
            }
        }
    });
}
