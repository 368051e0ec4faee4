//! Commands about the server as a whole.

use super::permission::NOT_WITH_TENANTS;
use super::replies::append_reply;
use super::tuning::{BAD_CLASS, CRAWLER_DISABLED, Classes};
use super::watch::Topic;
use super::{Dump, Executor, Outcome, Session, Transport};
use crate::observability::log;
use crate::options::MAX_MEBIBYTES;
use relativist_memcache::{Admin, Words, number, reply};
use relativist_store::work::{self, Work};

/// The smallest memory limit that a client may set, in MiB.
const MIN_MEMORY: u64 = 8;
const MAX_MEMORY: u64 = 1_000_000_000;

impl Executor<'_> {
    pub(super) fn admin(&self, session: &Session, verb: Admin, args: Words<'_>, out: &mut Vec<u8>) -> Outcome<'static> {
        let tuning = &self.shared.tuning;
        let is_dump = verb == Admin::LruCrawler && matches!(args.clone().next(), Some(b"metadump" | b"mgdump"));
        let is_own = is_dump
            || matches!(verb, Admin::Watch | Admin::Config)
            || (verb == Admin::DebugTime && self.tenant.name.is_empty());
        let noreply = is_silent(verb, &args);
        if !is_own && self.is_shared() {
            append_reply(out, noreply, NOT_WITH_TENANTS);
            return Outcome::Done;
        }
        let text = match verb {
            Admin::Shutdown => return self.shutdown(session, args, out),
            Admin::MemoryLimit => return self.memory_limit(args, noreply, out),
            Admin::Watch => return self.watch(session, args, noreply, out),
            Admin::LruCrawler => return self.lru_crawler(args, out),
            Admin::Slabs => tuning.slabs(args),
            Admin::Lru => tuning.lru(args),
            Admin::DebugTime if self.shared.options.debug_time => self.debug_time(args),
            Admin::RefreshCerts => return self.refresh_certificates(out),
            Admin::Config => return self.cluster(args, out),
            Admin::DebugTime => "ERROR\r\n",
        };
        append_reply(out, noreply, text.as_bytes());
        Outcome::Done
    }

    /// Answers `config get cluster`. The version of the list rises with each change, also across
    /// restarts: clients keep the list with the highest one.
    fn cluster(&self, mut args: Words<'_>, out: &mut Vec<u8>) -> Outcome<'static> {
        let live = self.shared.live.get();
        let words = (args.next(), args.next(), args.next());
        if live.cluster_node.is_empty() || words != (Some(b"get"), Some(b"cluster"), None) {
            out.extend_from_slice(reply::ERROR);
            return Outcome::Done;
        }
        let version = live.cluster_changed.max(self.shared.started);
        let list = format!("{version}\n{}\n", live.cluster_node.join(" "));
        out.extend_from_slice(format!("CONFIG cluster 0 {}\r\n{list}\r\nEND\r\n", list.len()).as_bytes());
        Outcome::Done
    }

    fn refresh_certificates(&self, out: &mut Vec<u8>) -> Outcome<'static> {
        work::charge(Work::Reload);
        match self.shared.tls.as_ref().map(|tls| tls.refresh(&self.shared.log)) {
            None => out.extend_from_slice(reply::ERROR),
            Some(Ok(())) => out.extend_from_slice(reply::OK),
            Some(Err(problem)) => out.extend_from_slice(format!("SERVER_ERROR {problem}\r\n").as_bytes()),
        }
        Outcome::Done
    }

    fn shutdown(&self, session: &Session, mut args: Words<'_>, out: &mut Vec<u8>) -> Outcome<'static> {
        if !self.shared.live.get().enable_shutdown {
            out.extend_from_slice(b"SERVER_ERROR: shutdown not enabled\r\n");
            return Outcome::Done;
        }
        match (args.next(), args.next()) {
            (None, None) => Outcome::Shutdown,
            (Some(b"graceful"), None) => {
                // A datagram cannot stop the server.
                if !matches!(session.transport, Transport::Udp(_)) {
                    log::notice(log::STOPPING);
                }
                Outcome::Shutdown
            }
            _ => {
                out.extend_from_slice(b"CLIENT_ERROR invalid shutdown mode\r\n");
                Outcome::Done
            }
        }
    }

    fn memory_limit(&self, mut args: Words<'_>, noreply: bool, out: &mut Vec<u8>) -> Outcome<'static> {
        let limit = args.next().and_then(number::unsigned_64);
        let too_much = format!("MEMLIMIT_ADJUST_FAILED cannot set maxbytes to more than {MAX_MEBIBYTES}m\r\n");
        let reply: &[u8] = match limit {
            None => reply::ERROR,
            Some(..MIN_MEMORY) => b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
            Some(mebibytes) if mebibytes > MAX_MEMORY => {
                b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"
            }
            Some(mebibytes) if mebibytes > MAX_MEBIBYTES.into() => too_much.as_bytes(),
            Some(mebibytes) => {
                self.tenant.cache.set_limit((mebibytes as usize) << 20);
                reply::OK
            }
        };
        append_reply(out, noreply, reply);
        Outcome::Done
    }

    /// Answers `watch`: the connection receives log lines from now on.
    fn watch(&self, session: &Session, args: Words<'_>, noreply: bool, out: &mut Vec<u8>) -> Outcome<'static> {
        let topics = args.clone().map(Topic::from_name).try_fold(0, |topics, topic| Some(topics | topic? as u8));
        let reply: &[u8] = if self.shared.live.get().disable_watch || matches!(session.transport, Transport::Udp(_)) {
            b"CLIENT_ERROR watch commands not allowed\r\n"
        } else if !out.is_empty() {
            b"ERROR cannot pipeline other commands before watch\r\n"
        } else {
            let default = if args.count() == 0 { Topic::Fetchers as u8 } else { 0 };
            match topics.map(|topics| self.tenant.watch.subscribe(topics | default)) {
                None => reply::ERROR,
                Some(None) => b"WATCHER_TOO_MANY log watcher limit reached\r\n",
                Some(Some(subscription)) => {
                    out.extend_from_slice(reply::OK);
                    return Outcome::Watching(subscription);
                }
            }
        };
        append_reply(out, noreply, reply);
        Outcome::Done
    }

    fn lru_crawler(&self, args: Words<'_>, out: &mut Vec<u8>) -> Outcome<'static> {
        let mut words = args.clone();
        match (words.next(), words.next(), words.next()) {
            (Some(b"metadump"), classes, None) => self.begin_dump("metadump", Dump::meta(), classes, out),
            (Some(b"mgdump"), classes, None) => self.begin_dump("mgdump", Dump::commands(), classes, out),
            _ => {
                out.extend_from_slice(self.shared.tuning.lru_crawler(args).as_bytes());
                Outcome::Done
            }
        }
    }

    fn begin_dump(&self, name: &str, dump: Dump, classes: Option<&[u8]>, out: &mut Vec<u8>) -> Outcome<'static> {
        let problem = match classes.map(Classes::parse) {
            _ if self.shared.live.get().disable_dumping && name == "metadump" => "ERROR metadump not allowed\r\n",
            _ if self.shared.live.get().disable_dumping => "ERROR key dump not allowed\r\n",
            None => "ERROR\r\n",
            _ if !self.shared.tuning.get().lru_crawler => CRAWLER_DISABLED,
            _ if !out.is_empty() => {
                out.extend_from_slice(format!("ERROR cannot pipeline other commands before {name}\r\n").as_bytes());
                return Outcome::Done;
            }
            Some(None) => BAD_CLASS,
            Some(Some(classes)) => {
                out.extend_from_slice(reply::OK);
                return self.dump(Box::new(if classes == Classes::Ours { dump } else { dump.emptied() }), out);
            }
        };
        out.extend_from_slice(problem.as_bytes());
        Outcome::Done
    }

    /// `debugtime p` freezes the clock, `debugtime r` lets it run again, `debugtime N` moves it by
    /// N seconds.
    fn debug_time(&self, mut args: Words<'_>) -> &'static str {
        let ticker = &self.shared.ticker;
        match args.next().map(str::from_utf8) {
            Some(Ok("p")) => ticker.freeze(),
            Some(Ok("r")) => ticker.resume(),
            Some(Ok(word)) => match word.parse() {
                Ok(seconds) => ticker.jump(seconds),
                Err(_) => return "ERROR\r\n",
            },
            _ => return "ERROR\r\n",
        }
        "OK\r\n"
    }
}

/// Whether a command ends in `noreply`, and is one of those that have no reply then.
fn is_silent(verb: Admin, args: &Words<'_>) -> bool {
    let can_be = match verb {
        Admin::MemoryLimit | Admin::Lru | Admin::Watch => true,
        Admin::Slabs => args.clone().next() == Some(b"automove"),
        _ => false,
    };
    can_be && args.clone().last() == Some(b"noreply")
}
