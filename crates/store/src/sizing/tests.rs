//! Whole estimates, compared with simulations of all keys.

use super::estimator::{BUDGET, Estimator, MIN_CALM, Observed};
use super::events::{Event, Events, Kind};
use super::miniature::MAX_OBJECTS;
use super::{FACTORS, Simulation, State, Stored};
use crate::expiry::Expiry;
use crate::policy::EvictFor;
use std::collections::HashSet;

const START: u32 = 1_000_000;

/// Pseudo-random numbers.
fn mixed(number: u64, seed: u64) -> u64 {
    let mut z = number.wrapping_add(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Requests for keys with Zipf's distribution (exponent 0.9), in any order.
fn zipf(keys: usize, requests: u64) -> Vec<u64> {
    let mut sum = 0.0;
    let sums = (1..=keys).map(|rank| {
        sum += (rank as f64).powf(-0.9);
        sum
    });
    let sums: Vec<f64> = sums.collect();
    let draw = |n| mixed(n, 7) as f64 / u64::MAX as f64 * sum;
    (0..requests).map(|n| sums.partition_point(|up_to| *up_to < draw(n)) as u64).collect()
}

/// The size of a key's object: a few large ones among many small ones.
fn size(key: u64) -> u64 {
    let random = mixed(key, 3);
    64 + random % 200 + if random.is_multiple_of(50) { 4000 } else { 0 }
}

/// Requests each key, and stores it after a miss. Returns the misses.
fn misses(cache: &mut Simulation, requests: &[u64], mut note: impl FnMut(u64, bool, &Simulation)) -> u64 {
    let mut misses = 0;
    for &key in requests {
        let is_hit = cache.get(key, START);
        if !is_hit {
            misses += 1;
            cache.put(key, Stored::lasting(size(key)), START);
        }
        note(key, is_hit, cache);
    }
    misses
}

fn event(hash: u64, kind: Kind, size: u64) -> Event {
    Event { hash, kind, size: size as u32, expiry: Expiry::NEVER }
}

/// An estimator whose clock and counts a test sets.
struct Scene {
    events: Events,
    estimator: Estimator,
    now: u32,
    observed: Observed,
}

impl Scene {
    /// For a cache in which items can have this many bytes.
    fn new(capacity: u64) -> Scene {
        let observed = Observed { limit: capacity / 7 * 8, ..Observed::default() };
        Scene { events: Events::new(1), estimator: Estimator::new(START, observed), now: START, observed }
    }

    fn record(&self, event: Event) {
        if self.events.samples(event.hash) {
            self.events.record(event, 0);
        }
    }

    fn look_up(&mut self, hash: u64, size: u64, is_hit: bool) {
        self.observed.lookups += 1;
        self.observed.misses += u64::from(!is_hit);
        self.record(event(hash, if is_hit { Kind::Hit } else { Kind::Miss }, size));
        if !is_hit {
            self.record(event(hash, Kind::Store { replaces: false }, size));
        }
    }

    fn advance(&mut self) {
        self.estimator.advance(self.now, self.observed, &self.events);
    }
}

/// The estimates of five sizes are within .01 of simulations of all keys, with three samples.
#[test]
fn estimates_are_right_at_five_sizes() {
    let (keys, requests) = (100_000, zipf(100_000, 400_000));
    let all: u64 = (0..keys).map(size).sum();
    let capacity = all / 10;
    let real = FACTORS.map(|factor| {
        misses(&mut Simulation::new((capacity as f64 * factor) as u64, EvictFor::Requests), &requests, |_, _, _| ())
    });
    for seed in 1..=3 {
        let mut scene = Scene::new(capacity);
        let mut count = 0;
        misses(&mut Simulation::new(capacity, EvictFor::Requests), &requests, |key, is_hit, cache| {
            scene.look_up(mixed(key + 1, seed), size(key), is_hit);
            count += 1;
            if count % 1000 == 0 {
                scene.observed.evictions += u64::from(cache.has_evicted());
                scene.observed.item_bytes = cache.bytes();
                scene.advance();
            }
        });
        let report = scene.estimator.report();
        let lookups = requests.len() as f64;
        for ((estimate, real), factor) in report.memory.iter().zip(real).zip(FACTORS) {
            let (estimated, real) = (estimate.misses / lookups, real as f64 / lookups);
            println!("seed {seed}, {factor}: estimated {estimated:.4}, real {real:.4}, {:?}", estimate.state);
            assert!((estimated - real).abs() < 0.01, "seed {seed}, {factor}: {estimated}, really {real}");
            assert_eq!(estimate.state, State::Ready, "seed {seed}, {factor}");
        }
        assert!(scene.estimator.halvings() == 0 && scene.estimator.most_halvings() >= 2, "the largest is a sample");
        let used: u64 = report.working_set.iter().map(|class| class.items).sum();
        let really_used = requests.iter().collect::<HashSet<_>>().len();
        assert!((used as f64 / really_used as f64 - 1.0).abs() < 0.02, "{used}, really {really_used}");
    }
}

/// Each kind of event changes what a simulation finds.
#[test]
fn deletions_expiry_and_replacements_are_simulated() {
    let mut scene = Scene::new(1 << 20);
    let misses = |scene: &mut Scene| {
        scene.advance();
        scene.estimator.simulated_misses()
    };
    for (kind, expected) in [
        (Kind::Miss, 1.0),
        (Kind::Store { replaces: false }, 1.0),
        (Kind::Hit, 1.0),
        (Kind::Remove, 1.0),
        (Kind::Miss, 2.0),
        // The cache has the item, so the simulations had to have it.
        (Kind::Hit, 3.0),
        (Kind::Hit, 3.0),
        (Kind::Store { replaces: true }, 3.0),
        (Kind::Miss, 3.0),
    ] {
        scene.record(event(9, kind, 100));
        assert_eq!(misses(&mut scene), [expected; 5], "{kind:?}");
    }
    let touch = Event { expiry: Expiry::from_bits(START + 5), ..event(9, Kind::Touch, 100) };
    scene.record(touch);
    scene.advance();
    scene.now += 5;
    scene.record(event(9, Kind::Miss, 0));
    assert_eq!(misses(&mut scene), [4.0; 5], "it has expired");
}

#[test]
fn a_flush_begins_everything_anew() {
    let mut scene = Scene::new(1 << 20);
    (0..2000).for_each(|n| scene.look_up(n % 100, 50, n >= 100));
    scene.advance();
    let report = scene.estimator.report();
    assert_eq!((report.lookups, report.hit_ratio), (2000, Some(0.95)));
    assert!(report.memory.iter().all(|estimate| estimate.trusted() == Some(0.95)), "{report:?}");
    (scene.now, scene.observed.flushed) = (START + 10, 3);
    scene.advance();
    let report = scene.estimator.report();
    assert_eq!((report.seconds, report.lookups, report.hit_ratio, report.working_set), (0, 0, None, vec![]));
    assert!(report.memory.iter().all(|it| (it.state, it.misses) == (State::Few, 0.0)));
}

#[test]
fn a_size_that_was_never_full_has_no_estimate_if_the_cache_was() {
    let mut scene = Scene::new(100_000);
    (0..1500).for_each(|n| scene.look_up(mixed(n, 1), 100, false));
    (scene.observed.evictions, scene.observed.item_bytes) = (500, 100_000);
    scene.advance();
    let states = scene.estimator.report().memory.map(|estimate| estimate.state);
    assert_eq!(states[3..], [State::Filling; 2]);
    // What was full counts since then.
    assert_eq!(states[..3], [State::Few; 3]);
    (1500..3500).for_each(|n| scene.look_up(mixed(n, 1), 100, false));
    scene.advance();
    let report = scene.estimator.report();
    let states = report.memory.map(|estimate| estimate.state);
    assert_eq!((states[..3].to_vec(), states[4]), (vec![State::Ready; 3], State::Filling));
    assert_eq!(report.memory[0].trusted(), Some(0.0));
}

/// A cache with items that the simulations have never seen, as after a start with a snapshot.
#[test]
fn estimates_that_contradict_the_cache_are_not_trusted() {
    let mut scene = Scene::new(1 << 20);
    (1..=2000).for_each(|n| scene.look_up(n, 50, true));
    scene.advance();
    let report = scene.estimator.report();
    assert!(report.memory.iter().all(|it| it.state == State::Inaccurate && it.trusted().is_none()), "{report:?}");
    assert_eq!(report.hit_ratio, Some(1.0));
    // After an hour this does not count any more.
    for minute in 1..=62 {
        scene.now = START + 60 * minute;
        (1..=100).for_each(|n| scene.look_up(n, 50, true));
        scene.advance();
    }
    let report = scene.estimator.report();
    assert_eq!((report.seconds, report.hit_ratio), (3600, Some(1.0)));
    assert!(report.memory.iter().all(|it| it.trusted() == Some(1.0)), "{report:?}");
    let used: u64 = report.working_set.iter().map(|class| class.items).sum();
    assert_eq!(used, 100, "the others were used more than an hour ago");
}

/// The sample is smaller under a high load, and grows again under a low one.
#[test]
fn the_load_of_events_is_limited() {
    let mut scene = Scene::new(1 << 20);
    let (mut simulated, mut n) = (0, 0);
    for second in 1..=20 {
        scene.now = START + second;
        for _ in 0..10 {
            (0..20_000).for_each(|_| {
                n += 1;
                simulated += u64::from(scene.events.samples(mixed(n, 5)));
                scene.record(event(mixed(n, 5), Kind::Miss, 0));
            });
            scene.advance();
        }
        if second == 10 {
            simulated = 0;
        }
    }
    assert!(simulated / 10 <= BUDGET, "{} in a second", simulated / 10);
    let high = scene.estimator.halvings();
    assert!((4..=6).contains(&high), "{high}");
    for minute in 1..=2 * MIN_CALM {
        scene.now = START + 60 * minute;
        scene.advance();
    }
    assert!(scene.estimator.halvings() < high);
}

/// What was lost may have been misses.
#[test]
fn after_a_loss_misses_are_counted_anew() {
    let mut scene = Scene::new(1 << 20);
    (0..5000).for_each(|n| scene.look_up(mixed(n, 1), 50, false));
    scene.advance();
    let report = scene.estimator.report();
    assert_eq!((report.lookups, report.memory[0].state), (0, State::Few));
    (5000..7000).for_each(|n| scene.look_up(mixed(n, 1), 50, false));
    scene.advance();
    let report = scene.estimator.report();
    assert_eq!((report.lookups, report.hit_ratio), (2000, Some(0.0)));
    assert!(report.memory.iter().all(|it| it.trusted() == Some(0.0)), "{report:?}");
}

#[test]
fn a_changed_limit_changes_the_sizes() {
    let mut scene = Scene::new(7 << 20);
    let limit = scene.observed.limit;
    (0..MAX_OBJECTS as u64).for_each(|n| scene.record(event(mixed(n, 1), Kind::Store { replaces: false }, 100)));
    scene.advance();
    scene.observed.limit = limit / 16;
    scene.advance();
    let bytes = scene.estimator.report().memory.map(|estimate| estimate.bytes);
    assert_eq!(bytes, FACTORS.map(|factor| (factor * (limit / 16) as f64) as u64));
    let objects = scene.estimator.objects();
    assert!(objects[0] <= (7 << 20) / 16 / 4 / 100 && objects.is_sorted(), "{objects:?}");
}
