//! A link shortener: short codes for addresses, with owners, visits, expiry, and a limit of new
//! links for each client.

use std::collections::HashSet;

use crate::harness::hashers::Foldhash;
use relativist::FlatLockMap;
use relativist::lock_map::Entry;

type Map<K, V> = FlatLockMap<K, V, Foldhash>;

/// Seconds since the start.
pub type Time = u64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub address: String,
    pub owner: String,
    pub expires: Time,
    pub visits: u64,
    pub last_visit: Time,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// The code belongs to another link.
    Taken,
    /// The client has made too many links. It may try again in so many seconds.
    TooMany(Time),
}

/// What a client may still do: one link per 10 seconds, and up to 20 at once.
struct Allowance {
    left: u64,
    refilled: Time,
}

impl Allowance {
    const MAX: u64 = 20;
    const SECONDS: Time = 10;

    fn new(now: Time) -> Self {
        Self { left: Self::MAX, refilled: now }
    }

    fn take(&mut self, now: Time) -> Result<(), Refused> {
        let earned = (now - self.refilled) / Self::SECONDS;
        self.left = (self.left + earned).min(Self::MAX);
        self.refilled += earned * Self::SECONDS;
        if self.left == 0 {
            return Err(Refused::TooMany(self.refilled + Self::SECONDS - now));
        }
        self.left -= 1;
        Ok(())
    }
}

#[derive(Default)]
pub struct Shortener {
    links: Map<String, Link>,
    /// The codes of each owner who has some.
    owned: Map<String, HashSet<String>>,
    clients: Map<u32, Allowance>,
}

impl Shortener {
    /// Makes a link, unless the code is taken.
    pub fn shorten(&self, client: u32, owner: &str, code: &str, address: &str, now: Time) -> Result<(), Refused> {
        self.clients.entry(client).or_insert_with(|| Allowance::new(now)).take(now)?;
        match self.links.entry_ref(code) {
            Entry::Occupied(link) if link.get().expires > now => return Err(Refused::Taken),
            Entry::Occupied(mut link) => {
                let old = link.insert(Link::new(owner, address, now));
                self.disown(&old.owner, code);
            }
            Entry::Vacant(place) => {
                place.insert(Link::new(owner, address, now));
            }
        }
        self.owned.entry_ref(owner).or_default().insert(code.to_owned());
        Ok(())
    }

    /// Returns where a link leads, and counts the visit. A visit keeps the link for another day.
    pub fn follow(&self, code: &str, now: Time) -> Option<String> {
        let mut link = self.links.lock(code)?;
        if link.expires <= now {
            return None;
        }
        link.visits += 1;
        link.last_visit = now;
        link.expires = link.expires.max(now + 86_400);
        Some(link.address.clone())
    }

    /// Returns a link, without visiting it.
    pub fn get(&self, code: &str) -> Option<Link> {
        self.links.get_cloned(code)
    }

    /// Changes where a link leads, if this is its owner.
    pub fn redirect(&self, owner: &str, code: &str, address: &str) -> bool {
        match self.links.lock(code) {
            Some(mut link) if link.owner == owner => {
                link.address = address.to_owned();
                true
            }
            _ => false,
        }
    }

    /// Removes a link, if this is its owner.
    pub fn delete(&self, owner: &str, code: &str) -> bool {
        let is_removed = self.links.remove_if(code, |_, link| link.owner == owner).is_some();
        if is_removed {
            self.disown(owner, code);
        }
        is_removed
    }

    /// Returns the codes of an owner, in order.
    pub fn codes(&self, owner: &str) -> Vec<String> {
        let mut codes: Vec<_> = self.owned.lock(owner).map(|codes| codes.iter().cloned().collect()).unwrap_or_default();
        codes.sort();
        codes
    }

    /// Removes the links that have expired, and the clients that may do everything. Returns the
    /// number of links.
    pub fn sweep(&self, now: Time) -> usize {
        let mut expired = Vec::new();
        self.links.retain(|code, link| {
            if link.expires <= now {
                expired.push((link.owner.clone(), code.clone()));
            }
            link.expires > now
        });
        expired.iter().for_each(|(owner, code)| self.disown(owner, code));
        self.clients.retain(|_, allowance| now - allowance.refilled < Allowance::MAX * Allowance::SECONDS);
        expired.len()
    }

    /// Returns the codes that were visited most often.
    pub fn top(&self, count: usize) -> Vec<(String, u64)> {
        let mut all: Vec<_> = self.links.iter().map(|link| (link.key().clone(), link.visits)).collect();
        all.sort_by(|(one, visits), (other, others)| others.cmp(visits).then(one.cmp(other)));
        all.truncate(count);
        all
    }

    pub fn len(&self) -> (usize, usize) {
        (self.links.len(), self.owned.len())
    }

    /// Takes a code from its owner, who goes with the last one.
    fn disown(&self, owner: &str, code: &str) {
        if let Entry::Occupied(mut codes) = self.owned.entry_ref(owner) {
            codes.get_mut().remove(code);
            if codes.get().is_empty() {
                codes.remove();
            }
        }
    }
}

impl Link {
    fn new(owner: &str, address: &str, now: Time) -> Self {
        let (owner, address) = (owner.to_owned(), address.to_owned());
        Self { address, owner, expires: now + 7 * 86_400, visits: 0, last_visit: now }
    }
}
