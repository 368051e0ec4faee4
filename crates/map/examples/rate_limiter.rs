//! A rate limiter: each client has a bucket of tokens, which fills up again.
//!
//! `cargo run -p relativist --example rate_limiter`

use std::thread;
use std::time::{Duration, Instant};

use relativist::LockMap;

struct Bucket {
    tokens: f64,
    filled: Instant,
}

struct Limiter {
    buckets: LockMap<String, Bucket>,
    per_second: f64,
    most: f64,
}

impl Limiter {
    /// Takes a token, or returns the time until there is one.
    fn take(&self, client: &str, now: Instant) -> Result<(), Duration> {
        let full = || Bucket { tokens: self.most, filled: now };
        // Makes a `String` only for a new client.
        let mut bucket = self.buckets.entry_ref(client).or_insert_with(full);
        let earned = now.saturating_duration_since(bucket.filled).as_secs_f64() * self.per_second;
        bucket.tokens = (bucket.tokens + earned).min(self.most);
        bucket.filled = bucket.filled.max(now);
        if bucket.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.tokens) / self.per_second));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }

    /// Forgets the clients whose buckets are full again.
    fn sweep(&self, now: Instant) {
        let to_fill = Duration::from_secs_f64(self.most / self.per_second);
        self.buckets.retain(|_, bucket| now.saturating_duration_since(bucket.filled) < to_fill);
    }
}

fn main() {
    let limiter = Limiter { buckets: LockMap::new(), per_second: 1.0, most: 10.0 };
    let start = Instant::now();
    // Four threads ask at the same instant: together they get the tokens of one bucket.
    let allowed: usize = thread::scope(|scope| {
        let ask = || (0..100).filter(|_| limiter.take("ada", start).is_ok()).count();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{allowed} of 400 requests were allowed");
    assert_eq!(allowed, 10);
    assert!(limiter.take("ada", start + Duration::from_secs(1)).is_ok());
    assert!(limiter.take("ada", start + Duration::from_secs(1)).is_err());
    limiter.sweep(start + Duration::from_secs(60));
    assert!(limiter.buckets.is_empty());
}
