//! The threads that drive the clients: each has one epoll set, allocates nothing per request, and
//! does one write per client and batch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::client::{Attempt, Client, READ, Setting};
use super::items::Items;
use super::schedule::{Schedule, of_client};
use super::tally::{Tally, Window};
use super::workload::Workload;
use crate::harness::keys::seed;
use crate::harness::sampling::{Distribution, Draws, Operation, Ranks};
use crate::harness::workers::thread_time;
use relativist_check::client::Address;
use relativist_check::cores::Cores;

/// A server that is silent for this long is considered dead.
const PATIENCE: Duration = Duration::from_secs(10);

/// The number of SETs that a client sends together when it stores the items before the measurement,
/// and the limit of their bytes. A single SET may exceed the limit.
const PRELOAD_DEPTH: usize = 64;
const PRELOAD_BYTES: usize = 16 << 20;

/// How long a client whose connection broke waits before it makes another.
const RETRY: Duration = Duration::from_millis(100);

/// A source of load: a workload, and what is prepared before the measurement.
#[derive(Debug)]
pub struct Generator<'a> {
    workload: &'a Workload,
    cores: &'a Cores,
    items: Items,
}

impl<'a> Generator<'a> {
    /// Prepares a workload whose threads run on these cores.
    pub fn new(workload: &'a Workload, cores: &'a Cores) -> Self {
        Self { workload, cores, items: Items::new(workload) }
    }

    pub fn workload(&self) -> &'a Workload {
        self.workload
    }

    pub fn preload(&self, address: &Address) -> Result<()> {
        let clients = self.workload.threads;
        let depth = (PRELOAD_BYTES / self.items.largest_value()).clamp(1, PRELOAD_DEPTH) as u16;
        let workload = Workload { sets: 100, depth, rate: None, grow: None, clients, ..self.workload.clone() };
        let next = Arc::new(AtomicU64::new(0));
        let load = self.connect_with(workload, address, None, |_| Script::Each(Arc::clone(&next)))?;
        match load.run(Window::never()).context("cannot store the items")?.refusal {
            Some(refusal) => bail!(
                "cannot store the items: {refusal} (-I limits the size of an item, -m that of all items; --no-preload stores none)"
            ),
            None => Ok(()),
        }
    }

    /// Connects all clients. `round` seeds the choice of keys. If `slot` is given, latencies are
    /// also kept for each interval of this length.
    pub fn connect(&self, address: &Address, round: usize, slot: Option<Duration>) -> Result<Load<'_>> {
        let workload = self.workload.clone();
        let growth = workload.grow.map(|limit| (Arc::new(AtomicU64::new(workload.items)), limit));
        let script = |thread| {
            let (items, seed) = (self.workload.items, seed(round, thread));
            let ranks = (self.workload.popularity == Distribution::Zipf).then(|| Ranks::new(items, seed));
            Script::Mix {
                draws: Draws::new(0..items, None, self.workload.sets, seed),
                ranks: ranks.map(Box::new),
                growth: growth.clone(),
            }
        };
        self.connect_with(workload, address, slot, script)
    }

    fn connect_with(
        &self,
        workload: Workload,
        address: &Address,
        slot: Option<Duration>,
        script: impl Fn(usize) -> Script,
    ) -> Result<Load<'_>> {
        let driver = |thread: usize| {
            let clients = of_client(workload.clients.into(), thread, workload.threads.into());
            Driver::connect(clients, address, script(thread), Tally::new(slot))
        };
        let drivers = (0..usize::from(workload.threads)).map(driver).collect::<Result<Vec<_>>>()?;
        Ok(Load { generator: self, workload, drivers, sum: Tally::new(slot) })
    }
}

pub struct Load<'a> {
    generator: &'a Generator<'a>,
    workload: Workload,
    drivers: Vec<Driver>,
    sum: Tally,
}

impl Load<'_> {
    /// Runs the workload until the window closes and all requests are answered. Each client of a
    /// closed loop sends at least once. Broken connections are opened again.
    pub fn run(self, window: Window) -> Result<Tally> {
        let Self { generator, workload, drivers, mut sum } = self;
        let setting = Setting { workload: &workload, items: &generator.items, window };
        thread::scope(|scope| {
            let spawn = |(thread, driver): (usize, Driver)| {
                scope.spawn(move || {
                    generator.cores.pin_one(thread)?;
                    driver.run(setting, thread)
                })
            };
            let handles: Vec<_> = drivers.into_iter().enumerate().map(spawn).collect();
            for handle in handles {
                sum.add(handle.join().expect("no thread panics")?);
            }
            Ok(sum)
        })
    }
}

