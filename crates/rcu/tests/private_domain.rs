//! Private domains, without threads that race. (See also the torture tests and the models.)
#![cfg(not(relativist_loom))]

use std::collections::VecDeque;
use std::mem::forget;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;

use relativist_rcu::{Domain, MAX_DEFERRED, defer, read, without_reclaiming};
use relativist_testing as _;

mod support;

use support::must_end;

/// Returns a function that counts its calls.
fn counting(count: &Arc<AtomicUsize>) -> impl FnOnce() + Send + 'static {
    let count = Arc::clone(count);
    move || {
        count.fetch_add(1, Relaxed);
    }
}

/// D1: a section lasts as long as its guard, on whatever thread that is dropped.
#[test]
fn a_guard_travels() {
    let domain = Domain::new();
    let guard = domain.read();
    let grace = domain.start_grace_period();
    let guard = thread::scope(|scope| scope.spawn(move || guard).join().unwrap());
    assert!(!grace.has_passed(), "the section ended with the thread");
    thread::scope(|scope| scope.spawn(move || drop(guard)).join().unwrap());
    assert!(grace.has_passed());
}

/// D1: a section goes on when the thread that entered it is gone, and its stripe has a new owner.
#[test]
fn a_guard_outlives_its_thread() {
    let domain = Domain::new();
    for _ in 0..100 {
        let guard = thread::scope(|scope| scope.spawn(|| domain.read()).join().unwrap());
        let grace = domain.start_grace_period();
        thread::scope(|scope| scope.spawn(|| drop((domain.read(), domain.read()))).join().unwrap());
        assert!(!grace.has_passed(), "a later thread took the slot");
        drop(guard);
        assert!(grace.has_passed());
    }
}

/// D1: each of many guards at a time keeps its own section open.
#[test]
fn many_guards_at_a_time() {
    let domain = Domain::new();
    let mut guards: VecDeque<_> = (0..1000).map(|_| domain.read()).collect();
    while let Some(oldest) = guards.pop_front() {
        let grace = domain.start_grace_period();
        assert!(!grace.has_passed());
        drop(oldest);
        assert_eq!(grace.has_passed(), guards.is_empty());
        if guards.len() % 2 == 0 {
            guards.pop_back();
        }
    }
    assert!(domain.start_grace_period().has_passed());
}

/// D2: readers of a domain delay neither the process nor another domain, and are not delayed by
/// them.
#[test]
fn readers_delay_only_their_domain() {
    let (held, free) = (Domain::new(), Domain::new());
    let guard = held.read();
    let count = Arc::new(AtomicUsize::new(0));
    free.defer(counting(&count));
    must_end({
        let count = Arc::clone(&count);
        move || {
            free.wait_for_readers();
            free.barrier();
            defer(counting(&count));
            relativist_rcu::barrier();
        }
    });
    assert_eq!(count.load(Relaxed), 2);
    assert!(!held.start_grace_period().has_passed());
    drop(guard);
    let _guard_of_the_process = read();
    must_end(move || held.wait_for_readers());
}

/// D3: a function runs after the readers from before have left, and only then.
#[test]
fn runs_after_the_readers() {
    let domain = Domain::new();
    let count = Arc::new(AtomicUsize::new(0));
    let guard = domain.read();
    domain.defer(counting(&count));
    for _ in 0..10 {
        assert_eq!(domain.reclaim(), 1);
    }
    drop(guard);
    while domain.reclaim() > 0 {}
    assert_eq!(count.load(Relaxed), 1);
}

/// D3: without readers the backlog stays small, though nothing but deferring drives it.
#[test]
fn deferring_reclaims() {
    let domain = Domain::new();
    let count = Arc::new(AtomicUsize::new(0));
    for _ in 0..100_000 {
        let _guard = domain.read();
        domain.defer(counting(&count));
        assert!(domain.pending() <= 4 * 1024);
    }
}

