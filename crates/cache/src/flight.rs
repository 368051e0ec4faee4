//! Loads that are in progress, at most one per key. The first thread or task that misses a key
//! *leads* a flight; others that miss it meanwhile *join*, and wait for its outcome.
//!
//! A flight is in the list of its shard until its leader has inserted the value, or something has
//! *cancelled* it. Insertions and removals of the key do so under the lock of the shard, in the
//! same step in which they change the entry. The leader inserts the value, and takes the flight out
//! of the list, in one step too, if the flight is still there. So a value that was loaded before an
//! insertion or a removal never replaces what came later, and never comes back after a removal. The
//! caller of its loader still gets it.
//!
//! A flight *lands* with the value, with an error, or with nothing: if the loader panicked, its
//! future was dropped, or the flight was cancelled. Then all that have joined wake up. If there is
//! neither a value nor an error, they look their key up again, and one of them leads the next
//! flight.
//!
//! The leader looks its key up once more after its flight is in the list, because another flight
//! may have landed between its miss and its lead. If it finds the key, the flight lands with
//! nothing.
//!
//! # Leaders that are not polled
//!
//! The future of a leader may be kept without being polled, as in `select!`, or be leaked. Those
//! that wait must not wait for ever. When the loader could go on, it wakes its task. The flight
//! passes this on, and notes the time. If the leader is not polled within [`PATIENCE`], one of
//! those that wait cancels the flight, and leads the next one, for which they have twice as much
//! patience: perhaps the executor is slow.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread, ThreadId};
use std::time::{Duration, Instant};

use relativist_bucket::Hash;
use relativist_core::sync::{Mutex, MutexGuard};
use relativist_core::unwind::contain;

use super::background;

/// How long those that wait leave a loader alone that could go on, but is not polled.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// An error that those share that wait for a load.
pub(super) type SharedError = Arc<dyn Any + Send + Sync>;

#[derive(Clone)]
pub(super) enum Outcome<V> {
    Value(V),
    Failed(SharedError),
    /// The key must be looked up again.
    Nothing,
}

pub(super) struct Flight<K, V> {
    pub(super) hash: Hash,
    pub(super) key: K,
    /// Set when the flight lands.
    outcome: OnceLock<Outcome<V>>,
    tasks: Mutex<Tasks>,
    /// The thread that called the loader, if that is a function and not a future.
    thread: Option<ThreadId>,
    pub(super) patience: Duration,
}

#[derive(Default)]
struct Tasks {
    /// The wakers of those that wait, by their numbers. A waiter that gives up takes its own out.
    waiting: BTreeMap<u64, Waker>,
    next: u64,
    leader: Option<Waker>,
    /// When the loader could go on. `None` while it is polled, or waits for something.
    ready_since: Option<Instant>,
    is_polled: bool,
    /// Whether the loader could go on, since it is polled.
    is_ready: bool,
    /// Whether a [`Check`] will come.
    is_checked: bool,
}

impl Tasks {
    /// Returns when to check whether the loader is polled, if tasks wait for it and no check is to
    /// come. The caller schedules it.
    fn next_check(&mut self, patience: Duration) -> Option<Instant> {
        let since = self.ready_since.filter(|_| !self.waiting.is_empty() && !self.is_checked)?;
        self.is_checked = true;
        Some(since + patience)
    }

    fn is_forgotten(&self, patience: Duration) -> bool {
        self.ready_since.is_some_and(|since| since.elapsed() >= patience)
    }
}

impl<K, V> Flight<K, V> {
    /// `thread` is the calling thread if it will block until the flight lands.
    pub(super) fn new(hash: Hash, key: K, thread: Option<ThreadId>, patience: Duration) -> Arc<Self> {
        Arc::new(Self { hash, key, outcome: OnceLock::new(), tasks: Mutex::default(), thread, patience })
    }

    /// Returns whether this thread would wait for itself.
    pub(super) fn is_led_by(&self, thread: Option<ThreadId>) -> bool {
        thread.is_some() && self.thread == thread
    }

    /// No code of the user runs under this lock.
    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lands the flight, unless it has landed, and wakes those that wait.
    pub(super) fn land(&self, outcome: Outcome<V>) {
        // A waiter that adds itself later finds the outcome.
        let unused = self.outcome.set(outcome);
        self.wake();
        // The destructor is code of the user, and this may run while a panic unwinds.
        contain(|| drop(unused));
    }