/// The source of the requests of a thread's clients.
enum Script {
    /// Random GETs and SETs. If `ranks` is given, it chooses the items. `growth` holds the number
    /// of new items that SETs have stored so far, and its limit.
    Mix { draws: Draws<'static>, ranks: Option<Box<Ranks>>, growth: Option<(Arc<AtomicU64>, u64)> },
    /// One SET of each item. The value is the number of the next item.
    Each(Arc<AtomicU64>),
}

impl Script {
    /// Queues the next request. Returns false if there is none.
    #[inline]
    fn put(&mut self, setting: Setting<'_>, client: &mut Client, at: Instant) -> bool {
        match self {
            Self::Mix { draws, ranks, growth } => {
                let mut draw = || {
                    let (operation, index) = draws.draw();
                    (operation, ranks.as_mut().map_or(index, |ranks| ranks.draw()))
                };
                match draw() {
                    (Operation::Get, index) => {
                        let others = (1..setting.workload.keys_per_get).map(|_| draw().1);
                        client.put_get(setting, std::iter::once(index).chain(others), at);
                    }
                    (_, index) => {
                        // Relaxed, here and below: only makes numbers unique, and publishes no
                        // data.
                        let new = growth.as_ref().map(|(stored, limit)| (stored.fetch_add(1, Relaxed), *limit));
                        let index = new.filter(|(new, limit)| new < limit).map_or(index, |(new, _)| new);
                        client.put_set(setting, index, at);
                    }
                }
            }
            Self::Each(next) => {
                let number = next.fetch_add(1, Relaxed);
                if number >= setting.workload.items {
                    return false;
                }
                client.put_set(setting, scattered(number, setting.workload.items), at);
            }
        }
        true
    }

    /// Draws whether a request that will never be sent would have been a SET.
    fn draw_is_set(&mut self) -> bool {
        match self {
            Self::Mix { draws, .. } => draws.draw().0 != Operation::Get,
            Self::Each(_) => true,
        }
    }
}

/// Permutes the items, so that the most popular ones do not have adjacent numbers. This is a
/// permutation because the prime is larger than any number of items.
fn scattered(number: u64, items: u64) -> u64 {
    const PRIME: u128 = (1 << 32) + 15;
    (u128::from(number) * PRIME % u128::from(items)) as u64
}

struct Driver {
    script: Script,
    epoll: OwnedFd,
    clients: Vec<Client>,
    outstanding: usize,
    tally: Tally,
    buffer: Box<[u8; 2 * READ]>,
    address: Address,
    /// Clients without a connection, and when each will connect again, the earliest first.
    broken: VecDeque<(Instant, usize)>,
    /// The number of clients that are connecting.
    connecting: usize,
}

impl Driver {
    fn connect(clients: u64, address: &Address, script: Script, tally: Tally) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot create an epoll set")?;
        let connect = |number| {
            let socket = address.connect()?;
            socket.set_nonblocking(true)?;
            epoll::add(&epoll, &socket, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
            Ok(Client::new(socket))
        };
        let clients = (0..clients).map(connect).collect::<Result<Vec<_>>>()?;
        let buffer = vec![0; 2 * READ].into_boxed_slice().try_into().expect("it has that size");
        let (address, broken) = (address.clone(), VecDeque::new());
        Ok(Self { script, epoll, clients, outstanding: 0, tally, buffer, address, broken, connecting: 0 })
    }

    /// Sends and receives until the window closes and all requests are answered.
    fn run(mut self, setting: Setting<'_>, thread: usize) -> Result<Tally> {
        let Workload { rate, threads, .. } = *setting.workload;
        // With the minimal timer slack the kernel wakes a thread at the requested time.
        rustix::thread::set_current_timer_slack(std::num::NonZero::new(1))?;
        let Window { begin, from, until } = setting.window;
        let schedule = rate.map(|rate| Schedule::new(begin, rate, thread, threads.into()));
        let mut due = 0;
        if schedule.is_none() {
            for number in 0..self.clients.len() {
                self.send_batch(setting, number, Instant::now())?;
            }
        }
        let give_up = until + setting.window.length() + PATIENCE;
        let mut cpu = Cpu::default();
        let mut heard = Instant::now();
        let mut events = Vec::with_capacity(self.clients.len());
        loop {
            let now = Instant::now();
            cpu.look(now, from, until);
            if let Some(schedule) = &schedule {
                due = self.send_due(setting, schedule, due, now)?;
            }
            self.reconnect(setting, schedule.as_ref(), now)?;
            let all_sent = match schedule {
                // A connected client without an unanswered request has nothing more to send.
                None => now >= until || self.broken.is_empty() && self.connecting == 0,
                Some(_) => now >= until && self.clients.iter().map(|client| client.put).sum::<u64>() == due,
            };
            if self.outstanding == 0 && all_sent {
                break;
            }
            if now >= give_up {
                self.count_late(setting, schedule.as_ref(), due, now);
                break;
            }
            let next = match &schedule {
                Some(schedule) if now < until => schedule.due_at(due).min(until),
                _ if now < until => until,
                _ => give_up,
            };
            self.wait(next, now, &mut events)?;
            let mut hears = self.outstanding == 0 && self.broken.is_empty() && self.connecting == 0;
            for event in events.drain(..) {
                hears |= self.serve(setting, event, schedule.as_ref(), due)?;
            }
            if hears {
                heard = Instant::now();
            } else if heard.elapsed() >= PATIENCE {
                let is_late = now >= until && schedule.is_some();
                let (requests, seconds) = (self.outstanding, PATIENCE.as_secs());
                ensure!(requests == 0 || is_late, "{requests} requests without a reply for {seconds} s");
                // No client is connected, or an open loop waits for late replies. The remaining
                // requests count as late.
                if now >= until {
                    self.count_late(setting, schedule.as_ref(), due, now);
                    break;
                }
            }
        }
        cpu.look(Instant::now(), from, until);
        self.tally.cpu = cpu.used();
        Ok(self.tally)
    }

