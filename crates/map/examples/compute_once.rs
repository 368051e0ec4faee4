//! Computes expensive results once: `get_or_insert_with`, and `remove_if` for those that are
//! outdated.
//!
//! Values are `Arc`s here, so that callers can use them without a handle.
//!
//! `cargo run -p relativist --example compute_once`

use std::sync::Arc;
use std::thread;

use relativist::HashMap;

#[derive(Default)]
struct Factors {
    known: HashMap<u64, Arc<Vec<u64>>>,
}

impl Factors {
    fn of(&self, n: u64) -> Arc<Vec<u64>> {
        Arc::clone(self.known.pin().get_or_insert_with(n, || Arc::new(factorize(n))))
    }

    /// Removes the factors, unless there are many: those took long to compute.
    fn remove_if_cheap(&self, n: u64) -> bool {
        self.known.pin().remove_if(&n, |_, factors| factors.len() < 4).is_some()
    }
}

fn factorize(mut n: u64) -> Vec<u64> {
    let mut factors = Vec::new();
    let mut factor = 2;
    while n > 1 {
        while n % factor == 0 {
            factors.push(factor);
            n /= factor;
        }
        factor += 1;
    }
    factors
}

fn main() {
    let factors = Factors::default();
    // Both threads may compute the value, but the map keeps one result, and both get it.
    let [ours, theirs] = thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| factors.of(20_261_122)));
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(Arc::ptr_eq(&ours, &theirs));
    println!("20261122 = {ours:?}");

    assert_eq!(*factors.of(64), [2; 6]);
    assert_eq!(*factors.of(97), [97]);
    assert!(factors.remove_if_cheap(97));
    assert!(!factors.remove_if_cheap(64));
}
