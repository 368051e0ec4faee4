//! Loom runs these models in every order that the memory model and a bound on preemptions allow:
//! `RUSTFLAGS="--cfg relativist_loom" cargo test -p relativist-rcu --release --test
//! loom`. Each model has a bound of its own, which lets it end within seconds;
//! `LOOM_MAX_PREEMPTIONS` sets another for all of them.
//!
//! Loom has no `membarrier`, so they check the algorithm with fences
//! ([`relativist_rcu::Barrier::Fence`]). Objects are loom's cells: to reclaim one is to write to
//! it, and loom fails when a reader's access isn't ordered against that.
#![cfg(relativist_loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Release},
};
use loom::thread;
use std::ptr::NonNull;

use relativist_rcu::{
    Domain, GracePeriod, Published, barrier, defer, defer_raw, grace_periods, is_reading, read, wait_for_readers,
};

const LIVE: u32 = 1;
const RECLAIMED: u32 = 2;

/// What RCU protects.
struct Object(UnsafeCell<u32>);

// SAFETY: the models check that no thread accesses the cell while another one writes to it.
unsafe impl Sync for Object {}
// SAFETY: a number may be sent to any thread.
unsafe impl Send for Object {}

impl Object {
    fn new() -> Self {
        Self(UnsafeCell::new(LIVE))
    }

    fn check(&self) {
        // SAFETY: see `Sync`.
        assert_eq!(self.0.with(|state| unsafe { *state }), LIVE, "a reader found a reclaimed object");
    }

    fn is_reclaimed(&self) -> bool {
        // SAFETY: see `Sync`.
        self.0.with(|state| unsafe { *state }) == RECLAIMED
    }

    fn reclaim(&self) {
        // SAFETY: see `Sync`.
        let before = self.0.with_mut(|state| unsafe { state.replace(RECLAIMED) });
        assert_eq!(before, LIVE, "reclaimed twice");
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // Loom sees this as a write, which must come after all that readers did.
        self.0.with_mut(|_| ());
    }
}

/// Two objects. Readers can find the one that `current` names.
struct Pair {
    current: AtomicUsize,
    objects: [Object; 2],
}

impl Pair {
    fn new() -> Arc<Self> {
        Arc::new(Self { current: AtomicUsize::new(0), objects: [Object::new(), Object::new()] })
    }

    /// Performs a whole read section.
    fn look(&self) -> usize {
        let guard = read();
        let found = self.current.load(Acquire);
        self.objects[found].check();
        drop(guard);
        found
    }

    /// Unlinks the first object.
    fn unlink(&self) {
        self.current.store(1, Release);
    }
}

/// Explores `model` with up to this number of preemptions.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

fn spawn<T: Sync + Send + 'static>(shared: &Arc<T>, body: fn(&T)) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || body(&shared))
}

/// R1: a reader sees the old or the new object, neither reclaimed. The reader registers while the
/// writer waits (R7).
#[test]
fn publish_and_read() {
    explore(8, || {
        let pair = Pair::new();
        let reader = spawn(&pair, |pair| {
            pair.look();
        });
        pair.unlink();
        wait_for_readers();
        pair.objects[0].reclaim();
        reader.join().unwrap();
    });
}

/// R1: a grace period and a reader that leaves and enters again, also with nested sections.
#[test]
fn leave_and_enter_again() {
    explore(6, || {
        let pair = Pair::new();
        let reader = spawn(&pair, |pair| {
            let first = pair.look();
            let outer = read();
            let second = pair.look();
            assert!(is_reading());
            assert!(second >= first, "what was unlinked came back");
            pair.objects[second].check();
            drop(outer);
        });
        pair.unlink();
        wait_for_readers();
        pair.objects[0].reclaim();
        reader.join().unwrap();
    });
}

/// R1, R4: two writers unlink an object each; whichever drives, both grace periods hold, and two
/// are enough.
#[test]
fn waiters_share() {
    explore(2, || {
        let pairs = Arc::new([Pair::new(), Pair::new()]);
        fn retire(pair: &Pair) {
            pair.unlink();
            wait_for_readers();
            pair.objects[0].reclaim();
        }
        let writer = spawn(&pairs, |pairs| retire(&pairs[1]));
        let reader = spawn(&pairs, |pairs| {
            let guard = read();
            pairs[0].look();
            pairs[1].look();
            drop(guard);
        });
        retire(&pairs[0]);
        writer.join().unwrap();
        reader.join().unwrap();
        assert!(grace_periods() <= 2);
    });
}

