//! The commands of the classic protocol, built from the basic commands of [`Cache`].

use crate::cache::Cache;
use crate::cache::api::{Change, Content, CountError, Mode, Present, Store};
use crate::cache::arithmetic::{Direction, apply, parse};
use crate::expiry::Expiry;
use crate::item::hit::{Hit, Lookup};
use crate::item::large_value::ReservedValue;
use crate::item::new::{New, Value};
use crate::item::status::Marks;

impl Cache {
    /// Stores `content` under `key` as `mode` says.
    pub fn store(&self, mode: Mode, key: &[u8], content: Content<'_>) -> Store {
        let Content { flags, exptime, value } = content;
        match mode {
            Mode::Append => self.join(key, Value::Appended(value)),
            Mode::Prepend => self.join(key, Value::Prepended(value)),
            _ => self.store_whole(mode, key, flags, exptime, Value::Whole(value)),
        }
    }

    /// Like [`store`](Cache::store), for a value that was received into [reserved](Cache::reserve)
    /// memory. Does not append or prepend.
    pub fn store_reserved(&self, mode: Mode, key: &[u8], flags: u32, exptime: i32, value: &ReservedValue) -> Store {
        match mode {
            Mode::Append | Mode::Prepend => self.store(mode, key, Content { flags, exptime, value: value.value() }),
            _ => self.store_whole(mode, key, flags, exptime, Value::Reserved(value)),
        }
    }

    /// Increments or decrements the number stored under `key`, and returns the result. The item
    /// keeps its flags and expiry. If the result fits, the text keeps its length and is padded with
    /// spaces on the right.
    ///
    /// # Errors
    /// When there is no item, it holds no number, or there is no room for the new one.
    pub fn count(&self, key: &[u8], direction: Direction, delta: u64) -> Result<u64, CountError> {
        let step = |present: Present<'_>| {
            let Some(item) = present.item else { return (Change::Keep, Err(CountError::NotFound)) };
            let Some(number) = parse(item.value) else { return (Change::Keep, Err(CountError::NotANumber)) };
            let number = apply(direction, number, delta);
            (Change::Put(item.counted(number)), Ok(number))
        };
        self.update(key, step, |_| ())?
    }

    /// Looks up `key`. If there is an item, sets its expiry and passes it to `visit`. An item that
    /// never expires may have to be copied for that. If there is no room for the copy, the item is
    /// removed.
    pub fn get_and_touch(&self, key: &[u8], exptime: i32, visit: impl FnOnce(Hit<'_>)) -> Lookup {
        let touch = |present: Present<'_>| {
            let expiry = Some(Expiry::from_protocol(exptime, present.now));
            (Change::Mark { expiry, add: Marks::FETCHED, is_access: true }, present.lookup)
        };
        self.update(key, touch, visit).unwrap_or_else(|_| {
            self.delete(key);
            Lookup::Miss
        })
    }

    /// Sets the expiry of the item under `key`, as [`get_and_touch`](Self::get_and_touch) does.
    /// Returns false if there is none.
    pub fn touch(&self, key: &[u8], exptime: i32) -> bool {
        self.get_and_touch(key, exptime, |_| ()) == Lookup::Hit
    }

    /// Removes the item under `key`. Returns false if there is none.
    pub fn delete(&self, key: &[u8]) -> bool {
        let remove = |present: Present<'_>| (Change::Remove, present.item.is_some());
        self.update(key, remove, |_| ()).unwrap_or(false)
    }

    fn store_whole(&self, mode: Mode, key: &[u8], flags: u32, exptime: i32, value: Value<'_>) -> Store {
        let new = New { expiry: Expiry::from_protocol(exptime, self.now()), ..New::plain(flags, value) };
        let permit = |present: Present<'_>| match (mode, present.item) {
            (Mode::Add, Some(_)) | (Mode::Replace, None) => (false, Store::NotStored),
            (Mode::Cas(_), None) => (false, Store::NotFound),
            (Mode::Cas(cas), Some(item)) if item.cas() != cas => (false, Store::Exists),
            _ => (true, Store::Stored),
        };
        self.put(key, &new, permit, |_| ()).unwrap_or_else(|_| {
            if mode == Mode::Set {
                self.delete(key);
            }
            Store::OutOfMemory
        })
    }

    fn join(&self, key: &[u8], addition: Value<'_>) -> Store {
        let limit = self.max_item();
        let grow = |present: Present<'_>| match present.item {
            Some(item) if item.key.len() + item.value.len() + addition.len() <= limit => {
                (Change::Put(item.joined(addition)), Store::Stored)
            }
            _ => (Change::Keep, Store::NotStored),
        };
        self.update(key, grow, |_| ()).unwrap_or(Store::OutOfMemory)
    }
}
