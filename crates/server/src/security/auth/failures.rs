//! Recent failed logins by address. After too many failures, logins from that address are refused
//! as long as they keep coming.
//!
//! The table has a fixed size, so attackers with many addresses cost no memory. They can displace
//! entries, including those of other clients: a client whose entry is lost gets some more attempts.
//! A client that never failed is refused only if another client from the same address range did.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of failures in a row after which logins from the same origin are refused.
const BURST: u32 = 32;

/// Seconds after which one failure is forgotten.
const FORGOTTEN_AFTER: u32 = 4;

const SETS: usize = 1024;

/// The number of entries in a set. The entry of an address is always in the same set.
const WAYS: usize = 4;

/// The origin of logins. Failures of the same origin are counted together.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Origin(u128);

impl Origin {
    /// All clients of the Unix socket.
    pub const LOCAL: Origin = Origin(u128::MAX);

    /// Returns the origin for an address. For IPv4 it is the address. For IPv6 it is the /64
    /// network, because each customer has at least one; within an organization it is the address.
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
    /// The second in which the last failure is forgotten.
    until: u32,
}

/// Failures by origin.
#[derive(Debug)]
pub struct Failures {
    hasher: RandomState,
    sets: Mutex<Box<[[Entry; WAYS]]>>,
}

impl Default for Failures {
    /// An empty table.
    fn default() -> Failures {
        Failures { hasher: RandomState::new(), sets: Mutex::new(vec![[Entry::default(); WAYS]; SETS].into()) }
    }
}

impl Failures {
    /// Records a failure at `now`. Returns whether it is the one from which on logins are refused.
    pub fn note(&self, origin: Origin, now: u32) -> bool {
        let mut sets = self.lock();
        let set = &mut sets[self.set_of(origin)];
        let is_it = |entry: &Entry| entry.origin == origin;
        // Otherwise replace the entry with the fewest failures.
        let place = set.iter().position(is_it).unwrap_or_else(|| {
            let (place, _) = set.iter().enumerate().min_by_key(|(_, entry)| entry.until).expect("a set has entries");
            set[place] = Entry { origin, until: 0 };
            place
        });
        let entry = &mut set[place];
        let was_many = is_many(entry.until, now);
        entry.until = entry.until.max(now) + FORGOTTEN_AFTER;
        !was_many && is_many(entry.until, now)
    }

    /// Whether logins from `origin` are refused at `now`.
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
    fn failures_add_up_and_expire_one_by_one() {
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
        assert_eq!(size_of::<[[Entry; WAYS]; SETS]>(), 128 << 10);
        let (failures, stubborn) = (Failures::default(), origin("192.0.2.1"));
        (0..BURST).for_each(|_| _ = failures.note(stubborn, 1000));
        for n in 0..100_000 {
            failures.note(Origin(n << 64), 1000);
        }
        assert!(failures.are_many(stubborn, 1000));
    }
}
