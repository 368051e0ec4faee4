//! Pinned threads that run batches of operations while a window of time is open.
//!
//! A worker repeats its batch in three phases: it warms caches and branch predictors, then counts,
//! then stops. It checks the phase once per batch and reads the clocks twice per measurement, on
//! its own thread. It divides its own operations by its own time, so it does not matter when the
//! other workers start and stop.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use core_affinity::CoreId;
use serde::{Deserialize, Serialize};

const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

/// How long workers run uncounted, and then counted.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    warm_up: Duration,
    measured: Duration,
}

impl Window {
    /// Makes a window that counts for `measured`, after a warm-up of a quarter of that time (at
    /// most half a second).
    pub fn new(measured: Duration) -> Self {
        Self { warm_up: (measured / 4).min(Duration::from_millis(500)), measured }
    }

    pub fn warm_up(&self) -> Duration {
        self.warm_up
    }
}

/// The clock that operations are timed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Elapsed time
    #[default]
    Wall,
    /// CPU time of the threads: usable on a busy machine, but does not include waiting for a lock
    Cpu,
}

/// Operations and times of one worker while it counted.
#[derive(Clone, Copy, Debug)]
pub struct WorkerResult {
    pub operations: u64,
    pub began: Instant,
    /// The time that the operations took.
    pub elapsed: Duration,
    /// The part of that time that the thread spent on a CPU, if the system reports it.
    pub on_cpu: Option<Duration>,
}

impl WorkerResult {
    pub fn per_second(&self, clock: Clock) -> f64 {
        self.operations as f64 / self.time(clock).as_secs_f64()
    }

    /// Nanoseconds per operation.
    pub fn nanoseconds(&self, clock: Clock) -> f64 {
        self.time(clock).as_secs_f64() * 1e9 / self.operations as f64
    }

    fn time(&self, clock: Clock) -> Duration {
        match clock {
            Clock::Wall => self.elapsed,
            Clock::Cpu => self.on_cpu.unwrap_or(self.elapsed),
        }
    }

    /// Returns the share of the time in which the thread was on a CPU. It is below 1 if the thread
    /// slept or was preempted.
    pub fn cpu_share(&self) -> Option<f64> {
        self.on_cpu.map(|on_cpu| on_cpu.as_secs_f64() / self.elapsed.as_secs_f64())
    }
}

/// Returns the time from the first beginning to the last end.
pub fn span(results: &[WorkerResult]) -> Duration {
    let began = results.iter().map(|result| result.began).min();
    let ended = results.iter().map(|result| result.began + result.elapsed).max();
    began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began)
}

/// Returns the smallest CPU share of the threads, if the system reports it.
pub fn min_cpu_share(results: &[WorkerResult]) -> Option<f64> {
    results.iter().filter_map(WorkerResult::cpu_share).min_by(f64::total_cmp)
}

/// Returns the CPU time of the calling thread so far.
#[cfg(unix)]
pub(crate) fn thread_time() -> Option<Duration> {
    Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime)).ok()
}

/// Returns the CPU time of the calling thread so far.
#[cfg(not(unix))]
pub(crate) fn thread_time() -> Option<Duration> {
    None
}

/// The CPUs this process may run on.
#[derive(Debug)]
pub struct Cpus(Vec<CoreId>);

impl Cpus {
    pub fn allowed() -> Self {
        Self(core_affinity::get_core_ids().unwrap_or_default())
    }

    /// Returns the number of CPUs, which is at least one.
    pub fn count(&self) -> usize {
        match self.0.len() {
            0 => thread::available_parallelism().map_or(1, usize::from),
            count => count,
        }
    }

    /// Pins the calling thread, the `index`-th of `threads`, to a CPU of its own. Does nothing if
    /// there are fewer CPUs than threads.
    fn pin(&self, index: usize, threads: usize) {
        if threads <= self.0.len() {
            core_affinity::set_for_current(self.0[index]);
        }
    }
}

