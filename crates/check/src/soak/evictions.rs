//! Compares the evictions that the server reports with missing items. Each reported eviction
//! excuses one missing item of that name.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result, ensure};
use socket2::Socket;

use super::serving;
use super::shared::{Common, lock};
use crate::client::Address;

/// Evictions of the item with one name, and how often it was missing.
#[derive(Debug, Default)]
struct Account {
    /// The number of reported evictions minus the number of missing items. It can be negative,
    /// because the report may come later.
    balance: i64,
    /// The value of `Ledger::missing` when the balance became negative.
    since: u64,
    /// The requests that led to the last missing item. Cleared when its eviction is reported.
    history: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    accounts: HashMap<Vec<u8>, Account>,
    missing: u64,
    unexcused: u64,
    watched: Watched,
}

/// The server process that reports evictions now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watched {
    pub(super) process: u64,
    /// The number of evictions that it has reported so far.
    pub(super) evictions: u64,
}

impl Ledger {
    /// Records a missing item. Returns the number of missing items without a reported eviction.
    pub(super) fn miss(&mut self, name: &[u8]) -> u64 {
        self.missing += 1;
        let account = self.accounts.entry(name.to_vec()).or_default();
        account.balance -= 1;
        self.unexcused += u64::from(account.balance < 0);
        if account.balance == -1 {
            account.since = self.missing;
        }
        self.unexcused
    }

    /// Keeps the requests that led to a missing item, in case its eviction is never reported.
    pub(super) fn note(&mut self, name: Vec<u8>, history: String) {
        self.accounts.entry(name).or_default().history = Some(history);
    }

    pub(super) fn watched(&self) -> Watched {
        self.watched
    }

    fn evicted(&mut self, name: &[u8]) {
        self.watched.evictions += 1;
        let account = self.accounts.entry(name.to_vec()).or_default();
        account.balance += 1;
        self.unexcused -= u64::from(account.balance <= 0);
        if account.balance >= 0 {
            account.history = None;
        }
    }

    /// Removes balances above zero after everything was flushed: they must not excuse later missing
    /// items.
    pub(super) fn flushed(&mut self) {
        self.accounts.retain(|_, account| account.balance < 0);
    }

    pub(super) fn missing(&self) -> u64 {
        self.missing
    }

    /// Returns how many of the first `missing` missing items have no reported eviction. If all
    /// missing items together have at most `excused` of these, returns their number instead, which
    /// is cheaper.
    pub(super) fn unexcused(&self, missing: u64, excused: u64) -> u64 {
        if self.unexcused <= excused {
            return self.unexcused;
        }
        let accounts = self.accounts.values().filter(|account| account.balance < 0 && account.since <= missing);
        accounts.map(|account| account.balance.unsigned_abs()).sum()
    }

    /// Returns the requests that led to some missing item without a reported eviction.
    pub(super) fn suspicion(&self) -> String {
        let suspects = self.accounts.values().filter(|account| account.balance < 0);
        suspects.filter_map(|account| account.history.clone()).next().unwrap_or_default()
    }
}

/// The connection on which the server reports evictions.
#[derive(Debug)]
pub(super) struct Watcher<'a> {
    common: &'a Common<'a>,
    address: &'a Address,
    link: Mutex<Link>,
}

#[derive(Debug)]
struct Link {
    /// Another one after each time that the server was replaced.
    socket: Socket,
    is_stopped: bool,
}

impl<'a> Watcher<'a> {
    /// Starts to watch evictions. Returns `None` if the server refuses.
    pub(super) fn start(common: &'a Common<'a>, address: &'a Address) -> Result<Option<Self>> {
        let watcher = |socket| Self { common, address, link: Mutex::new(Link { socket, is_stopped: false }) };
        Ok(watch(common, address)?.map(watcher))
    }

    pub(super) fn run(&self) -> Result<()> {
        let outcome = self.follow();
        self.common.is_over.fetch_or(outcome.is_err(), Relaxed);
        outcome
    }

    /// Receives the reports of the server and of those that replace it, until the run is over.
    fn follow(&self) -> Result<()> {
        loop {
            let socket = {
                let link = lock(&self.link);
                if link.is_stopped {
                    return Ok(());
                }
                link.socket.try_clone()?
            };
            self.receive(&socket)?;
            if self.common.is_over.load(Relaxed) {
                return Ok(());
            }
            ensure!(self.common.plan.is_replaced(), "the server no longer reports evictions");
            let next = watch(self.common, self.address)?;
            lock(&self.link).socket = next.context("a successor refuses to report evictions")?;
        }
    }

    fn receive(&self, socket: &Socket) -> Result<()> {
        let mut lines = BufReader::with_capacity(1 << 16, socket);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).context("cannot receive the log of evictions")? > 0 {
            if let Some(name) = evicted(&line) {
                lock(&self.common.ledger).evicted(name);
            }
            line.clear();
        }
        Ok(())
    }

    /// Ends `run`. Call this when the run is over.
    pub(super) fn stop(&self) {
        let mut link = lock(&self.link);
        link.is_stopped = true;
        // Fails if the server has closed the connection.
        let _ = link.socket.shutdown(Shutdown::Both);
    }
}

/// Connects, and asks for reports of evictions. Notes which process reports them. Returns `None` if
/// the server refuses.
fn watch(common: &Common<'_>, address: &Address) -> Result<Option<Socket>> {
    let ask = |socket: &mut Socket| {
        let process = serving::process(common.plan, socket, false)?;
        socket.write_all(b"watch evictions\r\n")?;
        let mut answer = [0; 4];
        socket.read_exact(&mut answer).context("no reply to watch")?;
        Ok((answer == *b"OK\r\n").then_some(process))
    };
    let (socket, process) = serving::connect(common.plan, address, ask)?;
    socket.set_read_timeout(None)?;
    let Some(process) = process else { return Ok(None) };
    lock(&common.ledger).watched = Watched { process, evictions: 0 };
    Ok(Some(socket))
}

/// Returns the name of the evicted item in this line. The names used here need no escapes.
fn evicted(line: &[u8]) -> Option<&[u8]> {
    const BEFORE: &[u8] = b" type=eviction key=";
    let rest = &line[memchr::memmem::find(line, BEFORE)? + BEFORE.len()..];
    rest.split(|byte| *byte == b' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eviction_excuses_one_item_of_its_name() {
        let mut ledger = Ledger::default();
        ledger.evicted(b"a");
        assert_eq!(ledger.miss(b"a"), 0);
        assert_eq!(ledger.miss(b"a"), 1);
        ledger.note(b"a".to_vec(), "why".into());
        ledger.evicted(b"b");
        assert_eq!((ledger.unexcused(2, 0), ledger.suspicion()), (1, "why".into()));
        assert_eq!(ledger.unexcused(1, 0), 0, "by then nothing was missing that was not evicted");
        ledger.flushed();
        assert_eq!(ledger.miss(b"b"), 2, "another b than the one that was evicted");
        ledger.evicted(b"a");
        ledger.evicted(b"b");
        assert_eq!((ledger.unexcused(3, 0), ledger.suspicion()), (0, String::new()));
    }

    #[test]
    fn lines_of_evictions_tell_names() {
        let line = b"ts=1.000002 gid=3 type=eviction key=soak1-2-0 fetch=no ttl=-1 la=0 clsid=1 size=50\n";
        assert_eq!(evicted(line), Some(&b"soak1-2-0"[..]));
        assert_eq!(evicted(b"skipped=3\n"), None);
    }
}
