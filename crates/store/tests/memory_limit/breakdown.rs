//! Where the memory goes: the parts add up to what is mapped.

use super::{NOW, cache, fill, key, set, set_until};
use relativist_store::{Cache, Content, ITEM_OVERHEAD, ItemShape, LARGE_VALUE, MemoryUse, Mode, Store};
use std::collections::HashMap;

const LIMIT: usize = 8 << 20;

/// A small generator (xorshift), the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as usize % bound
    }
}

/// Returns the parts, after checking that they add up to what is mapped, and those of items to the
/// items' bytes.
#[track_caller]
fn checked(cache: &Cache) -> MemoryUse {
    // The table may be resized meanwhile, but no command runs.
    let (memory, usage) = (cache.memory_use(), cache.usage());
    assert_eq!(memory.keys + memory.values + memory.item_headers + memory.alignment, usage.item_bytes, "{memory:?}");
    assert_eq!(memory.total() - memory.table, usage.mapped_bytes, "{memory:?}");
    assert!(memory.table >= 8 * 1024 && memory.table.is_multiple_of(8 * 1024), "{memory:?}");
    memory
}

/// Like [`checked`], when no connection uses memory of its own. This is the only part that is
/// computed from the others.
#[track_caller]
fn checked_without_transit(cache: &Cache) -> MemoryUse {
    let memory = checked(cache);
    assert_eq!(memory.in_transit, 0, "{memory:?}");
    memory
}

/// Stores, overwrites, deletes and touches random items, and lets time pass. `keys` is the number
/// of different keys.
fn change_at_random(cache: (Cache, std::sync::Arc<relativist_store::Clock>), keys: usize, steps: usize) -> Cache {
    let ((cache, clock), mut random) = (cache, Random(1));
    for step in 0..steps {
        let name = key(random.below(keys));
        let exptime = [0, 0, 5, 500][random.below(4)];
        match random.below(100) {
            0 => {
                _ = cache.store(
                    Mode::Set,
                    name.as_bytes(),
                    Content { flags: 0, exptime, value: &vec![b'l'; random.below(300_000)] },
                )
            }
            1..60 => {
                let flags = [0, u32::MAX][random.below(2)];
                let content = Content { flags, exptime, value: &vec![b'v'; random.below(500)] };
                cache.store(Mode::Set, name.as_bytes(), content);
            }
            60..75 => _ = cache.delete(name.as_bytes()),
            75..80 => _ = cache.touch(name.as_bytes(), exptime),
            80..85 => _ = cache.store(Mode::Append, name.as_bytes(), Content { flags: 0, exptime, value: b"more" }),
            _ => _ = cache.get(name.as_bytes(), |_| ()),
        }
        if step % 1000 == 0 {
            checked_without_transit(&cache);
            clock.set(clock.now() + 1);
            cache.maintain();
            checked_without_transit(&cache);
        }
    }
    cache
}

#[test]
fn the_parts_add_up_to_what_is_mapped() {
    // Without eviction: the table grows, and stores fail when the cache is full.
    let (cache_of_all, clock) = cache(LIMIT);
    let cache_of_all = change_at_random((cache_of_all.without_eviction(), clock), 20_000, 30_000);
    assert!(cache_of_all.usage().items > 4096, "the table has grown");
    let evicting = change_at_random(cache(LIMIT), 200_000, 40_000);
    assert!(evicting.usage().sweeps.evictions > 100);
    let before = checked_without_transit(&evicting);
    assert!(before.block_headers > 0 && before.freed > 0 && before.unused > 0, "{before:?}");
    evicting.flush(0);
    assert_eq!(checked_without_transit(&evicting), before, "flushed items take memory until they are swept");
    evicting.maintain();
    let after = checked_without_transit(&evicting);
    let parts = [after.keys, after.values, after.item_headers, after.freed, after.block_headers, after.unused];
    assert_eq!(parts, [0; 6], "{after:?}");
    evicting.set_limit(LIMIT / 2);
    evicting.maintain();
    fill(&evicting, &[b'v'; 100]);
    checked_without_transit(&evicting);
}

/// Each part, computed from what was stored.
#[test]
fn each_part_is_what_its_name_says() {
    let (cache, clock) = cache(LIMIT);
    let nothing = checked_without_transit(&cache);
    assert_eq!(nothing.total(), nothing.table, "nothing is mapped for items");
    let values: HashMap<String, usize> = (0..1000).map(|index| (key(index), index % 90)).collect();
    for (key, length) in &values {
        set_until(&cache, key, &vec![b'v'; *length], 100);
    }
    let stored = checked_without_transit(&cache);
    assert_eq!(stored.keys, values.keys().map(String::len).sum::<usize>());
    assert_eq!(stored.values, values.values().sum::<usize>());
    assert!(stored.item_headers >= values.len() * ITEM_OVERHEAD && stored.alignment < values.len() * 4);
    assert_eq!((stored.freed, stored.free, stored.waiting), (0, 0, 0));
    let bytes = cache.usage().item_bytes;
    (0..10).for_each(|index| assert!(cache.delete(key(index).as_bytes())));
    assert_eq!(checked_without_transit(&cache).freed, bytes - cache.usage().item_bytes);
    clock.set(NOW + 100);
    cache.maintain();
    let expired = checked_without_transit(&cache);
    assert_eq!((expired.keys, expired.freed, expired.unused), (0, 0, 0));
    assert!(expired.free + expired.waiting > 0, "{expired:?}");
}

#[test]
fn values_that_connections_use_are_in_transit() {
    let (cache, _) = cache(LIMIT);
    let value = vec![b'v'; 2 * LARGE_VALUE];
    set(&cache, "sent", &value);
    let mut pin = None;
    cache.get(b"sent", |hit| pin = hit.pin());
    assert!(pin.is_some());
    checked_without_transit(&cache);
    cache.delete(b"sent");
    let whole = value.len()..value.len() + LARGE_VALUE;
    assert!(whole.contains(&checked(&cache).in_transit), "removed, but still being sent");
    drop(pin);
    cache.maintain();
    checked_without_transit(&cache);

    let shape = ItemShape { key_len: 8, value_len: value.len(), has_flags: false, has_cas: false };
    let mut reserved = cache.reserve(&shape).unwrap();
    assert!(whole.contains(&checked(&cache).in_transit), "being received");
    reserved.take(&value);
    assert_eq!(cache.store_reserved(Mode::Set, b"received", 0, 0, &reserved), Store::Stored);
    let memory = checked_without_transit(&cache);
    assert_eq!((memory.keys, memory.values), (8, value.len()));
}