/// D3: a backlog that a reader leaves behind is run in slices, so that no operation takes long.
/// Each batch that is deferred makes it smaller.
#[test]
fn a_backlog_is_run_in_slices() {
    const SLICE: usize = 4096;
    const BACKLOG: usize = 100 * 1024;
    let domain = Domain::new();
    let count = Arc::new(AtomicUsize::new(0));
    let guard = domain.read();
    (0..BACKLOG).for_each(|_| domain.defer(counting(&count)));
    drop(guard);
    for _ in 0..BACKLOG {
        let before = count.load(Relaxed);
        domain.defer(counting(&count));
        let run = count.load(Relaxed) - before;
        assert!(run <= SLICE, "{run} at once");
    }
    assert!(domain.pending() <= 4 * 1024, "{} are left", domain.pending());
}

/// D3: `reclaim`, which was asked to, runs a backlog at once.
#[test]
fn reclaiming_runs_the_whole_backlog() {
    let domain = Domain::new();
    let count = Arc::new(AtomicUsize::new(0));
    let guard = domain.read();
    (0..MAX_DEFERRED).for_each(|_| domain.defer(counting(&count)));
    drop(guard);
    let most = (0..3).map(|_| domain.reclaim()).min();
    assert_eq!((most, count.load(Relaxed)), (Some(0), MAX_DEFERRED));
}

/// D4: nothing waits for a reader that stays, however much is deferred.
#[test]
fn a_reader_that_stays_blocks_no_thread() {
    const DEFERRED: usize = MAX_DEFERRED + 10_000;
    let domain = Arc::new(Domain::new());
    let count = Arc::new(AtomicUsize::new(0));
    let guard = domain.read();
    must_end({
        let (domain, count) = (Arc::clone(&domain), Arc::clone(&count));
        move || (0..DEFERRED).for_each(|_| domain.defer(counting(&count)))
    });
    assert_eq!((domain.pending(), count.load(Relaxed)), (DEFERRED as u64, 0));
    drop(guard);
    domain.barrier();
    assert_eq!((domain.pending(), count.load(Relaxed)), (0, DEFERRED));
}

/// D3: what a thread has deferred before it exited runs when another thread defers or reclaims.
#[test]
fn an_exited_threads_functions_run() {
    let domain = Domain::new();
    let count = Arc::new(AtomicUsize::new(0));
    // Keeps this thread's index, so that the other thread has another one.
    let _registered = read();
    thread::scope(|scope| scope.spawn(|| domain.defer(counting(&count))).join().unwrap());
    for _ in 0..4 * 1024 {
        domain.defer(|| ());
    }
    assert_eq!(count.load(Relaxed), 1);
}

/// D5: dropping the domain runs everything, waits for no reader, and happens on the thread that
/// drops it. D6: not even a leaked guard keeps it from that.
#[test]
fn dropping_runs_everything() {
    let domain = Domain::new();
    let (ran, runs) = mpsc::channel();
    forget(domain.read());
    thread::scope(|scope| {
        let ran = ran.clone();
        scope.spawn(|| domain.defer(move || ran.send(thread::current().id()).unwrap()));
    });
    for _ in 0..2000 {
        let ran = ran.clone();
        domain.defer(move || ran.send(thread::current().id()).unwrap());
    }
    assert!(runs.try_recv().is_err(), "ran in spite of the leaked guard");
    let dropper = must_end(move || {
        drop(domain);
        thread::current().id()
    });
    let ids: Vec<_> = runs.try_iter().collect();
    assert_eq!(ids.len(), 2001);
    assert!(ids.iter().all(|&id| id == dropper));
}

/// D5: what it runs may defer in the domain of the process, behind a reader that stays.
#[test]
fn dropping_waits_for_no_reader_of_the_process() {
    let domain = Domain::new();
    forget(domain.read());
    for _ in 0..MAX_DEFERRED + 10_000 {
        domain.defer(|| defer(|| ()));
    }
    let reader = read();
    must_end(move || drop(domain));
    drop(reader);
}

