//! evmap: two maps, one for readers and one for the writer.
//!
//! Each reading thread has its own handle, as evmap requires. evmap has only one writer. Here all
//! threads share it through a mutex, and it publishes after every update, so that updates are
//! visible when they return, as in the other tables. evmap is not designed for that, so its updates
//! are slow here.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use evmap::Options;
use evmap::handles::{ReadHandle, WriteHandle};
use thread_local::ThreadLocal;

use super::hashers::Foldhash;
use super::{Lookup, Table, View};
use crate::tables::entries::{Key, Value};

/// An evmap with a read handle per thread, and one writer for all threads.
pub struct Evmap<K: Key, V: Value> {
    readers: ThreadLocal<ReadHandle<K, V, (), Foldhash>>,
    writer: Mutex<WriteHandle<K, V, (), Foldhash>>,
}

impl<K: Key, V: Value> fmt::Debug for Evmap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evmap").finish_non_exhaustive()
    }
}

/// A thread's read handle, and the table.
#[derive(Debug)]
pub struct Session<'t, K: Key, V: Value> {
    reader: &'t ReadHandle<K, V, (), Foldhash>,
    table: &'t Evmap<K, V>,
}

impl<K: Key, V: Value> Evmap<K, V> {
    fn writer(&self) -> MutexGuard<'_, WriteHandle<K, V, (), Foldhash>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Key, V: Value> Lookup for Evmap<K, V> {
    const NAME: &'static str = "evmap";
    type Key = K;
    type Value = V;
    type Session<'t> = Session<'t, K, V>;

    fn session(&self) -> Self::Session<'_> {
        Session { reader: self.readers.get_or(|| ReadHandle::clone(&self.writer())), table: self }
    }

    #[inline(always)]
    fn get(session: &mut Self::Session<'_>, key: &K::View) -> Option<V> {
        session.reader.get_one(key).map(|value| *value)
    }
}

impl<K: Key, V: Value> Table for Evmap<K, V> {
    fn with_capacity(capacity: usize) -> Self {
        let options = Options::default().with_capacity(capacity);
        // SAFETY: keys and values are integers and boxed bytes, whose `Hash`, `Eq` and `Clone` are
        // deterministic. So is the hasher, foldhash with a fixed seed.
        let (mut writer, _) = unsafe { options.with_hasher(Foldhash::default()).assert_stable() };
        writer.publish();
        Self { readers: ThreadLocal::new(), writer: Mutex::new(writer) }
    }

    #[inline(always)]
    fn try_insert(session: &mut Self::Session<'_>, key: K, value: V) -> bool {
        let mut writer = session.table.writer();
        let absent = !writer.contains_key(key.view());
        if absent {
            writer.update(key, value).publish();
        }
        absent
    }

    #[inline(always)]
    fn replace(session: &mut Self::Session<'_>, key: K, value: V) -> bool {
        let mut writer = session.table.writer();
        let present = writer.contains_key(key.view());
        if present {
            writer.update(key, value).publish();
        }
        present
    }

    #[inline(always)]
    fn remove(session: &mut Self::Session<'_>, key: &View<Self>) -> bool {
        let mut writer = session.table.writer();
        let present = writer.contains_key(key);
        if present {
            writer.remove_entry(K::own(key)).publish();
        }
        present
    }

    fn clear(session: &mut Self::Session<'_>) {
        session.table.writer().purge().publish();
    }

    #[inline(always)]
    fn for_each(session: &mut Self::Session<'_>, mut visit: impl FnMut(V)) {
        if let Some(map) = session.reader.enter() {
            map.iter().for_each(|(_, values)| values.iter().for_each(|value| visit(*value)));
        }
    }
}
