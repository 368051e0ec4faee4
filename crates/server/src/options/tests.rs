//! Command lines: their meaning, and which of them are refused.

use super::*;

fn parse(line: &str) -> Result<Options, clap::Error> {
    Options::parse_from_args(line.split_whitespace())
}

#[test]
fn defaults_are_memcacheds() {
    let options = parse("relativistd").unwrap();
    assert_eq!((options.tcp_port(), options.threads, options.conn_limit), (Some(11211), 4, 1024));
    assert_eq!(options.udp_port(), None);
    assert_eq!((options.max_item_size, options.unix_mask), (1 << 20, 0o700));
    options.check().unwrap();
    assert_eq!(options.memory_bytes(), 64 << 20);
    assert_eq!(options.addresses(), ["127.0.0.1".parse().unwrap()]);
}

#[test]
fn short_and_long_names_agree() {
    let short = parse("r -p 1 -l a,b -l c -t 2 -m 3 -c 4 -vv -s /s -u me").unwrap();
    let long = parse(
        "r --port 1 --listen a,b --listen c --threads 2 --memory-limit 3 --conn-limit 4 --verbose --verbose \
         --unix-socket /s --user me",
    )
    .unwrap();
    assert_eq!(short, long);
    assert_eq!(short.addresses(), ["a", "b", "c"].map(|address| address.parse().unwrap()));
    assert_eq!(short.verbose, 2);
}

#[test]
fn minus_one_is_a_port() {
    assert_eq!(parse("r -p -1").unwrap().tcp_port(), Some(0));
    assert_eq!(parse("r -p 0").unwrap().tcp_port(), None);
    assert_eq!(parse("r -U 7").unwrap().tcp_port(), Some(7), "the port of UDP alone is that of TCP");
}

#[test]
fn bad_values_and_unknown_options_fail_with_status_one() {
    for line in [
        "r -p x",
        "r -p 65536",
        "r -a 9",
        "r -D ab",
        "r -B text",
        "r -I 1g",
        "r -o nonsense",
        "r -o idle_timeout",
        "r -o hashpower=11",
        "r -o tail_repair_time=5",
        "r -o hot_max_factor=0",
        "r -o warm_max_factor=-1",
        "r -o slab_automove_ratio=0",
        "r -o slab_automove_ratio=1.01",
        "r -o slab_automove_ratio=NaN",
        "r -o slab_sizes=abc",
        "r -o slab_chunk_max=0",
        "r -o slab_chunk_max=1025",
        "r -o =1",
        "r -o ssl_chain_cert",
        "r -o ssl_keyformat=0",
        "r -o ssl_verify_mode=4",
        "r -o ssl_min_version=4",
        "r -o ssl_wbuf_size=0",
        "r -p -2",
        "r -t 0",
        "r -m 0",
        "r -c 0",
        "r -l a:b",
        "r --admin localhost:1",
        "r --nonsense",
        "r -Q",
        "r stray",
    ] {
        let error = parse(line).expect_err(line);
        assert_eq!(exit_status(&error), 1, "{line}");
    }
}

#[test]
fn help_and_version_are_no_failure() {
    for line in ["r -h", "r --help", "r -V", "r --version"] {
        assert_eq!(exit_status(&parse(line).expect_err(line)), 0, "{line}");
    }
}

#[test]
fn contradictory_options_are_refused() {
    for line in [
        "r -I 1023",
        "r -I 33m",
        "r -m 4096 -I 1025m",
        "r -f 1",
        "r -Z",
        "r -Z -o ssl_chain_cert=/c",
        "r -Z -o ssl_key=/k",
        "r -Z -o ssl_chain_cert=/c,ssl_key=/k,ssl_verify_mode=1",
        "r -l notls:a",
        "r -l btls:a",
        "r -o slab_chunk_max=7",
        "r -I 700k -o slab_chunk_max=512",
        "r -o slab_sizes=10-100",
        "r -o slab_sizes=100-108",
        "r -o slab_sizes=200-100",
        "r -o slab_sizes=100-2000000",
        "r -o hot_lru_pct=50,warm_lru_pct=50",
        "r -o temporary_ttl=61,no_lru_maintainer",
        "r -Y /file -S",
        "r -Y /file -U 1",
        "r -Y /file -B binary",
        "r -Y /file -B auto",
        "r -Y /file -l a,proto[binary]:b",
        "r -Y /file -l proto[negotiating]:b",
        "r -S -B ascii",
        "r -S -B auto",
        "r -S -l a,proto[ascii]:b",
    ] {
        let error = parse(line).expect(line).check().expect_err(line);
        assert_eq!(error.exit_status(), 64, "{line}");
    }
}