    /// Waits for events until `next`, or until a client without a connection has to connect again.
    #[inline]
    fn wait(&self, next: Instant, now: Instant, events: &mut Vec<epoll::Event>) -> Result<()> {
        let next = self.broken.front().map_or(next, |&(at, _)| next.min(at));
        let timeout = next.saturating_duration_since(now).min(PATIENCE);
        let timeout = Timespec::try_from(timeout).expect("short enough");
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait for events"),
        }
    }

    /// Handles one client. Returns whether its connection still works.
    #[inline]
    fn serve(
        &mut self,
        setting: Setting<'_>,
        event: epoll::Event,
        schedule: Option<&Schedule>,
        due: u64,
    ) -> Result<bool> {
        let (number, flags) = (event.data.u64() as usize, event.flags);
        if self.clients[number].is_broken() {
            return self.end_connecting(setting, number, schedule, due);
        }
        if flags.contains(epoll::EventFlags::OUT) && !self.flush(setting, number, true)? {
            return Ok(false);
        }
        let client = &mut self.clients[number];
        match client.receive(setting, &mut self.buffer, &mut self.tally)? {
            Attempt::Done(answered) => self.outstanding -= answered,
            Attempt::Broken(reason) => {
                self.give_up_connection(setting, number, reason)?;
                return Ok(false);
            }
        }
        match schedule {
            None if client.requests().is_empty() => {
                let now = Instant::now();
                if now < setting.window.until { self.send_batch(setting, number, now) } else { Ok(true) }
            }
            None => Ok(true),
            Some(schedule) => self.send_due_of(setting, number, schedule, due),
        }
    }

    /// Handles a broken connection: its unanswered requests are lost, and its client connects again
    /// after `RETRY`.
    #[cold]
    fn give_up_connection(&mut self, setting: Setting<'_>, number: usize, reason: String) -> Result<()> {
        ensure!(matches!(self.script, Script::Mix { .. }), reason);
        let client = &mut self.clients[number];
        epoll::delete(&self.epoll, client.socket())?;
        let now = Instant::now();
        client.abandon(|request| {
            self.outstanding -= 1;
            self.tally.lost += 1;
            // In an open loop, the time without a reply belongs to the tail of the latencies. In a
            // closed loop it would only measure how fast connections break.
            if setting.workload.rate.is_some() && setting.window.has(request.at) {
                self.tally.record(request.is_set, &setting.window, request.at, now);
            }
        });
        self.tally.broken += 1;
        self.tally.breakage.get_or_insert(reason);
        self.broken.push_back((now + RETRY, number));
        Ok(())
    }

    /// Starts to connect the clients that have waited for `RETRY`, unless they have nothing left to
    /// send.
    #[inline]
    fn reconnect(&mut self, setting: Setting<'_>, schedule: Option<&Schedule>, now: Instant) -> Result<()> {
        while let Some(&(at, number)) = self.broken.front()
            && at <= now
        {
            self.broken.pop_front();
            if schedule.is_none() && now >= setting.window.until {
                continue;
            }
            match self.address.begin_to_connect() {
                Ok(socket) => {
                    let data = epoll::EventData::new_u64(number as u64);
                    epoll::add(&self.epoll, &socket, data, epoll::EventFlags::OUT)?;
                    self.clients[number].begin_to_connect(socket);
                    self.connecting += 1;
                }
                Err(_) => self.broken.push_back((now + RETRY, number)),
            }
        }
        Ok(())
    }

