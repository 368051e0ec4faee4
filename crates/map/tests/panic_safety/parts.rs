//! Keys, values and hashers whose methods all call [`tick`], and the fuse that makes the n-th call
//! panic.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use rayon::{ThreadPool, ThreadPoolBuilder};
use relativist::{Equivalent, Relocatable};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::tracked::{Tally, Tracked};

/// The fuse and the counters of a test. Each test leaks one.
pub struct Bench {
    /// The number of calls left until one panics; 0 if none will.
    fuse: AtomicU64,
    pub tally: Tally,
}

thread_local!(static BENCH: Cell<Option<&'static Bench>> = const { Cell::new(None) });

/// The payload of the panics that the suite causes.
struct Fired;

impl Bench {
    /// Creates a bench for the calling thread.
    pub fn set_up() -> &'static Self {
        let bench = Box::leak(Box::new(Self { fuse: AtomicU64::new(0), tally: Tally::new() }));
        bench.enter();
        bench
    }

    pub fn current() -> &'static Self {
        BENCH.get().expect("the thread has entered a bench")
    }

    /// Lets the calling thread take part.
    pub fn enter(&'static self) {
        BENCH.set(Some(self));
    }

    /// Makes the `n`-th call within `act` panic. Returns whether there was such a call.
    pub fn fires(&self, n: u64, act: impl FnOnce()) -> bool {
        self.fuse.store(n, SeqCst);
        let result = catch_unwind(AssertUnwindSafe(act));
        let fired = self.fuse.swap(0, SeqCst) == 0;
        match result {
            // The panic may have been in a deferred function, where it goes no further.
            Ok(()) => {}
            Err(payload) if payload.is::<Fired>() => assert!(fired),
            Err(payload) => resume_unwind(payload),
        }
        fired
    }
}

/// Called by all user code that the map calls.
pub fn tick() {
    let Some(bench) = BENCH.get() else { return };
    let left = bench.fuse.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
    if left == Ok(1) {
        // Does not run the panic hook, which would print too much.
        resume_unwind(Box::new(Fired));
    }
}

/// Returns a closure's result, unless this call has to panic.
pub fn ticked<T>(result: T) -> T {
    tick();
    result
}

/// Runs `act` where rayon has threads that take part in the bench.
pub fn in_pool(act: impl FnOnce() + Send) {
    thread_local!(static POOL: LazyLock<ThreadPool> = LazyLock::new(|| {
        let bench = Bench::current();
        ThreadPoolBuilder::new().num_threads(2).start_handler(move |_| bench.enter()).build().unwrap()
    }));
    POOL.with(|pool| pool.install(act));
}

/// A key or a value.
pub struct Part {
    n: u64,
    tracked: Tracked,
}

impl Part {
    pub fn new(n: u64) -> Self {
        Self { n, tracked: Tracked::new(n, &Bench::current().tally) }
    }

    /// Returns the part's number. Panics if the part was dropped.
    pub fn n(&self) -> u64 {
        self.tracked.assert_of(self.n);
        self.n
    }
}

// SAFETY: numbers and a reference.
unsafe impl Relocatable for Part {}

impl From<&Name> for Part {
    fn from(name: &Name) -> Self {
        ticked(Self::new(name.0))
    }
}

impl Default for Part {
    fn default() -> Self {
        ticked(Self::new(1000))
    }
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        tick();
        self.n() == other.n()
    }
}

impl Eq for Part {}

impl Hash for Part {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Name(self.n()).hash(state);
    }
}

impl Clone for Part {
    fn clone(&self) -> Self {
        tick();
        Self::new(self.n())
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        tick();
        self.n().fmt(f)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // `tracked` is dropped whether this panics or not.
        tick();
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        tick();
        // As text, because JSON needs text for keys.
        serializer.collect_str(&self.n())
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let n = String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)?;
        tick();
        Ok(Self::new(n))
    }
}

/// What a key is looked up by.
pub struct Name(pub u64);

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        tick();
        state.write_u64(self.0);
    }
}

impl Equivalent<Part> for Name {
    fn equivalent(&self, key: &Part) -> bool {
        tick();
        self.0 == key.n()
    }
}

/// Keys below this are used.
pub const KEYS: u64 = 6;

/// Returns the hash of a key: all small keys but one have the same.
pub fn hash_of(n: u64) -> u64 {
    if n == 3 || n >= 5 { n << 8 } else { 7 }
}

/// Hashes by [`hash_of`].
pub struct Ticking(());

impl Default for Ticking {
    fn default() -> Self {
        tick();
        Self(())
    }
}

impl Clone for Ticking {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        tick();
    }
}

pub struct Hashed(u64);

impl BuildHasher for Ticking {
    type Hasher = Hashed;

    fn build_hasher(&self) -> Hashed {
        tick();
        Hashed(0)
    }
}

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0 << 8 | u64::from(byte));
    }

    fn write_u64(&mut self, n: u64) {
        tick();
        self.0 = n;
    }

    fn finish(&self) -> u64 {
        tick();
        hash_of(self.0)
    }
}

impl Drop for Hashed {
    fn drop(&mut self) {
        tick();
    }
}