/// Runs `threads` workers through `window` and returns what each counted, in order.
///
/// `worker(i)` is called on the i-th thread and returns its batch: a closure that does some
/// operations and returns their number. A batch should take long enough (microseconds) to hide the
/// cost of the check between batches. Every worker counts at least one batch.
pub fn run<B>(cpus: &Cpus, threads: usize, window: Window, worker: impl Fn(usize) -> B + Sync) -> Vec<WorkerResult>
where
    B: FnMut() -> u64,
{
    let phase = AtomicU8::new(WARM_UP);
    let start = Barrier::new(threads + 1);
    let (phase, start, worker) = (&phase, &start, &worker);
    thread::scope(|scope| {
        let spawn = |index| {
            scope.spawn(move || {
                cpus.pin(index, threads);
                start.wait();
                count(phase, worker(index))
            })
        };
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        start.wait();
        thread::sleep(window.warm_up);
        // Relaxed: the phase is a signal only; results come back through the join.
        phase.store(MEASURE, Ordering::Relaxed);
        thread::sleep(window.measured);
        phase.store(STOP, Ordering::Relaxed);
        handles.into_iter().map(|handle| handle.join().expect("a worker panicked")).collect()
    })
}

/// Runs `threads` workers once, from a common start, and returns what each did, in order.
///
/// `worker(i)` is called on the i-th thread, and returns the number of its operations.
pub fn run_to_completion(cpus: &Cpus, threads: usize, worker: impl Fn(usize) -> u64 + Sync) -> Vec<WorkerResult> {
    let start = Barrier::new(threads);
    let (start, worker) = (&start, &worker);
    thread::scope(|scope| {
        let spawn = |index| {
            scope.spawn(move || {
                cpus.pin(index, threads);
                start.wait();
                let clocks = Clocks::read();
                let operations = worker(index);
                clocks.result(operations)
            })
        };
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        handles.into_iter().map(|handle| handle.join().expect("a worker panicked")).collect()
    })
}

fn count(phase: &AtomicU8, mut batch: impl FnMut() -> u64) -> WorkerResult {
    // Relaxed, here and below: pairs with the stores of `run`, which publish only the phase.
    while phase.load(Ordering::Relaxed) == WARM_UP {
        batch();
    }
    let clocks = Clocks::read();
    let mut operations = batch();
    while phase.load(Ordering::Relaxed) != STOP {
        operations += batch();
    }
    clocks.result(operations)
}

/// Elapsed time and CPU time of the calling thread, at the start of its operations.
struct Clocks {
    began: Instant,
    on_cpu: Option<Duration>,
}

impl Clocks {
    fn read() -> Self {
        Self { began: Instant::now(), on_cpu: thread_time() }
    }

    /// Returns the operations and times since the start. The calling thread must be the one that
    /// started the clocks.
    fn result(self, operations: u64) -> WorkerResult {
        let (elapsed, now) = (self.began.elapsed(), thread_time());
        let on_cpu = now.zip(self.on_cpu).map(|(now, before)| now.saturating_sub(before));
        WorkerResult { operations, began: self.began, elapsed, on_cpu }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_counts_its_own_batches() {
        let results = run(&Cpus::allowed(), 3, Window::new(Duration::from_millis(2)), |index| {
            move || {
                thread::yield_now();
                index as u64 + 1
            }
        });
        assert_eq!(results.len(), 3);
        for (index, result) in results.iter().enumerate() {
            assert!(result.operations > 0);
            assert_eq!(result.operations % (index as u64 + 1), 0);
            assert!(result.elapsed > Duration::ZERO);
        }
    }

    #[test]
    fn a_race_is_run_once_by_each() {
        let results = run_to_completion(&Cpus::allowed(), 3, |index| index as u64 + 1);
        assert_eq!(results.iter().map(|result| result.operations).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(results.iter().all(|result| result.elapsed <= span(&results)));
    }

    #[test]
    fn rates_and_times_are_inverse() {
        let elapsed = Duration::from_micros(1);
        let result = WorkerResult { operations: 500, began: Instant::now(), elapsed, on_cpu: Some(elapsed / 4) };
        assert_eq!((result.nanoseconds(Clock::Wall), result.nanoseconds(Clock::Cpu)), (2.0, 0.5));
        assert_eq!(result.cpu_share(), Some(0.25));
        assert!((result.per_second(Clock::Wall) - 5e8).abs() < 1.0);
    }

    #[test]
    #[should_panic(expected = "a worker panicked")]
    fn a_panic_of_a_worker_is_passed_on() {
        run(&Cpus::allowed(), 2, Window::new(Duration::from_millis(1)), |index| {
            move || {
                assert_ne!(index, 1, "this worker is broken");
                1
            }
        });
    }
}
