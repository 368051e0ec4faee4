//! The client's side: encodes requests.

use relativist_memcache::{Arithmetic, MetaVerb, StoreVerb};

use crate::event::Event;

/// Encodes the request that decodes to `event`, which must be a command.
pub fn encode(event: &Event) -> Vec<u8> {
    match event {
        Event::Fetch { exptime, keys, with_cas } => {
            let verb = if exptime.is_some() { "gat" } else { "get" };
            let s = if *with_cas { "s" } else { "" };
            let exptime = exptime.map_or(String::new(), |exptime| format!(" {exptime}"));
            let mut line = format!("{verb}{s}{exptime}").into_bytes();
            for key in keys {
                line.push(b' ');
                line.extend_from_slice(key);
            }
            line.extend_from_slice(b"\r\n");
            line
        }
        Event::Store { verb, key, flags, exptime, value, noreply } => {
            let (verb, cas) = match verb {
                StoreVerb::Set => ("set", String::new()),
                StoreVerb::Add => ("add", String::new()),
                StoreVerb::Replace => ("replace", String::new()),
                StoreVerb::Append => ("append", String::new()),
                StoreVerb::Prepend => ("prepend", String::new()),
                StoreVerb::Cas(cas) => ("cas", format!(" {cas}")),
            };
            let mut request = with_key(verb, key, &format!(" {flags} {exptime} {}{cas}", value.len()), *noreply);
            request.extend_from_slice(value);
            request.extend_from_slice(b"\r\n");
            request
        }
        Event::Arithmetic { key, op, delta, noreply } => {
            let verb = match op {
                Arithmetic::Incr => "incr",
                Arithmetic::Decr => "decr",
            };
            with_key(verb, key, &format!(" {delta}"), *noreply)
        }
        Event::Delete { key, noreply } => with_key("delete", key, "", *noreply),
        Event::Touch { key, exptime, noreply } => with_key("touch", key, &format!(" {exptime}"), *noreply),
        Event::FlushAll { exptime, noreply } => format!("flush_all {exptime}{}\r\n", suffix(*noreply)).into_bytes(),
        Event::Version => b"version\r\n".to_vec(),
        Event::Verbosity { level, noreply } => format!("verbosity {level}{}\r\n", suffix(*noreply)).into_bytes(),
        Event::Stats { args } => [b"stats ", args.join(&b' ').as_slice(), b"\r\n"].concat(),
        Event::Quit => b"quit\r\n".to_vec(),
        Event::Meta { verb, key, words, value, .. } => meta(*verb, key, words, value),
        Event::MetaNoop => b"mn\r\n".to_vec(),
        Event::MetaDebug { key } => with_key("me", key, "", false),
        Event::Admin { .. } | Event::TooLarge { .. } | Event::BadMeta(_) | Event::Reject(_) | Event::Close => {
            panic!("not a request: {event:?}")
        }
    }
}

fn meta(verb: MetaVerb, key: &[u8], words: &[Vec<u8>], value: &[u8]) -> Vec<u8> {
    let (verb, length) = match verb {
        MetaVerb::Get => ("mg", String::new()),
        MetaVerb::Set => ("ms", format!(" {}", value.len())),
        MetaVerb::Delete => ("md", String::new()),
        MetaVerb::Arithmetic => ("ma", String::new()),
    };
    let mut request = [verb.as_bytes(), b" ", key, length.as_bytes()].concat();
    for word in words {
        request.push(b' ');
        request.extend_from_slice(word);
    }
    request.extend_from_slice(b"\r\n");
    if verb == "ms" {
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
    }
    request
}

fn with_key(verb: &str, key: &[u8], arguments: &str, noreply: bool) -> Vec<u8> {
    [verb.as_bytes(), b" ", key, arguments.as_bytes(), suffix(noreply).as_bytes(), b"\r\n"].concat()
}

fn suffix(noreply: bool) -> &'static str {
    if noreply { " noreply" } else { "" }
}
