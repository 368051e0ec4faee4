//! Guards of private domains in tasks that move between threads (D1, D2): thousands of tasks hold a
//! guard across several awaits, while other tasks replace what they read.
#![cfg(not(relativist_loom))]

use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use std::task::{Context, Poll};
use std::thread;

use relativist_rcu::{Domain, DomainGuard};
use relativist_testing as _;

const TASKS: usize = 4000;
const THREADS: usize = 4;
/// What an object holds while readers may use it.
const SOUND: usize = 0x5eed;

/// A value that is replaced while tasks read it.
struct Shared {
    domain: Domain,
    current: AtomicPtr<AtomicUsize>,
    replaced: AtomicUsize,
    /// The number of sections that ended on another thread than the one on which they began.
    migrated: AtomicUsize,
}

/// Lets other tasks run. The task may continue on another thread.
#[derive(Default)]
struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Shared {
    fn new() -> Arc<Self> {
        let current = AtomicPtr::new(Self::object());
        Arc::new(Self { domain: Domain::new(), current, replaced: AtomicUsize::new(0), migrated: AtomicUsize::new(0) })
    }

    fn object() -> *mut AtomicUsize {
        Box::into_raw(Box::new(AtomicUsize::new(SOUND)))
    }

    /// Returns the current object. It lives as long as the guard.
    fn find<'g>(&self, _guard: &'g DomainGuard<'_>) -> &'g AtomicUsize {
        // SAFETY: replaced objects are freed after a grace period.
        unsafe { &*self.current.load(Acquire) }
    }

    fn replace(&self) {
        let free = |object: NonNull<()>| {
            // SAFETY: it came from a box, and no reader is left that has found it.
            let object = unsafe { Box::from_raw(object.cast::<AtomicUsize>().as_ptr()) };
            // A reader that is left after all would notice.
            object.store(0, Relaxed);
        };
        let old = NonNull::new(self.current.swap(Self::object(), AcqRel)).expect("never null");
        self.replaced.fetch_add(1, Relaxed);
        // SAFETY: no reader finds it any more, and only this function frees it.
        unsafe { self.domain.defer_raw(old.cast(), size_of::<AtomicUsize>(), free) };
    }

    /// Reads across awaits, and replaces now and then.
    async fn work(self: Arc<Self>, number: usize) {
        let guard = self.domain.read();
        let entered_on = thread::current().id();
        let found = self.find(&guard);
        for _ in 0..number % 5 + 1 {
            Yield::default().await;
            assert_eq!(found.load(Relaxed), SOUND, "freed while a task held a guard");
        }
        if number % 3 == 0 {
            self.replace();
        }
        Yield::default().await;
        assert_eq!(found.load(Relaxed), SOUND, "freed while a task held a guard");
        let migrated = thread::current().id() != entered_on;
        self.migrated.fetch_add(usize::from(migrated), Relaxed);
    }

    /// Called when all tasks have ended.
    fn check(&self) {
        assert!(self.domain.start_grace_period().has_passed(), "a section is still open");
        self.domain.barrier();
        assert_eq!(self.domain.pending(), 0);
        println!("{} of {TASKS} sections ended on another thread", self.migrated.load(Relaxed));
        // SAFETY: no reader is left.
        drop(unsafe { Box::from_raw(self.current.load(Relaxed)) });
    }
}

#[test]
fn tasks_of_tokio() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).build().unwrap();
    let shared = Shared::new();
    let tasks: Vec<_> = (0..TASKS).map(|number| runtime.spawn(Arc::clone(&shared).work(number))).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    shared.check();
}

#[test]
fn tasks_of_smol() {
    let executor = smol::Executor::new();
    let shared = Shared::new();
    let (stop, stopped) = smol::channel::unbounded::<()>();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| smol::block_on(executor.run(stopped.recv())));
        }
        let tasks: Vec<_> = (0..TASKS).map(|number| executor.spawn(Arc::clone(&shared).work(number))).collect();
        smol::block_on(async {
            for task in tasks {
                task.await;
            }
        });
        drop(stop);
    });
    shared.check();
}

/// D2: on an executor with one thread, a task that replaces does not wait for one that reads.
#[test]
fn a_single_thread_is_enough() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let shared = Shared::new();
    let reader = runtime.spawn({
        let shared = Arc::clone(&shared);
        async move {
            let guard = shared.domain.read();
            let found = shared.find(&guard);
            while shared.replaced.load(Relaxed) < 10_000 {
                Yield::default().await;
                assert_eq!(found.load(Relaxed), SOUND, "freed while a task held a guard");
            }
        }
    });
    let writer = runtime.spawn({
        let shared = Arc::clone(&shared);
        async move {
            for _ in 0..10 {
                (0..1000).for_each(|_| shared.replace());
                Yield::default().await;
            }
        }
    });
    runtime.block_on(async {
        reader.await.unwrap();
        writer.await.unwrap();
    });
    shared.check();
}
