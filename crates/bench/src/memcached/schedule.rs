//! When the requests of an open loop are due. Latencies count from then on.
//!
//! In a closed loop, a client waits for a slow reply before it sends another request. A stall of
//! the server is then counted once per client, although real clients would have sent many requests
//! during the stall (*coordinated omission*). In an open loop each request has a due time, fixed
//! before the first one is sent. Its latency counts from then on, even if it could be sent only
//! after the stall.

use std::time::{Duration, Instant};

/// The due times of one thread's requests, at equal distances. Client `n % clients` sends request
/// `n`.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    first: Instant,
    /// The seconds between two requests.
    period: f64,
}

impl Schedule {
    /// Makes the schedule of thread `thread`. All `threads` threads together send `rate` requests
    /// per second, in turns.
    pub fn new(start: Instant, rate: f64, thread: usize, threads: usize) -> Self {
        let first = start + Duration::from_secs_f64(thread as f64 / rate);
        Self { first, period: threads as f64 / rate }
    }

    /// Returns when request `number` is due.
    pub fn due_at(&self, number: u64) -> Instant {
        self.first + Duration::from_secs_f64(number as f64 * self.period)
    }

    /// Returns the number of requests that are due until `now`.
    pub fn due_until(&self, now: Instant) -> u64 {
        match now.checked_duration_since(self.first) {
            Some(since) => (since.as_secs_f64() / self.period) as u64 + 1,
            None => 0,
        }
    }
}

/// Returns how many of the first `due` requests belong to client `client`.
pub fn of_client(due: u64, client: usize, clients: usize) -> u64 {
    (due + (clients - 1 - client) as u64) / clients as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_at_equal_distances() {
        let start = Instant::now();
        let schedule = Schedule::new(start, 1000.0, 0, 1);
        assert_eq!(schedule.due_at(0), start);
        assert_eq!(schedule.due_at(2500), start + Duration::from_millis(2500));
        for (micros, due) in [(0, 1), (999, 1), (1001, 2), (2_499_500, 2500)] {
            assert_eq!(schedule.due_until(start + Duration::from_micros(micros)), due, "{micros} µs");
        }
        assert_eq!(schedule.due_until(start - Duration::from_micros(1)), 0);
    }

    #[test]
    fn threads_take_turns() {
        let start = Instant::now();
        let [one, other] = [0, 1].map(|thread| Schedule::new(start, 1000.0, thread, 2));
        assert_eq!(other.due_at(0), start + Duration::from_millis(1));
        assert_eq!(one.due_at(1), start + Duration::from_millis(2));
        let second = start + Duration::from_micros(1_000_500);
        assert_eq!(one.due_until(second) + other.due_until(second), 1001);
    }

    #[test]
    fn clients_share_the_requests() {
        for due in 0..20 {
            for clients in 1..5 {
                let shares: Vec<u64> = (0..clients).map(|client| of_client(due, client, clients)).collect();
                assert_eq!(shares.iter().sum::<u64>(), due);
                let counted =
                    |client| (0..due).filter(|number| number % clients as u64 == client as u64).count() as u64;
                assert!(shares.iter().enumerate().all(|(client, &share)| share == counted(client)));
            }
        }
    }
}