    /// Finishes connecting a client. If this succeeds, the client sends its requests; otherwise it
    /// tries again after `RETRY`. Returns whether the connection works.
    #[cold]
    fn end_connecting(
        &mut self,
        setting: Setting<'_>,
        number: usize,
        schedule: Option<&Schedule>,
        due: u64,
    ) -> Result<bool> {
        let (client, now) = (&mut self.clients[number], Instant::now());
        self.connecting -= 1;
        if let Attempt::Broken(_) = client.end_connecting() {
            epoll::delete(&self.epoll, client.socket())?;
            self.broken.push_back((now + RETRY, number));
            return Ok(false);
        }
        epoll::modify(&self.epoll, client.socket(), epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
        match schedule {
            Some(schedule) => self.send_due_of(setting, number, schedule, due),
            None if now < setting.window.until => self.send_batch(setting, number, now),
            None => Ok(true),
        }
    }

    /// Sends a batch of requests from one client, in a closed loop. Returns whether its connection
    /// still works.
    #[inline]
    fn send_batch(&mut self, setting: Setting<'_>, number: usize, now: Instant) -> Result<bool> {
        for _ in 0..setting.workload.depth {
            if !self.script.put(setting, &mut self.clients[number], now) {
                break;
            }
            self.outstanding += 1;
        }
        self.flush(setting, number, false)
    }

    /// Sends the requests that are due, in an open loop. Returns the number of requests due so far.
    fn send_due(&mut self, setting: Setting<'_>, schedule: &Schedule, before: u64, now: Instant) -> Result<u64> {
        let due = schedule.due_until(now.min(setting.window.until)).max(before);
        let clients = self.clients.len();
        for number in before..due.min(before + clients as u64) {
            self.send_due_of(setting, (number % clients as u64) as usize, schedule, due)?;
        }
        Ok(due)
    }

    /// Sends the due requests of one client, up to its limit of unanswered requests. Returns
    /// whether its connection still works.
    #[inline]
    fn send_due_of(&mut self, setting: Setting<'_>, number: usize, schedule: &Schedule, due: u64) -> Result<bool> {
        let clients = self.clients.len();
        let client = &mut self.clients[number];
        if client.is_broken() {
            return Ok(false);
        }
        let due = of_client(due, number, clients);
        while client.put < due && client.requests().len() < setting.workload.depth.into() {
            let at = schedule.due_at(client.put * clients as u64 + number as u64);
            self.script.put(setting, client, at);
            self.outstanding += 1;
        }
        self.flush(setting, number, false)
    }

    /// Sends the queued requests. If the socket does not accept all bytes, epoll reports when it
    /// accepts more. Returns whether the connection still works.
    #[inline]
    fn flush(&mut self, setting: Setting<'_>, number: usize, was_waiting: bool) -> Result<bool> {
        let client = &mut self.clients[number];
        let waits = match client.send() {
            Attempt::Done(all) => !all,
            Attempt::Broken(reason) => {
                self.give_up_connection(setting, number, reason)?;
                return Ok(false);
            }
        };
        if waits != was_waiting {
            let wanted =
                epoll::EventFlags::IN | if waits { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            epoll::modify(&self.epoll, client.socket(), epoll::EventData::new_u64(number as u64), wanted)?;
        }
        Ok(true)
    }

    /// Counts each due request without a reply as late. Its recorded latency is the time since it
    /// was due.
    fn count_late(&mut self, setting: Setting<'_>, schedule: Option<&Schedule>, due: u64, now: Instant) {
        let window = &setting.window;
        let clients = self.clients.len();
        for (number, client) in self.clients.iter().enumerate() {
            for request in client.requests().iter().filter(|request| window.has(request.at)) {
                self.tally.record(request.is_set, window, request.at, now);
                self.tally.late += 1;
            }
            let Some(schedule) = schedule else { continue };
            for turn in client.put..of_client(due, number, clients) {
                let at = schedule.due_at(turn * clients as u64 + number as u64);
                if window.has(at) {
                    self.tally.record(self.script.draw_is_set(), window, at, now);
                    self.tally.late += 1;
                }
            }
        }
    }
}

/// The CPU time of this thread while the window is open.
#[derive(Default)]
struct Cpu {
    from: Option<Duration>,
    until: Option<Duration>,
}

impl Cpu {
    #[inline]
    fn look(&mut self, now: Instant, from: Instant, until: Instant) {
        if self.until.is_none() && now >= from {
            if self.from.is_none() {
                self.from = thread_time();
            }
            if now >= until {
                self.until = thread_time();
            }
        }
    }

    fn used(&self) -> Duration {
        self.from.zip(self.until).map_or(Duration::ZERO, |(from, until)| until - from)
    }
}
