//! The executor of one thread. Its commands are in the other modules.

use super::shared::SharedState;
use super::tenant::Tenant;
use crate::observability::latency::Latencies;
use crate::observability::log::Level;
use crate::observability::stats::Counters;
use relativist_memcache::{Limits, PendingStore, decode_key};
use relativist_store::work::{self, Work};
use relativist_store::{Hit, ItemShape, LARGE_VALUE, ReservedValue, Room, Value, ValueRef};

/// Executes commands on one thread.
#[derive(Clone, Copy)]
pub struct Executor<'s> {
    pub(super) shared: &'s SharedState,
    pub(super) tenant: &'s Tenant,
    pub(super) counters: &'s Counters,
    pub(super) output_limit: usize,
    /// Whether large values may be pinned and sent without a copy.
    pub(super) pins_values: bool,
    /// The value of the next command, if it was received directly into memory of the cache.
    pub(super) reserved: Option<&'s ReservedValue>,
    /// Whether there are watchers or prefixes are counted.
    pub(super) is_observed: bool,
    /// Whether the tenant may use only keys with its prefix.
    pub(super) has_key_prefix: bool,
    /// Whether the log has requests and replies.
    pub(super) is_traced: bool,
    /// The histograms that record how long commands take, if this turn is sampled.
    pub(super) latencies: Option<&'s Latencies>,
    /// The work that the thread had done when the turn began.
    began: u64,
}

/// Room for a larger value is made in several turns.
pub const MAX_ROOM_AT_ONCE: usize = 1 << 20;

/// What became of a reservation.
#[derive(Debug)]
pub enum Reservation {
    /// The value is received here.
    Made(Box<ReservedValue>),
    /// Some room was made; reserve again in the next turn.
    Begun(Room),
}

/// The [work] after which a turn ends: about 200 us. One step of a command may exceed it: a copy of
/// one value, or a sweep of the blocks that make room for it.
pub const TURN: u64 = 200_000;

impl<'s> Executor<'s> {
    /// An executor for users without a tenant, and for clients that have not logged in. It
    /// increments `counters`, and pauses when the output has reached `output_limit` bytes.
    pub fn new(shared: &'s SharedState, counters: &'s Counters, output_limit: usize) -> Executor<'s> {
        let tenant = &shared.common;
        let latencies = counters.latencies.as_deref().filter(|latencies| latencies.samples_turn());
        let is_traced = shared.log.wants(Level::Connection);
        Executor {
            shared,
            tenant,
            counters,
            output_limit,
            pins_values: true,
            reserved: None,
            is_observed: tenant.is_observed(),
            has_key_prefix: false,
            is_traced,
            latencies,
            began: work::done(),
        }
    }

    /// The same executor for users of `tenant`, on the thread with this number.
    #[must_use]
    pub fn of_tenant(self, tenant: &'s Tenant, thread: usize) -> Self {
        let counters = tenant.counters.thread(thread);
        let has_key_prefix = !tenant.key_prefix.is_empty();
        Executor { tenant, counters, is_observed: tenant.is_observed(), has_key_prefix, ..self }
    }

    /// Whether the turn has had its share of [work]. Commands pause then, and go on in the next
    /// turn. Each turn executes one step at least.
    pub fn has_turn_ended(&self) -> bool {
        self.work_left() == 0
    }

    /// Charges this turn for requests, and for the bytes of requests and replies.
    #[inline]
    pub fn charge(&self, requests: u32, bytes: usize) {
        work::charge(Work::Requests(requests));
        work::charge(Work::Bytes(bytes));
    }

    /// The work that this turn has done.
    pub fn work_done(&self) -> u64 {
        work::done().wrapping_sub(self.began)
    }

    /// The work that is left for this turn.
    pub(super) fn work_left(&self) -> u64 {
        TURN.saturating_sub(self.work_done())
    }

    /// An executor for replies in one piece: it copies values, however large.
    #[must_use]
    pub fn copying(self) -> Self {
        Executor { pins_values: false, ..self }
    }

    /// Reserves memory for the value of a store that has arrived in part, or makes `room` for it as
    /// long as the turn lasts. None if few bytes are missing, or if there is no memory.
    pub fn reserve(&self, store: &PendingStore<'_>, missing: usize, mut room: Room) -> Option<Reservation> {
        let mut decoded = [0; _];
        let key = if store.is_base64 { decode_key(store.key, &mut decoded)? } else { store.key };
        let (has_flags, has_cas) = (store.flags != 0, store.has_cas);
        let shape = ItemShape { key_len: key.len(), value_len: store.length, has_flags, has_cas };
        // A small remainder is collected in the input buffer.
        if missing < LARGE_VALUE {
            return None;
        }
        if store.length > MAX_ROOM_AT_ONCE && !self.tenant.cache.make_room(&shape, self.work_left(), &mut room) {
            return Some(Reservation::Begun(room));
        }
        drop(room);
        self.tenant.cache.reserve(&shape).map(Box::new).map(Reservation::Made)
    }

    /// The executor for the one command whose value is in `reserved`.
    #[must_use]
    pub fn storing<'a>(&self, reserved: &'a ReservedValue) -> Executor<'a>
    where
        's: 'a,
    {
        Executor { reserved: Some(reserved), ..*self }
    }

    /// The value of a store.
    pub(super) fn value<'v>(&self, bytes: &'v [u8]) -> Value<'v>
    where
        's: 'v,
    {
        self.reserved.map_or(Value::Whole(bytes), Value::Reserved)
    }

    /// Limits on what a client can make a connection buffer.
    pub fn limits(&self) -> Limits {
        self.shared.limits()
    }

    /// The current second of the cache's clock.
    pub fn now(&self) -> u32 {
        self.shared.ticker.clock().now()
    }

    /// The number of consecutive requests of one connection after which other connections are
    /// served (`-R`).
    pub fn requests_until_yield(&self) -> u32 {
        self.shared.options.max_reqs_per_event
    }

    /// Counts that a connection has more requests after `-R` of them in a row.
    pub fn count_yield(&self) {
        self.counters.conn_yields.bump();
    }

    /// Pins the value of `hit`, if it is large enough to be sent without a copy.
    #[inline(always)]
    pub(super) fn pin_large(&self, hit: &Hit<'_>) -> Option<ValueRef> {
        if hit.value.len() >= LARGE_VALUE && self.pins_values { hit.pin() } else { None }
    }

    /// Whether a key and a value make an item that is too large.
    pub(super) fn is_too_large(&self, key: &[u8], value: usize) -> bool {
        key.len() + value > self.tenant.cache.max_item()
    }

    /// The CAS value that clients see: 0 with `-C`.
    pub(super) fn visible(&self, cas: u64) -> u64 {
        if self.shared.options.disable_cas { 0 } else { cas }
    }
}
