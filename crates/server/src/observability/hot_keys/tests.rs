use super::*;
use std::time::Instant;

/// A second at which a window begins.
const START: u32 = 6000;

/// Zipf's distribution with exponent 0.99. A draw is one of many that were drawn beforehand,
/// because drawing one takes longer than counting it.
struct Zipf {
    keys: u32,
    drawn: Vec<u32>,
}

impl Zipf {
    fn new(keys: u32) -> Zipf {
        const DRAWN: usize = 1 << 20;
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += f64::from(rank).powf(-0.99);
            sum
        });
        let sums: Vec<f64> = sums.collect();
        // Evenly spaced, so that the draws have the distribution exactly.
        let rank = |n: usize| sums.partition_point(|up_to| *up_to <= sum * (n as f64 + 0.5) / DRAWN as f64);
        Zipf { keys, drawn: (0..DRAWN).map(|n| rank(n) as u32).collect() }
    }

    fn draw(&self, random: &mut fastrand::Rng) -> u32 {
        self.drawn[random.usize(..self.drawn.len())]
    }
}

/// Threads that do the same work, and what they really did.
struct Load {
    hot: HotKeys,
    threads: Vec<ThreadKeys>,
    truth: Vec<u32>,
}

impl Load {
    fn new(threads: usize, keys: u32) -> Load {
        let hot = HotKeys::new(Mode::Clear);
        // The secret is random, so seeds are set.
        let seeded = |number| {
            let sampler = |kind| Sampler::new(Mode::Clear, &hot.hasher, 2 * number as u64 + kind as u64);
            ThreadKeys(Kind::ALL.map(sampler))
        };
        let threads = (0..threads).map(seeded).collect();
        Load { hot, threads, truth: vec![0; keys as usize] }
    }

    fn read(&mut self, thread: usize, key: u32, now: u32) {
        self.truth[key as usize] += 1;
        self.threads[thread].record(Kind::Read, format!("{key}").as_bytes(), 10, || now);
    }

    fn report(&self, now: u32) -> Report {
        self.hot.report(Kind::Read, self.threads.iter(), (START, now)).expect("it is on")
    }

    /// Whether the reported keys are the true ones. Keys that were used equally often may take
    /// each other's places.
    fn is_right(&self, now: u32) -> bool {
        let mut counts = self.truth.clone();
        let (_, &mut least, _) = counts.select_nth_unstable_by_key(REPORTED - 1, |count| std::cmp::Reverse(*count));
        let reported = self.report(now).keys;
        let is_top = |key: &HotKey| self.truth[key.name.parse::<usize>().expect("a number")] >= least;
        reported.len() == REPORTED && reported.iter().all(is_top)
    }
}

/// Runs windows of a minute in which two threads read keys with Zipf's distribution, each `rate`
/// keys a second. Returns in how many of them the sixteen most read keys are right.
fn right_windows(zipf: &Zipf, windows: u64, rate: u32) -> u64 {
    let is_right = |seed: &u64| {
        let mut random = fastrand::Rng::with_seed(*seed);
        let mut load = Load::new(2, zipf.keys);
        for now in START..START + 60 {
            (0..rate)
                .for_each(|_| [0, 1].into_iter().for_each(|thread| load.read(thread, zipf.draw(&mut random), now)));
        }
        load.is_right(START + 59)
    };
    (0..windows).filter(is_right).count() as u64
}

/// Below the budget everything is counted, so only the sketches and the merging can be wrong.
#[test]
fn the_top_of_a_slow_load_is_right() {
    let right = right_windows(&Zipf::new(100_000), 100, 200);
    println!("{right} of 100");
    assert!(right >= 95, "{right} of 100");
}

/// A load of which one key in four is sampled. `RELATIVIST_HOT_KEY_WINDOWS` sets the number of
/// windows: a hundred take some minutes with optimization.
#[test]
fn the_top_of_a_fast_load_is_right() {
    let windows = std::env::var("RELATIVIST_HOT_KEY_WINDOWS").map_or(1, |count| count.parse().expect("a number"));
    let right = right_windows(&Zipf::new(1_000_000), windows, 4 * BUDGET as u32);
    println!("{right} of {windows}");
    assert!(right * 100 >= windows * 95, "{right} of {windows}");
}

