//! Commands whose output is long or takes long. These are the dumps of all keys (`lru_crawler
//! metadump`, `lru_crawler mgdump` and `stats cachedump`), `stats sizes`, `stats table`, `stats
//! memory`, `stats conns` and `stats detail dump`. They go through the table, or a list, piece by
//! piece, no faster than the client reads the output.

use super::CLASS;
use super::outcome::Format;
use super::report::Report;
use super::{Dump, Executor, Outcome, Session};
use relativist_memcache::binary::{self, Header, Status};
use relativist_memcache::{encode_key, encode_percent, reply};
use relativist_store::work::{self, Work};
use relativist_store::{Hit, Marks};
use std::io::Write as _;
use std::sync::Arc;

/// The width of a step in the histogram of item sizes, in bytes.
const SIZE_STEP: usize = 32;

/// The items that a look at a survey in progress counts as.
const WAITED: usize = 20;

/// The number of prefixes or connections printed at a time.
const PRINTED_AT_ONCE: usize = 64;

impl Executor<'_> {
    /// Continues a dump until it is done, the output is full, or the turn has ended.
    pub fn dump(&self, mut dump: Box<Dump>, out: &mut Vec<u8>) -> Outcome<'static> {
        while let Some(cursor) = dump.cursor {
            dump.cursor = self.dump_some(&mut dump, cursor, out);
            if dump.cursor.is_some() && (out.len() >= self.output_limit || self.has_turn_ended()) {
                return Outcome::PausedDump(dump);
            }
        }
        match (&dump.request, &dump.format) {
            (Some(request), _) => binary::reply::success(out, request, 0),
            (None, Format::Commands) => out.extend_from_slice(b"EN\r\n"),
            (None, _) => out.extend_from_slice(reply::END),
        }
        Outcome::Done
    }

    /// Goes through some items, prefixes or connections, and returns the position of the next ones.
    fn dump_some(&self, dump: &mut Dump, cursor: u64, out: &mut Vec<u8>) -> Option<u64> {
        let cache = &self.tenant.cache;
        match &mut dump.format {
            Format::Connections => {
                work::charge(Work::Items(PRINTED_AT_ONCE));
                let (sessions, next) = self.shared.connections.some(cursor as usize, PRINTED_AT_ONCE);
                let is_own = |session: &&Arc<Session>| session.tenant_name() == self.tenant.name;
                let report = &mut Report::new(out, dump.request);
                sessions.iter().filter(is_own).for_each(|session| self.connection(session, report));
                next.map(|next| next as u64)
            }
            Format::Prefixes(last) => {
                work::charge(Work::Items(PRINTED_AT_ONCE));
                *last = self.prefixes(last.as_deref(), dump.request.as_ref(), out);
                last.as_ref().map(|_| cursor)
            }
            Format::Table(_) | Format::Memory(_) | Format::Sizes(_) => {
                let is_done = self.survey(&dump.format, &mut Report::new(out, dump.request));
                (!is_done).then_some(cursor)
            }
            format => {
                let next = cache.scan(cursor, |hit| self.dump_item(format, &hit, out));
                next.filter(|_| !matches!(dump.format, Format::Cache { left: 0 }))
            }
        }
    }

    /// Continues a survey for the rest of this turn, and reports its result. False if it has not
    /// ended.
    fn survey(&self, format: &Format, report: &mut Report<'_>) -> bool {
        let (cache, surveys, left) = (&self.tenant.cache, &self.tenant.surveys, self.work_left());
        // Also if another thread continues the survey, so that the clients that wait for it do
        // not take all turns.
        work::charge(Work::Items(WAITED));
        match *format {
            Format::Table(ticket) => {
                let stats = surveys.table.go_on_for(ticket, left, |stats, cursor| cache.sample_buckets(stats, cursor));
                stats.map(|stats| self.table(&stats, report)).is_some()
            }
            Format::Memory(ticket) => {
                let memory =
                    surveys.memory.go_on_for(ticket, left, |memory, cursor| cache.sample_memory(memory, cursor));
                memory.map(|memory| self.memory(&memory, report)).is_some()
            }
            Format::Sizes(ticket) => {
                let sizes = surveys.sizes.go_on_for(ticket, left, |sizes, cursor| {
                    cache.scan(cursor, |hit| *sizes.entry(hit.size.next_multiple_of(SIZE_STEP)).or_default() += 1)
                });
                sizes.map(|sizes| sizes.iter().for_each(|(size, count)| report.stat(size, count))).is_some()
            }
            _ => true,
        }
    }

    /// Prints some prefixes: as lines of text, or as the value of one statistic. In the binary
    /// protocol, many prefixes therefore take several statistics of the same name. memcached sends
    /// a single one.
    fn prefixes(&self, last: Option<&[u8]>, request: Option<&Header>, out: &mut Vec<u8>) -> Option<Box<[u8]>> {
        let mut lines = Vec::new();
        let next = self.tenant.prefixes.dump_after(last, PRINTED_AT_ONCE, &mut lines);
        match request {
            None => out.append(&mut lines),
            Some(request) => binary::reply::packet(out, request, Status::Success, 0, [b"", b"detailed", &lines]),
        }
        next
    }

    fn dump_item(&self, format: &mut Format, hit: &Hit<'_>, out: &mut Vec<u8>) {
        match format {
            Format::Meta => {
                work::charge(Work::Lines(1));
                let end = hit.ttl().map_or(-1, |ttl| i64::from(hit.now) + i64::from(ttl));
                let accessed = hit.now.saturating_sub(hit.idle);
                let fetched = if hit.marks.has(Marks::FETCHED) { "yes" } else { "no" };
                let (key, cas) = (encode_percent(hit.key), self.visible(hit.cas()));
                let (size, flags) = (hit.size, hit.flags);
                writeln!(
                    out,
                    "key={key} exp={end} la={accessed} cas={cas} fetch={fetched} cls={CLASS} size={size} flags={flags} "
                )
                .expect("writing to a Vec does not fail");
            }
            Format::Commands => {
                out.extend_from_slice(b"mg ");
                if hit.marks.has(Marks::ENCODED_KEY) || !is_text(hit.key) {
                    encode_key(out, hit.key);
                    out.extend_from_slice(b" b");
                } else {
                    out.extend_from_slice(hit.key);
                }
                out.extend_from_slice(b"\r\n");
            }
            Format::Cache { left: 0 } => (),
            Format::Cache { left } => {
                *left -= 1;
                let end = hit.ttl().map_or(0, |ttl| i64::from(hit.now) + i64::from(ttl));
                out.extend_from_slice(b"ITEM ");
                if is_text(hit.key) {
                    out.extend_from_slice(hit.key);
                } else {
                    write!(out, "{}", encode_percent(hit.key)).expect("writing to a Vec does not fail");
                }
                write!(out, " [{} b; {end} s]\r\n", hit.value.len()).expect("writing to a Vec does not fail");
            }
            // They show no single items.
            _ => (),
        }
    }
}

/// Whether a key can be printed in a line of text. A key that came by the binary protocol may
/// contain a line end.
fn is_text(key: &[u8]) -> bool {
    key.iter().all(|byte| *byte > b' ' && *byte != 0x7f)
}
