//! What servers answer, whatever protocol they say it in.

use std::fmt;

/// The answer that concerns one key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Done(Told),
    NotFound,
    NotStored,
    Exists,
    NotNumeric,
    Refused(Refusal),
    /// None was wanted, whatever happened.
    Unspoken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    TooLarge,
    OutOfMemory,
    /// Out of memory when a part of the value had arrived.
    Midway,
}

/// What is told of an item.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Told {
    pub(super) value: Option<Vec<u8>>,
    pub(super) number: Option<u64>,
    pub(super) flags: Option<u32>,
    pub(super) unique: Option<u64>,
    /// Seconds until it ends; none for never.
    pub(super) ttl: Option<Option<u32>>,
    pub(super) size: Option<u64>,
    pub(super) was_fetched: Option<bool>,
    pub(super) facts: Option<Facts>,
}

/// What the meta protocol tells unasked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Who is told this is to renew the item.
    pub(super) is_won: bool,
    pub(super) is_stale: bool,
    /// Somebody else is to renew it.
    pub(super) is_claimed: bool,
}

impl fmt::Debug for Told {
    /// What is told and nothing else. Of values how long they are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = f.debug_struct("Told");
        let Self { value, number, flags, unique, ttl, size, was_fetched, facts } = self;
        let length = value.as_ref().map(Vec::len);
        let fields: [(&str, Option<&dyn fmt::Debug>); 8] = [
            ("value_length", length.as_ref().map(|x| x as _)),
            ("number", number.as_ref().map(|x| x as _)),
            ("flags", flags.as_ref().map(|x| x as _)),
            ("unique", unique.as_ref().map(|x| x as _)),
            ("ttl", ttl.as_ref().map(|x| x as _)),
            ("size", size.as_ref().map(|x| x as _)),
            ("was_fetched", was_fetched.as_ref().map(|x| x as _)),
            ("facts", facts.as_ref().map(|x| x as _)),
        ];
        for (name, field) in fields {
            if let Some(field) = field {
                told.field(name, field);
            }
        }
        told.finish()
    }
}

/// What the beginning of the input is to the oldest request.
#[derive(Debug, PartialEq)]
pub(super) enum Parsed {
    /// Its answers, one per key, and their bytes.
    Whole(Vec<Reply>, usize),
    /// The beginning of an answer that needs so many bytes at least.
    Part(usize),
    /// The answer to a later one: this one stays without.
    Silent,
}