/// D6: a leaked domain never runs what was deferred in it.
#[test]
fn a_leaked_domain_runs_nothing() {
    // Never dropped. (LeakSanitizer would report one that was passed to `forget`.)
    static LEAKED: OnceLock<Domain> = OnceLock::new();
    let domain = LEAKED.get_or_init(Domain::new);
    let count = Arc::new(AtomicUsize::new(0));
    domain.defer(counting(&count));
    relativist_rcu::barrier();
    assert_eq!(Arc::strong_count(&count), 2);
}

/// D7: a panic in a deferred function goes no further, not even while the domain is dropped.
#[test]
fn a_panic_goes_no_further() {
    let domain = Domain::new();
    let count = Arc::new(AtomicUsize::new(0));
    for _ in 0..2 {
        domain.defer(|| panic!("in a deferred function, as this test wants"));
        domain.defer(counting(&count));
    }
    domain.barrier();
    assert_eq!(count.load(Relaxed), 2);
    domain.defer(|| panic!("in a deferred function, as this test wants"));
    domain.defer(counting(&count));
    drop(domain);
    assert_eq!(count.load(Relaxed), 3);
}

/// D3: deferred functions may use the domain: defer, enter sections, and reclaim. (Waiting panics.)
#[test]
fn deferred_functions_use_the_domain() {
    let domain = Arc::new(Domain::new());
    let count = Arc::new(AtomicUsize::new(0));
    let (inner, again) = (Arc::clone(&domain), counting(&count));
    domain.defer(move || {
        let _guard = inner.read();
        inner.defer(again);
        inner.reclaim();
    });
    domain.barrier();
    domain.barrier();
    assert_eq!(count.load(Relaxed), 1);
    let inner = Arc::clone(&domain);
    let counted = counting(&count);
    domain.defer(move || {
        inner.barrier();
        counted();
    });
    domain.barrier();
    assert_eq!(count.load(Relaxed), 1, "a barrier inside a deferred function returned");
}

/// `without_reclaiming` holds for private domains, too.
#[test]
fn reclaims_nothing_under_a_lock() {
    let domain = Domain::new();
    let count = Arc::new(AtomicUsize::new(0));
    without_reclaiming(|| {
        for _ in 0..5000 {
            domain.defer(counting(&count));
        }
        assert_eq!(domain.reclaim(), 5000);
    });
    assert_eq!(count.load(Relaxed), 0);
    domain.barrier();
    assert_eq!(count.load(Relaxed), 5000);
}

/// D1: a domain that a thread uses for the first time in a destructor at its exit.
#[test]
fn works_at_thread_exit() {
    struct Uses(Arc<Domain>, Arc<AtomicUsize>);
    impl Drop for Uses {
        fn drop(&mut self) {
            let _guards = (self.0.read(), self.0.read());
            self.0.defer(counting(&self.1));
        }
    }
    thread_local! {
        static USES: std::cell::OnceCell<Uses> = const { std::cell::OnceCell::new() };
    }
    let domain = Arc::new(Domain::new());
    let count = Arc::new(AtomicUsize::new(0));
    for late in [false, true] {
        let (domain, count) = (Arc::clone(&domain), Arc::clone(&count));
        let thread = thread::spawn(move || {
            // A variable that is used first is destroyed last, after this crate's own.
            if !late {
                drop(domain.read());
            }
            USES.with(|uses| uses.set(Uses(Arc::clone(&domain), count)).ok().unwrap());
            drop(domain.read());
        });
        thread.join().unwrap();
    }
    assert!(domain.start_grace_period().has_passed());
    domain.barrier();
    assert_eq!(count.load(Relaxed), 2);
}

/// The sizes that the documentation states.
#[test]
fn sizes() {
    assert_eq!((size_of::<Domain>(), size_of::<relativist_rcu::DomainGuard<'_>>()), (384, 8));
}
