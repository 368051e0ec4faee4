//! The limit on the buffers of all connections together.
//!
//! One connection may need large buffers, because a large value arrives in pieces or a client reads
//! slowly. Each buffer is bounded, but thousands of slow clients would still hold gigabytes. So
//! workers count the buffers that connections hold between turns. When all of them together exceed
//! the limit, the connections with the largest buffers are closed.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The smallest change that a worker publishes: smaller ones are not worth a write to a cache line
/// that all workers share.
const MIN_PUBLISHED: usize = 64 << 10;

/// The bytes that all connections hold, and their limit.
#[derive(Debug)]
pub struct BufferLimit {
    inputs: AtomicUsize,
    outputs: AtomicUsize,
    /// Bytes of buffers that no connection uses. They do not count towards the limit.
    idle: AtomicUsize,
    limit: AtomicUsize,
    closed: AtomicU64,
}

/// Bytes of buffers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BufferBytes {
    /// Received bytes that were not executed yet.
    pub inputs: usize,
    /// Replies that were not sent yet.
    pub outputs: usize,
}

/// The bytes that the connections of one worker hold, and the part of them that was published.
#[derive(Debug, Default)]
pub struct WorkerUsage {
    held: BufferBytes,
    published: BufferBytes,
    published_idle: usize,
}

impl BufferBytes {
    /// The sum of both.
    pub fn sum(self) -> usize {
        self.inputs + self.outputs
    }
}

impl BufferLimit {
    /// A limit in bytes.
    pub fn new(limit: usize) -> BufferLimit {
        BufferLimit {
            inputs: AtomicUsize::new(0),
            outputs: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
            closed: AtomicU64::new(0),
        }
    }

    /// Changes the limit, in bytes.
    pub fn set_limit(&self, limit: usize) {
        // Relaxed: a number that guards no memory.
        self.limit.store(limit, Ordering::Relaxed);
    }

    fn limit(&self) -> usize {
        // Relaxed: as in `set_limit`.
        self.limit.load(Ordering::Relaxed)
    }

    /// What all connections hold, exact to 64 KiB per worker and kind.
    pub fn held(&self) -> BufferBytes {
        // Relaxed (both): numbers that guard no memory.
        BufferBytes { inputs: self.inputs.load(Ordering::Relaxed), outputs: self.outputs.load(Ordering::Relaxed) }
    }

    /// Bytes of buffers that no connection uses, exact to 64 KiB per worker.
    pub fn idle(&self) -> usize {
        // Relaxed: a number that guards no memory.
        self.idle.load(Ordering::Relaxed)
    }

    /// Whether the limit is exceeded.
    pub fn is_exceeded(&self) -> bool {
        self.held().sum() > self.limit()
    }

    /// Whether more than half of the limit is held. Then clients that do not take their replies are
    /// closed after a time.
    pub fn is_short(&self) -> bool {
        self.held().sum() > self.limit() / 2
    }

    /// If the limit is exceeded, returns the buffer size from which on a connection may be closed:
    /// the average over all `connections`. So a worker does not close small connections because
    /// those of other workers are large: the other workers close theirs within a second. Above
    /// twice the limit any connection may be closed.
    pub fn excess(&self, connections: usize) -> Option<usize> {
        let (sum, limit) = (self.held().sum(), self.limit());
        let min = if sum > 2 * limit { 1 } else { (sum / connections.max(1)).max(1) };
        (sum > limit).then_some(min)
    }

    /// Counts a connection that was closed because of its buffers.
    pub fn note_closed(&self) {
        // Relaxed: a statistic.
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of connections closed because of their buffers.
    pub fn closed(&self) -> u64 {
        // Relaxed: a statistic.
        self.closed.load(Ordering::Relaxed)
    }
}

impl WorkerUsage {
    /// Notes that a connection which held `before` now holds `now`.
    pub fn change(&mut self, before: &mut BufferBytes, now: BufferBytes) {
        if *before != now {
            self.held.inputs = self.held.inputs + now.inputs - before.inputs;
            self.held.outputs = self.held.outputs + now.outputs - before.outputs;
            *before = now;
        }
    }

    /// Publishes the change since the last time, unless it is small. True if it was published.
    pub fn publish(&mut self, buffers: &BufferLimit) -> bool {
        let WorkerUsage { held, published, .. } = self;
        let is_large = held.inputs.abs_diff(published.inputs) > MIN_PUBLISHED
            || held.outputs.abs_diff(published.outputs) > MIN_PUBLISHED;
        if is_large {
            // Relaxed (both): as in `held`. The differences may wrap around; their sum is right.
            buffers.inputs.fetch_add(held.inputs.wrapping_sub(published.inputs), Ordering::Relaxed);
            buffers.outputs.fetch_add(held.outputs.wrapping_sub(published.outputs), Ordering::Relaxed);
            *published = *held;
        }
        is_large
    }

    /// Publishes the bytes of buffers that the worker has and no connection uses, unless they have
    /// hardly changed.
    pub fn publish_idle(&mut self, idle: usize, buffers: &BufferLimit) {
        if idle.abs_diff(self.published_idle) > MIN_PUBLISHED {
            // Relaxed: as in `publish`.
            buffers.idle.fetch_add(idle.wrapping_sub(self.published_idle), Ordering::Relaxed);
            self.published_idle = idle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_add_up_to_the_limit() {
        let buffers = BufferLimit::new(1 << 20);
        let (mut one, mut other) = (WorkerUsage::default(), WorkerUsage::default());
        let (mut small, mut large) = (BufferBytes::default(), BufferBytes::default());
        one.change(&mut small, BufferBytes { inputs: MIN_PUBLISHED, outputs: 0 });
        assert!(!one.publish(&buffers), "a small change");
        assert_eq!(buffers.held(), BufferBytes::default());
        one.change(&mut small, BufferBytes { inputs: 400 << 10, outputs: 1 });
        assert!(one.publish(&buffers));
        other.change(&mut large, BufferBytes { inputs: 0, outputs: (700 << 10) - 1 });
        assert!(!buffers.is_exceeded());
        other.publish(&buffers);
        assert!(buffers.is_exceeded());
        assert_eq!(buffers.excess(11), Some((1100 << 10) / 11));
        other.change(&mut large, BufferBytes::default());
        other.publish(&buffers);
        assert_eq!((buffers.held(), buffers.excess(11)), (small, None));
    }

    #[test]
    fn idle_buffers_do_not_count_towards_the_limit() {
        let buffers = BufferLimit::new(1 << 20);
        let (mut one, mut other) = (WorkerUsage::default(), WorkerUsage::default());
        one.publish_idle(2 << 20, &buffers);
        other.publish_idle(3 << 20, &buffers);
        other.publish_idle((3 << 20) + 1, &buffers);
        assert_eq!((buffers.idle(), buffers.is_exceeded()), (5 << 20, false));
        one.publish_idle(0, &buffers);
        assert_eq!(buffers.idle(), 3 << 20);
    }
}
