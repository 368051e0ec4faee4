//! The `stats` command.
//!
//! Names, order and types are memcached's; names whose subject this server does not have are left out. The group `table` is
//! our own: it looks at every bucket.

use super::Service;
use crate::engine::Engine;
use crate::options::PROTOCOL_VERSION;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use relativist_memcache::{Words, reply};

/// Answers `stats` with the arguments `args`.
pub(super) fn report<E: Engine>(service: &Service<E>, mut args: Words<'_>, out: &mut Vec<u8>) {
    match args.next() {
        None => general(service, out),
        Some(b"settings") => settings(service, out),
        Some(b"table") => table(service, out),
        Some(b"reset") => {
            service.counters.reset();
            return out.extend_from_slice(reply::RESET);
        }
        Some(_) => return out.extend_from_slice(reply::ERROR),
    }
    out.extend_from_slice(reply::END);
}

macro_rules! stats {
    ($out:ident, $($name:ident: $value:expr,)*) => {
        $(reply::stat($out, stringify!($name), $value);)*
    };
}

fn general<E: Engine>(service: &Service<E>, out: &mut Vec<u8>) {
    process(service, out);
    let totals = service.counters.totals();
    let usage = service.engine.usage();
    stats! { out,
        max_connections: service.gate.limit(),
        curr_connections: service.gate.inside(),
        total_connections: totals.total_connections,
        rejected_connections: totals.rejected_connections,
        cmd_get: totals.cmd_get,
        cmd_set: totals.cmd_set,
        cmd_flush: totals.cmd_flush,
        cmd_touch: totals.cmd_touch,
        get_hits: totals.get_hits,
        get_misses: totals.get_misses,
        get_expired: totals.get_expired,
        get_flushed: totals.get_flushed,
        delete_misses: totals.delete_misses,
        delete_hits: totals.delete_hits,
        incr_misses: totals.incr_misses,
        incr_hits: totals.incr_hits,
        decr_misses: totals.decr_misses,
        decr_hits: totals.decr_hits,
        cas_misses: totals.cas_misses,
        cas_hits: totals.cas_hits,
        cas_badval: totals.cas_badval,
        touch_hits: totals.touch_hits,
        touch_misses: totals.touch_misses,
        store_too_large: totals.store_too_large,
        store_no_memory: totals.store_no_memory,
        bytes_read: totals.bytes_read,
        bytes_written: totals.bytes_written,
        limit_maxbytes: usage.limit,
        accepting_conns: 1,
        threads: service.settings.threads,
        conn_yields: totals.conn_yields,
        hash_power_level: usage.buckets.ilog2(),
        hash_bytes: usage.table_bytes,
        hash_is_expanding: u8::from(usage.is_resizing),
        bytes: usage.item_bytes,
        curr_items: usage.items,
        total_items: totals.total_items,
        evictions: 0,
    }
}

fn process<E: Engine>(service: &Service<E>, out: &mut Vec<u8>) {
    let now = service.ticker.clock().now();
    stats! { out,
        pid: std::process::id(),
        uptime: now.saturating_sub(service.started),
        time: now,
        version: PROTOCOL_VERSION,
        pointer_size: usize::BITS,
    }
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        stats! { out,
            rusage_user: seconds(usage.user_time()),
            rusage_system: seconds(usage.system_time()),
        }
    }
}

fn seconds(time: TimeVal) -> String {
    format!("{}.{:06}", time.tv_sec(), time.tv_usec())
}

fn settings<E: Engine>(service: &Service<E>, out: &mut Vec<u8>) {
    let settings = &service.settings;
    stats! { out,
        maxbytes: service.engine.usage().limit,
        maxconns: service.gate.limit(),
        tcpport: settings.port,
        inter: &settings.addresses,
        verbosity: service.log.verbosity(),
        evictions: "off",
        domain_socket: settings.unix_socket.as_deref().unwrap_or("NULL"),
        num_threads: settings.threads,
        cas_enabled: "yes",
        binding_protocol: "ascii",
        item_size_max: settings.max_value,
        maxconns_fast: "yes",
        flush_enabled: "yes",
        hash_algorithm: "foldhash",
    }
}

fn table<E: Engine>(service: &Service<E>, out: &mut Vec<u8>) {
    let table = service.engine.table();
    stats! { out,
        buckets: table.buckets,
        entries: table.entries,
        load_factor: format_args!("{:.3}", table.entries as f64 / table.buckets as f64),
        longest_chain: table.longest_chain,
        grows: table.grows,
        shrinks: table.shrinks,
        grace_periods: table.grace_periods,
    }
    for (length, buckets) in table.chain_lengths.iter().enumerate() {
        reply::stat(out, format_args!("chains_of_{length}"), buckets);
    }
}