    fn wake(&self) {
        let waiting = std::mem::take(&mut self.tasks().waiting);
        // A waker is code of the executor: a panic must not prevent others from waking up.
        waiting.into_values().for_each(|waker| _ = contain(|| waker.wake()));
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Flight<K, V> {
    /// Polls the future of the loader.
    pub(super) fn poll<F: Future>(self: &Arc<Self>, loader: Pin<&mut F>, context: &Context<'_>) -> Poll<F::Output> {
        // Cloned outside of the lock, like everything that a waker does.
        let leader = context.waker().clone();
        let replaced = {
            let mut tasks = self.tasks();
            tasks.ready_since = None;
            (tasks.is_polled, tasks.is_ready) = (true, false);
            tasks.leader.replace(leader)
        };
        drop(replaced);
        let waker = Waker::from(Arc::new(Ready(Arc::downgrade(self))));
        let result = loader.poll(&mut Context::from_waker(&waker));
        let check = {
            let mut tasks = self.tasks();
            tasks.is_polled = false;
            tasks.ready_since = (tasks.is_ready && result.is_pending()).then(Instant::now);
            tasks.next_check(self.patience)
        };
        self.check_at(check);
        result
    }

    fn check_at(self: &Arc<Self>, time: Option<Instant>) {
        if let Some(time) = time {
            background::wake_at(time, Waker::from(Arc::new(Check(Arc::downgrade(self)))));
        }
    }
}

/// Notes that the loader of a flight could go on, and wakes the task of its leader. Does not keep
/// the flight: whoever has a waker may keep it for long.
struct Ready<K, V>(Weak<Flight<K, V>>);

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Wake for Ready<K, V> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(flight) = self.0.upgrade() else { return };
        let (leader, check) = {
            let mut tasks = flight.tasks();
            if tasks.is_polled {
                tasks.is_ready = true;
            } else {
                tasks.ready_since.get_or_insert_with(Instant::now);
            }
            (tasks.leader.take(), tasks.next_check(flight.patience))
        };
        flight.check_at(check);
        if let Some(leader) = leader {
            leader.wake();
        }
    }
}

/// Wakes those that wait for a flight if its leader is not polled.
struct Check<K, V>(Weak<Flight<K, V>>);

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Wake for Check<K, V> {
    fn wake(self: Arc<Self>) {
        let Some(flight) = self.0.upgrade() else { return };
        let (is_forgotten, next) = {
            let mut tasks = flight.tasks();
            tasks.is_checked = false;
            let is_forgotten = tasks.is_forgotten(flight.patience);
            (is_forgotten, if is_forgotten { None } else { tasks.next_check(flight.patience) })
        };
        flight.check_at(next);
        if is_forgotten {
            flight.wake();
        }
    }
}

/// Waits until a flight lands, or its leader seems to be forgotten.
pub(super) struct Wait<K, V> {
    pub(super) flight: Arc<Flight<K, V>>,
    number: Option<u64>,
}

impl<V> Landed<V> {
    /// Returns the patience with the next leader.
    pub(super) fn patience_after(&self, patience: Duration) -> Duration {
        if matches!(self, Self::IsForgotten) { patience.saturating_mul(2) } else { PATIENCE }
    }
}

/// What those get that wait.
pub(super) enum Landed<V> {
    With(Outcome<V>),
    /// The loader could go on, but nobody polls it.
    IsForgotten,
}

impl<K, V> Wait<K, V> {
    pub(super) fn new(flight: Arc<Flight<K, V>>) -> Self {
        Self { flight, number: None }
    }
}

impl<K: Send + Sync + 'static, V: Clone + Send + Sync + 'static> Wait<K, V> {
    /// Blocks the thread.
    pub(super) fn block(&mut self) -> Landed<V> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match self.poll(&mut context) {
                Poll::Ready(landed) => return landed,
                // Looks now and then whether the leader is forgotten: no other thread may do so.
                Poll::Pending => thread::park_timeout(self.flight.patience),
            }
        }
    }

    /// Waits without blocking the thread.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Landed<V>> {
        if let Some(outcome) = self.flight.outcome.get() {
            return Poll::Ready(Landed::With(outcome.clone()));
        }
        // The code of wakers runs outside of the lock.
        let mut waker = Some(context.waker().clone());
        let (replaced, is_forgotten, check) = self.add(&mut waker);
        drop((waker, replaced));
        if let Some(outcome) = self.flight.outcome.get() {
            return Poll::Ready(Landed::With(outcome.clone()));
        }
        self.flight.check_at(check);
        if is_forgotten { Poll::Ready(Landed::IsForgotten) } else { Poll::Pending }
    }

    /// Adds the waker to those of the flight, unless it has landed. Returns the waker that it
    /// replaces, whether the leader is forgotten, and when to check that.
    fn add(&mut self, waker: &mut Option<Waker>) -> (Option<Waker>, bool, Option<Instant>) {
        let Self { flight, number } = self;
        let mut tasks = flight.tasks();
        if flight.outcome.get().is_some() {
            return (None, false, None);
        }
        let number = *number.get_or_insert(tasks.next);
        tasks.next = tasks.next.max(number + 1);
        let replaced = waker.take().and_then(|waker| tasks.waiting.insert(number, waker));
        let is_forgotten = tasks.is_forgotten(flight.patience);
        (replaced, is_forgotten, if is_forgotten { None } else { tasks.next_check(flight.patience) })
    }
}

impl<K, V> Drop for Wait<K, V> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let waker = self.flight.tasks().waiting.remove(&number);
        drop(waker);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
