//! Commands for the server as a whole, and unknown commands.

use relativist_memcache::{Admin, RequestError};

use crate::event::Event;
use crate::framing::{answered, decode, silent};

#[test]
fn flush_all_may_have_an_expiry() {
    let flush = |exptime, noreply| [Event::FlushAll { exptime, noreply }];
    assert_eq!(decode(b"flush_all\r\n"), flush(0, false));
    assert_eq!(decode(b"flush_all noreply\r\n"), flush(0, true));
    assert_eq!(decode(b"flush_all 10\r\n"), flush(10, false));
    assert_eq!(decode(b"flush_all -5 noreply\r\n"), flush(-5, true));
    assert_eq!(decode(b"flush_all 0 extra\r\n"), flush(0, false));
    assert_eq!(decode(b"flush_all -\r\n"), flush(0, false));
    for line in ["flush_all abc", "flush_all 1x", "flush_all noreply extra"] {
        assert_eq!(decode(format!("{line}\r\n").as_bytes()), [answered(RequestError::InvalidExptime)], "{line}");
    }
    assert_eq!(decode(b"flush_all x noreply\r\n"), [silent(RequestError::InvalidExptime)]);
}

#[test]
fn verbosity_takes_a_level() {
    assert_eq!(decode(b"verbosity 2 extra\r\n"), [Event::Verbosity { level: 2, noreply: false }]);
    assert_eq!(decode(b"verbosity 0 noreply\r\n"), [Event::Verbosity { level: 0, noreply: true }]);
    for line in ["verbosity", "verbosity abc", "verbosity -1"] {
        assert_eq!(decode(format!("{line}\r\n").as_bytes()), [answered(RequestError::BadFormat)], "{line}");
    }
}

#[test]
fn version_and_quit_ignore_surplus_words() {
    assert_eq!(decode(b"version noreply\r\n"), [Event::Version]);
    assert_eq!(decode(b"quit extra\r\n"), [Event::Quit]);
}

#[test]
fn stats_passes_its_words_on() {
    assert_eq!(decode(b"stats\r\n"), [Event::Stats { args: vec![] }]);
    let args = vec![b"detail".to_vec(), b"on".to_vec()];
    assert_eq!(decode(b"stats  detail on \r\n"), [Event::Stats { args }]);
}

#[test]
fn the_words_of_admin_commands_are_passed_on() {
    let admin =
        |verb, args: &[&str]| Event::Admin { verb, args: args.iter().map(|arg| arg.as_bytes().to_vec()).collect() };
    assert_eq!(decode(b"shutdown graceful\r\n"), [admin(Admin::Shutdown, &["graceful"])]);
    assert_eq!(decode(b"slabs automove  1 \r\n"), [admin(Admin::Slabs, &["automove", "1"])]);
    assert_eq!(
        decode(b"lru_crawler\r\nlru mode flat\r\n"),
        [admin(Admin::LruCrawler, &[]), admin(Admin::Lru, &["mode", "flat"])]
    );
    assert_eq!(decode(b"watch x\r\n"), [admin(Admin::Watch, &["x"])]);
}

#[test]
fn unknown_commands_are_silent_with_noreply() {
    for line in ["bogus", "bogus a b", "mx k v", "mgg k", "slab automove 1", "bogus NOREPLY"] {
        assert_eq!(decode(format!("{line}\r\n").as_bytes()), [answered(RequestError::UnknownCommand)], "{line}");
    }
    assert_eq!(decode(b"bogus noreply\r\n"), [silent(RequestError::UnknownCommand)]);
    assert_eq!(decode(b"bogus a b noreply\r\n"), [silent(RequestError::UnknownCommand)]);
}

#[test]
fn http_requests_and_handshakes_close_the_connection() {
    for line in ["GET / HTTP/1.1", "POST /x HTTP/1.0", "foo HTTP/", "HTTP/1.1", "\x16\x03\x01\x02", "\x16 a noreply"] {
        assert_eq!(
            decode(format!("version\r\n{line}\r\nset k 0 0 1\r\nx\r\n").as_bytes()),
            [Event::Version, Event::Close]
        );
    }
    assert_eq!(decode(b"foo http/1.1\r\n"), [answered(RequestError::UnknownCommand)]);
    assert!(matches!(&decode(b"get / HTTP/1.1\r\n")[..], [Event::Fetch { .. }]));
}
