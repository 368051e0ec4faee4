//! A session with an unmodified client library.

use crate::harness::Running;
use memcache::Client;

fn connect(server: &Running) -> Client {
    let url = format!("memcache://{}?timeout=30&tcp_nodelay=true&protocol=ascii", server.address);
    Client::connect(url).expect("the client connects")
}

#[test]
fn a_session() {
    let server = Running::start("-t 2");
    let client = connect(&server);
    assert_eq!(client.version().unwrap()[0].1, "1.6.45");

    client.set("fruit", "apple", 0).unwrap();
    assert_eq!(client.get::<String>("fruit").unwrap().as_deref(), Some("apple"));
    client.append("fruit", " pie").unwrap();
    client.prepend("fruit", "an ").unwrap();
    assert_eq!(client.get::<String>("fruit").unwrap().as_deref(), Some("an apple pie"));
    client.add("fruit", "pear", 0).unwrap(); // this client does not return whether the value was stored
    assert_eq!(client.get::<String>("fruit").unwrap().as_deref(), Some("an apple pie"));
    client.replace("fruit", "pear", 0).unwrap();
    assert_eq!(client.get::<String>("fruit").unwrap().as_deref(), Some("pear"));

    client.set("count", 40, 0).unwrap();
    assert_eq!(client.increment("count", 2).unwrap(), 42);
    assert_eq!(client.decrement("count", 50).unwrap(), 0);
    assert!(client.touch("count", 100).unwrap());
    assert!(!client.touch("nothing", 100).unwrap());

    let (_, _, cas) = client.gets::<(Vec<u8>, u32, Option<u64>)>(&["fruit"]).unwrap().remove("fruit").unwrap();
    let cas = cas.expect("gets returns the cas");
    assert!(client.cas("fruit", "plum", 0, cas).unwrap());
    assert!(!client.cas("fruit", "cherry", 0, cas).unwrap());

    assert!(client.delete("fruit").unwrap());
    assert!(!client.delete("fruit").unwrap());
    assert_eq!(client.get::<String>("fruit").unwrap(), None);
    client.flush().unwrap();
    assert_eq!(client.get::<String>("count").unwrap(), None);
}

#[test]
fn many_keys_and_large_values() {
    let server = Running::start("-t 2");
    let client = connect(&server);
    let names: Vec<String> = (0..500).map(|i| format!("key-{i}")).collect();
    for (index, name) in names.iter().enumerate() {
        client.set(name, index as u64, 0).unwrap();
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = client.gets::<u64>(&names).unwrap();
    assert_eq!(found.len(), 500);
    assert!(names.iter().enumerate().all(|(index, name)| found[*name] == index as u64));

    let large = "0123456789abcdef".repeat(65_000);
    client.set("large", large.as_str(), 0).unwrap();
    assert_eq!(client.get::<String>("large").unwrap().as_deref(), Some(large.as_str()));
    let error = client.set("too-large", "x".repeat(1 << 20), 0).unwrap_err();
    assert!(error.to_string().contains("object too large for cache"), "{error}");
    assert_eq!(client.get::<String>("large").unwrap().as_deref(), Some(large.as_str()));
}