/// R1: a thread polls for a grace period, instead of waiting, after another thread has unlinked the
/// object.
#[test]
fn poll_for_another() {
    explore(6, || {
        let pair = Pair::new();
        let reader = spawn(&pair, |pair| {
            pair.look();
        });
        pair.unlink();
        let grace = GracePeriod::start();
        let poller = {
            let pair = Arc::clone(&pair);
            thread::spawn(move || {
                if grace.has_passed() {
                    pair.objects[0].reclaim();
                }
            })
        };
        reader.join().unwrap();
        poller.join().unwrap();
    });
}

/// R7: a slot that another thread has used works like a new one.
#[test]
fn slot_changes_hands() {
    explore(8, || {
        let pair = Pair::new();
        let readers = [0, 1].map(|_| {
            spawn(&pair, |pair| {
                drop((read(), read()));
                pair.look();
            })
        });
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

/// R1: `Published`, the safe interface to all of this.
#[test]
fn published() {
    explore(6, || {
        let value = Arc::new(Published::new(Object::new()));
        let reader = spawn(&value, |value| value.read(&read()).check());
        value.publish(Object::new());
        barrier();
        reader.join().unwrap();
    });
}

/// Defers the reclamation of the first object, which was unlinked.
fn defer_reclaim(pair: &Arc<Pair>) {
    unsafe fn reclaim(pair: NonNull<()>) {
        // SAFETY: the model keeps the pair until no thread is left to run this.
        unsafe { pair.cast::<Pair>().as_ref() }.objects[0].reclaim();
    }
    let raw = NonNull::from(&**pair);
    // SAFETY: `reclaim` may be called once, by any thread.
    unsafe { defer_raw(raw.cast(), 0, reclaim) };
}

/// R1: what one thread defers, another runs, after a grace period that began after the object was
/// unlinked.
#[test]
fn defer_for_another_to_drain() {
    explore(2, || {
        let pair = Pair::new();
        let drainer = thread::spawn(barrier);
        let reader = spawn(&pair, |pair| {
            pair.look();
        });
        pair.unlink();
        defer_reclaim(&pair);
        drainer.join().unwrap();
        reader.join().unwrap();
    });
}

/// R1: the drainer waits for a grace period that begins after the object was unlinked, even if
/// others have passed since the drainer began.
#[test]
fn drain_under_the_eyes_of_a_reader() {
    explore(3, || {
        let pair = Pair::new();
        defer(|| ()); // else the barrier has nothing to do
        let drainer = thread::spawn(barrier);
        wait_for_readers();
        let guard = read();
        pair.unlink();
        defer_reclaim(&pair);
        assert!(is_reading()); // an access at which loom may run the drainer
        pair.objects[0].check();
        drop(guard);
        drainer.join().unwrap();
    });
}

/// R10: deferred functions run once, also across chunks of the queue, when both ends of it are
/// busy.
#[test]
fn push_against_drain() {
    explore(3, || {
        let pairs = [Pair::new(), Pair::new()];
        let drainer = thread::spawn(barrier);
        pairs.iter().for_each(defer_reclaim);
        barrier();
        assert!(pairs.iter().all(|pair| pair.objects[0].is_reclaimed()), "not run by the end of the barrier");
        drainer.join().unwrap();
    });
}

/// R10: `barrier` waits for a function that another thread is running, and sees what it did. The
/// caller may find the queue locked each time that it looks.
#[test]
fn barrier_waits_for_the_last_instruction() {
    explore(8, || {
        let object = Arc::new(Object::new());
        let reclaimed = Arc::clone(&object);
        defer(move || {
            thread::yield_now();
            reclaimed.reclaim();
        });
        let drainer = thread::spawn(barrier);
        barrier();
        assert!(object.is_reclaimed());
        drainer.join().unwrap();
    });
}

/// A private domain and what it protects.
struct Private {
    domain: Domain,
    pair: Arc<Pair>,
}

impl Private {
    fn new() -> Arc<Self> {
        Arc::new(Self { domain: Domain::new(), pair: Pair::new() })
    }

    /// Performs a whole section.
    fn look(&self) {
        let guard = self.domain.read();
        self.pair.objects[self.pair.current.load(Acquire)].check();
        drop(guard);
    }

    fn defer_reclaim(&self) {
        unsafe fn reclaim(pair: NonNull<()>) {
            // SAFETY: the model keeps the pair as long as the domain.
            unsafe { pair.cast::<Pair>().as_ref() }.objects[0].reclaim();
        }
        // SAFETY: `reclaim` may be called once, by any thread.
        unsafe { self.domain.defer_raw(NonNull::from(&*self.pair).cast(), 0, reclaim) };
    }
}

/// D1: a reader sees the old or the new object, neither reclaimed. The reader gets its stripe while
/// the writer waits, and enters a second section by the fast path.
#[test]
fn private_publish_and_read() {
    explore(4, || {
        let shared = Private::new();
        let reader = spawn(&shared, |shared| {
            shared.look();
            shared.look();
        });
        shared.pair.unlink();
        shared.domain.wait_for_readers();
        shared.pair.objects[0].reclaim();
        reader.join().unwrap();
    });
}

/// D1: two guards of a thread at a time, in two blocks of slots; the first is dropped first.
#[test]
fn private_two_guards() {
    explore(3, || {
        let shared = Private::new();
        let reader = spawn(&shared, |shared| {
            let first = shared.domain.read();
            let second = shared.domain.read();
            drop(first);
            shared.pair.objects[shared.pair.current.load(Acquire)].check();
            drop(second);
        });
        shared.pair.unlink();
        shared.domain.wait_for_readers();
        shared.pair.objects[0].reclaim();
        reader.join().unwrap();
    });
}

/// D1: another thread ends the section, while its slot's owner may take the slot again.
#[test]
fn private_guard_migrates() {
    explore(3, || {
        let shared = Private::new();
        let guard = shared.domain.read();
        let found = shared.pair.current.load(Acquire);
        // SAFETY: `shared` lives until the thread has been joined.
        let guard: relativist_rcu::DomainGuard<'static> = unsafe { std::mem::transmute(guard) };
        let dropper = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.pair.objects[found].check();
                drop(guard);
            })
        };
        let writer = spawn(&shared, |shared| {
            shared.pair.unlink();
            shared.domain.wait_for_readers();
            shared.pair.objects[0].reclaim();
        });
        shared.look();
        dropper.join().unwrap();
        writer.join().unwrap();
    });
}

