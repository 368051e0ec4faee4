//! Recent failed logins by address. After too many failures, logins from that address are refused
//! as long as they keep coming.
//!
//! The table has a fixed size, so attackers with many addresses cost no memory. They can displace
//! each other from it, and others: then a client that has failed gets some more attempts. A client
//! that never failed is refused only if another client from the same address range did.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Failures in a row after which logins from there are refused.
const BURST: u32 = 32;

/// Seconds after which one failure is forgotten.
const FORGOTTEN_AFTER: u32 = 4;

const SETS: usize = 1024;

/// Places in a set, which is all that an address can be in.
const WAYS: usize = 4;

/// Where logins come from, as far as failures are counted together.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Origin(u128);

impl Origin {
    /// All clients of the Unix socket.
    pub const LOCAL: Origin = Origin(u128::MAX);

    /// An address of version 4; of version 6 the network of which one customer has at least one, a
    /// /64, or within one organization the address.
    pub fn of(address: IpAddr) -> Origin {
        match address.to_canonical() {
            IpAddr::V4(address) => Origin(address.to_ipv6_mapped().to_bits()),
            IpAddr::V6(address)
                if address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local() =>
            {
                Origin(address.to_bits())
            }
            IpAddr::V6(address) => Origin(address.to_bits() & !u128::from(u64::MAX)),
        }
    }
}

/// The failures of one origin.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    origin: Origin,
    /// The second in which the last is forgotten.
    until: u32,
}

/// Failures by origin.
#[derive(Debug)]
pub struct Failures {
    hasher: RandomState,
    sets: Mutex<Box<[[Entry; WAYS]]>>,
}

impl Default for Failures {
    /// None.
    fn default() -> Failures {
        Failures { hasher: RandomState::new(), sets: Mutex::new(vec![[Entry::default(); WAYS]; SETS].into()) }
    }
}

impl Failures {
    /// Notes one at `now`. True if further logins are refused because of it, and were not before.
    pub fn note(&self, origin: Origin, now: u32) -> bool {
        let mut sets = self.lock();
        let set = &mut sets[self.set_of(origin)];
        let is_it = |entry: &Entry| entry.origin == origin;
        // Otherwise the entry goes that has the fewest failures.
        let place = set.iter().position(is_it).unwrap_or_else(|| {
            let (place, _) = set.iter().enumerate().min_by_key(|(_, entry)| entry.until).expect("a set has places");
            set[place] = Entry { origin, until: 0 };
            place
        });
        let entry = &mut set[place];
        let was_many = is_many(entry.until, now);
        entry.until = entry.until.max(now) + FORGOTTEN_AFTER;
        !was_many && is_many(entry.until, now)
    }

    /// Whether logins from there are refused at `now`.
    pub fn are_many(&self, origin: Origin, now: u32) -> bool {
        self.lock()[self.set_of(origin)].iter().any(|entry| entry.origin == origin && is_many(entry.until, now))
    }

    fn set_of(&self, origin: Origin) -> usize {
        self.hasher.hash_one(origin) as usize % SETS
    }

    fn lock(&self) -> MutexGuard<'_, Box<[[Entry; WAYS]]>> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_many(until: u32, now: u32) -> bool {
    until.saturating_sub(now) > (BURST - 1) * FORGOTTEN_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        Origin::of(text.parse().unwrap())
    }

    #[test]
    fn failures_add_up_and_are_forgotten_one_by_one() {
        let (failures, here) = (Failures::default(), origin("192.0.2.1"));
        for n in 1..=BURST {
            assert!(!failures.are_many(here, 1000));
            assert_eq!(failures.note(here, 1000), n == BURST);
        }
        assert!(failures.are_many(here, 1000) && failures.are_many(here, 1000 + FORGOTTEN_AFTER - 1));
        assert!(!failures.are_many(here, 1000 + FORGOTTEN_AFTER), "one is forgotten");
        assert!(failures.note(here, 1000 + FORGOTTEN_AFTER), "and one more is one too many");
        assert!(!failures.are_many(origin("192.0.2.2"), 1000) && !failures.are_many(Origin::LOCAL, 1000));
        assert!(!failures.note(here, 1000 + BURST * FORGOTTEN_AFTER + 4));
    }

    #[test]
    fn a_network_of_version_6_is_one_origin() {
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::ffff:1:2:3"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        for (one, other) in [("fe80::1", "fe80::2"), ("fd00::1", "fd00::2"), ("::1", "::2")] {
            assert_ne!(origin(one), origin(other));
        }
        assert_eq!(origin("::ffff:192.0.2.1"), origin("192.0.2.1"));
        assert_ne!(origin("192.0.2.1"), origin("192.0.2.2"));
    }

    #[test]
    fn many_origins_displace_those_with_few_failures() {
        let (failures, stubborn) = (Failures::default(), origin("192.0.2.1"));
        (0..BURST).for_each(|_| _ = failures.note(stubborn, 1000));
        for n in 0..100_000 {
            failures.note(Origin(n << 64), 1000);
        }
        assert!(failures.are_many(stubborn, 1000));
    }
}