/// Also prints what a sample costs. If no key is frequent, most take the counter of another key.
#[test]
fn all_samples_are_counted() {
    const SAMPLES: u64 = 40 * BUDGET;
    let mut random = fastrand::Rng::with_seed(1);
    let zipf = Zipf::new(1_000_000);
    let uniform: Vec<u32> = (0..SAMPLES).map(|_| random.u32(..100_000)).collect();
    let zipf: Vec<u32> = (0..SAMPLES).map(|_| zipf.draw(&mut random)).collect();
    for (name, keys) in [("uniform", uniform), ("Zipf", zipf)] {
        let load = Load::new(1, 1);
        let keys: Vec<String> = keys.iter().map(|key| format!("{key:016}")).collect();
        let start = Instant::now();
        for (second, keys) in (START..).zip(keys.chunks(BUDGET as usize)) {
            keys.iter().for_each(|key| load.threads[0].0[0].sample(key.as_bytes(), 1, second));
        }
        println!("{name}: {:.1} ns per sample", start.elapsed().as_nanos() as f64 / SAMPLES as f64);
        assert_eq!(load.report(START + 39).events, SAMPLES, "{name}");
    }
}

#[test]
fn rates_are_right_and_samples_are_few() {
    let mut load = Load::new(1, 1 << 16);
    let mut samples = 0;
    for now in START..START + 10 {
        for n in 0..20 * BUDGET as u32 {
            let is_hot = n % 2 == 0;
            load.read(0, if is_hot { 0 } else { 1 + n / 2 % 50_000 }, now);
        }
        samples += load.threads[0].0[0].samples.as_ref().unwrap().lock().unwrap().pace.samples;
    }
    let report = load.report(START + 9);
    let [hot, other] = [0, 1].map(|n| &report.keys[n]);
    assert_eq!((report.seconds, hot.name.as_str(), hot.bytes), (10, "0", 10 * hot.events));
    assert!((report.share(hot) - 0.5).abs() < 0.01, "{}", report.share(hot));
    let real = 20.0 * BUDGET as f64;
    assert!((report.per_second(report.events) / real - 1.0).abs() < 0.02, "{report:?}");
    assert!(report.share(other) < 0.001, "no other key is frequent: {report:?}");
    // In the first second the distance has to grow.
    assert!(samples < 16 * BUDGET, "{samples}");
}

#[test]
fn hashes_hide_keys_and_differ_between_servers() {
    let names = || {
        let hot = HotKeys::new(Mode::Hashed);
        let threads = [0, 1].map(|number| hot.thread(number));
        for thread in &threads {
            thread.record(Kind::Write, b"secret", 3, || START);
        }
        let report = hot.report(Kind::Write, threads.iter(), (START, START)).unwrap();
        assert_eq!(hot.report(Kind::Read, threads.iter(), (START, START)).unwrap().keys, []);
        let [key] = report.keys.as_slice() else { panic!("one key: {report:?}") };
        assert_eq!((key.events, key.bytes, key.name.len()), (2, 6, 16));
        assert!(key.name.bytes().all(|byte| byte.is_ascii_hexdigit()));
        key.name.clone()
    };
    assert_ne!(names(), names());
}

#[test]
fn nothing_is_sampled_if_it_is_off() {
    let hot = HotKeys::new(Mode::Off);
    let thread = hot.thread(0);
    (0..100).for_each(|_| thread.record(Kind::Read, b"key", 0, || panic!("it is off")));
    assert_eq!(hot.report(Kind::Read, [&thread].into_iter(), (START, START)), None);
}

#[test]
fn a_thread_does_not_wait_for_a_reader() {
    let hot = HotKeys::new(Mode::Hashed);
    let thread = hot.thread(0);
    let reader = thread.0[0].samples.as_ref().unwrap().lock().unwrap();
    thread.record(Kind::Read, b"dropped", 0, || START);
    drop(reader);
    thread.record(Kind::Read, b"counted", 0, || START);
    assert_eq!(hot.report(Kind::Read, [&thread].into_iter(), (START, START)).unwrap().keys.len(), 1);
}