#[test]
fn command_lines_of_memcached_are_accepted() {
    for line in [
        "r -I 700k",
        "r -I 2m -o slab_chunk_max=16",
        "r -o slab_chunk_max=1024",
        "r -I 1k -o slab_chunk_max=1",
        "r -o slab_sizes=100-109-300",
        "r -o slab_automove_ratio=1",
        "r -o resp_obj_mem_limit",
        "r -o read_buf_mem_limit=100000",
        "r -b 0",
        "r -Y /file -B ascii -l a,proto[ascii]:b",
        "r -S -B binary -l a,proto[binary]:b",
        "r -o hot_lru_pct=40,warm_lru_pct=40,hot_max_factor=0.1",
        "r -o temporary_ttl=61",
        "r -o read_buf_mem_limit=0",
        "r -o maxconns_fast,",
        "r -Z -o ssl_chain_cert=/c,ssl_key=/k -l a,mtls:b",
        "r -p 0",
    ] {
        parse(line).expect(line).check().expect(line);
    }
}

#[test]
fn blanks_before_values_are_skipped() {
    let plain = ["r", "-l", "a,b", "-t", "2", "-m", "3", "-I", "2m", "-B", "ascii", "-o", "idle_timeout=5"];
    let plain = Options::parse_from_args(plain).unwrap();
    for blanks in [
        ["r", "-l", "  a, b", "-t", " 2", "-m", "\t3", "-I", " 2m", "-B", " ascii", "-o", " idle_timeout= 5"]
            .as_slice(),
        &["r", "-l a,b", "-t 2", "-m 3", "-I 2m", "-B ascii", "-o idle_timeout=5"],
        &["r", "--listen= a,b", "--threads", " 2", "-m3", "--max-item-size= 2m", "-Bascii", "-oidle_timeout= 5"],
    ] {
        let mut options = Options::parse_from_args(blanks.iter().copied()).unwrap();
        options.extended_words.clone_from(&plain.extended_words);
        assert_eq!(options, plain);
    }
    assert_eq!(Options::parse_from_args(["r", "-D", " "]).unwrap().delimiter, Some(b' '));
}

#[test]
fn no_modern_restores_the_defaults_before_memcached_1_5() {
    let old = "r -o no_maxconns_fast,no_slab_reassign,no_slab_automove,slab_chunk_max=1024,no_lru_crawler,\
               hash_algorithm=jenkins,no_lru_maintainer";
    let extended = |line| parse(line).unwrap().extended;
    assert_eq!(extended("r -o no_modern"), extended(old));
    assert_eq!(extended("r -o no_modern,modern"), extended(old));
    let later = extended("r -o no_modern,maxconns_fast,lru_crawler");
    assert!(later.maxconns_fast && later.lru_crawler);
}

#[test]
fn the_last_of_repeated_options_counts() {
    let repeated = parse("r -t 4 -A -d -t 1 -m 3 -A -d --threads 2 -s /a -s /b --io epoll --io auto");
    assert_eq!(repeated.unwrap(), parse("r -t 2 -m 3 -A -d -s /b").unwrap());
    let adding_up = parse("r -l a -l b -v -v -o track_sizes -o idle_timeout=5").unwrap();
    assert_eq!((adding_up.listen.len(), adding_up.verbose, adding_up.extended.idle_timeout), (2, 2, 5));
    assert!(adding_up.extended.track_sizes);
}

#[test]
fn buffers_have_room_for_the_largest_items() {
    let megabytes = |line| parse(line).unwrap().buffer_bytes() / MEBIBYTE;
    assert_eq!(megabytes("r -m 1024"), 256);
    assert_eq!(megabytes("r -m 1024 -o read_buf_mem_limit=0"), 256);
    assert_eq!(megabytes("r -m 1024 -I 512m"), 2048);
    assert_eq!(megabytes("r -o read_buf_mem_limit=8"), 8);
    assert_eq!(megabytes("r -o read_buf_mem_limit=8 -I 4m"), 16);
}

#[test]
fn extended_options_add_up() {
    let options = parse("r -o no_maxconns_fast,idle_timeout=5 -o track_sizes,relaxed_privileges").unwrap();
    assert!(!options.extended.maxconns_fast && options.extended.track_sizes);
    assert_eq!(options.extended.idle_timeout, 5);
}

#[test]
fn listeners_ask_for_certificates_as_their_prefix_or_the_mode_says() {
    let mode = |mode| {
        let line = format!("r -Z -o ssl_chain_cert=/c,ssl_key=/k,ssl_ca_cert=/a,ssl_verify_mode={mode} -l notls:a");
        let options = parse(&line).unwrap();
        options.check().unwrap();
        options.security()
    };
    let wanted = [ClientCertificate::Unasked, ClientCertificate::Welcome, ClientCertificate::Required];
    assert_eq!([0, 1, 2].map(mode), wanted.map(Security::Tls));
    assert_eq!(mode(3), Security::Tls(ClientCertificate::Required));
    assert_eq!(parse("r").unwrap().security(), Security::Plain);
}