/// D3: what one thread defers, another runs, after a grace period that began after the object was
/// unlinked.
#[test]
fn private_defer_for_another_to_drain() {
    explore(2, || {
        let shared = Private::new();
        let drainer = spawn(&shared, |shared| {
            shared.domain.reclaim();
        });
        let reader = spawn(&shared, |shared| shared.look());
        shared.pair.unlink();
        shared.defer_reclaim();
        shared.domain.reclaim();
        drainer.join().unwrap();
        reader.join().unwrap();
    });
}

/// D3: a barrier of a domain waits for a function that another thread is running, and sees what it
/// did.
#[test]
fn private_barrier_waits_for_the_last_instruction() {
    explore(4, || {
        let shared = Private::new();
        shared.defer_reclaim();
        let drainer = spawn(&shared, |shared| shared.domain.barrier());
        shared.domain.barrier();
        assert!(shared.pair.objects[0].is_reclaimed());
        drainer.join().unwrap();
    });
}

/// D5: the thread that drops the domain runs what others have deferred, after what they did.
#[test]
fn private_drop_runs_all() {
    explore(4, || {
        let shared = Private::new();
        let reader = spawn(&shared, |shared| {
            shared.look();
            shared.pair.unlink();
            shared.defer_reclaim();
        });
        shared.look();
        reader.join().unwrap();
        let Ok(Private { domain, pair }) = Arc::try_unwrap(shared).map_err(|_| ()) else { panic!("shared") };
        drop(domain);
        assert!(pair.objects[0].is_reclaimed());
    });
}
