//! What the turn of a client may take of the time of others, counted in work, not in time.

use crate::admin::metrics;
use crate::harness::{Io, on_each_backend};

on_each_backend! {
    no_command_takes_much_longer_than_a_turn
}

/// In seconds: 200 us, and one step: a copy of the value, and the sweep of the blocks that make
/// room for it.
const LONGEST: f64 = 0.000_2 + 0.001;

fn no_command_takes_much_longer_than_a_turn(io: Io) {
    let server = io.start("-t 1 -m 64 --admin 0 -o track_sizes");
    let mut client = server.connect();
    let number = format!("5{}", " ".repeat(1_000_000));
    client.ask(format!("set number 0 0 {}\r\n{number}\r\n", number.len()), "STORED\r\n");
    let items = 5_000;
    let sets: String = (0..items).map(|item| format!("set key-{item} 0 0 1 noreply\r\nx\r\n")).collect();
    client.send(sets);
    let keys: String = (0..100).map(|item| format!(" missing-{item}")).collect();
    let long = [
        "incr number 1 noreply\r\n".repeat(200),
        "append number 0 0 1 noreply\r\nx\r\n".repeat(100),
        "md number I q\r\n".repeat(100),
        "touch number 0 noreply\r\n".repeat(100),
        format!("get{keys}\r\n").repeat(100),
        format!("gat 0{keys}\r\n").repeat(100),
        "stats table\r\n".repeat(3),
        "stats memory\r\n".repeat(3),
        "stats sizes\r\n".repeat(3),
        "stats conns\r\n".repeat(3),
        "lru_crawler metadump all\r\n".into(),
        "lru_crawler mgdump all\r\n".into(),
        "stats cachedump 1 0\r\n".into(),
    ];
    for requests in long {
        client.send(format!("{requests}mn\r\n"));
        client.read_until(b"MN\r\n");
        let longest = metrics(&server)["longest_turn_seconds"];
        assert!(longest <= LONGEST, "{requests:.30}: {longest}");
    }
}
