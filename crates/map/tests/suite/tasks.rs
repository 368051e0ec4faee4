//! B12: handles in async tasks that move between threads: thousands of tasks hold a handle,
//! references and iterators across several awaits, while other tasks change the map.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::thread;

use relativist::PrivateMap;

use crate::reclaim;
use crate::tracked::{Tally, Tracked};

const TASKS: u64 = 4000;
const THREADS: usize = 4;
const KEYS: u64 = 64;

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

struct Shared {
    map: PrivateMap<u64, Tracked>,
    tally: &'static Tally,
    /// The number of tasks that ended on another thread than the one on which they began.
    migrated: AtomicUsize,
}

impl Shared {
    fn new(tally: &'static Tally) -> Arc<Self> {
        let map = (0..KEYS).map(|n| (n, Tracked::new(n, tally))).collect();
        Arc::new(Self { map, tally, migrated: AtomicUsize::new(0) })
    }

    /// Reads across awaits, and changes the map now and then, with the same handle.
    async fn work(self: Arc<Self>, number: u64) {
        let began_on = thread::current().id();
        let pinned = self.map.pin();
        let key = number % KEYS;
        let found = pinned.get(&key);
        let mut entries = pinned.iter();
        for _ in 0..number % 5 + 1 {
            Yield::default().await;
            found.inspect(|value| value.assert_of(key));
            entries.by_ref().take(20).for_each(|(key, value)| value.assert_of(*key));
        }
        match number % 3 {
            0 => _ = pinned.insert(key, Tracked::new(key, self.tally)).map(|old| old.assert_of(key)),
            1 => _ = pinned.remove(&(key + 1)).map(|old| old.assert_of(key + 1)),
            _ => {}
        }
        Yield::default().await;
        found.inspect(|value| value.assert_of(key));
        let migrated = thread::current().id() != began_on;
        self.migrated.fetch_add(usize::from(migrated), Relaxed);
    }

    /// Called when all tasks have ended.
    fn check(&self) {
        reclaim(&self.map);
        assert_eq!(self.tally.live(), self.map.len() as u64);
        println!("{} of {TASKS} tasks ended on another thread", self.migrated.load(Relaxed));
    }
}

#[test]
fn tasks_of_tokio() {
    static TALLY: Tally = Tally::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).build().unwrap();
    let shared = Shared::new(&TALLY);
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
    static TALLY: Tally = Tally::new();
    let executor = smol::Executor::new();
    let shared = Shared::new(&TALLY);
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

/// On an executor with one thread, a task that changes the map does not wait for one that reads.
#[test]
fn a_single_thread_is_enough() {
    static TALLY: Tally = Tally::new();
    const CHANGES: u64 = 100_000;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let shared = Shared::new(&TALLY);
    let (begun, changes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let reader = runtime.spawn({
        let (shared, begun, changes) = (Arc::clone(&shared), Arc::clone(&begun), Arc::clone(&changes));
        async move {
            let pinned = shared.map.pin();
            let found = pinned.get(&1).unwrap();
            begun.store(1, Relaxed);
            while changes.load(Relaxed) < CHANGES as usize {
                Yield::default().await;
                found.assert_of(1);
            }
        }
    });
    let writer = runtime.spawn({
        let shared = Arc::clone(&shared);
        async move {
            while begun.load(Relaxed) == 0 {
                Yield::default().await;
            }
            for n in 0..CHANGES {
                shared.map.pin().insert(n % 8, Tracked::new(n % 8, shared.tally));
                changes.fetch_add(1, Relaxed);
                if n % 10_000 == 0 {
                    Yield::default().await;
                }
            }
        }
    });
    runtime.block_on(async {
        reader.await.unwrap();
        writer.await.unwrap();
    });
    shared.check();
}
