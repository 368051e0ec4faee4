//! The library's table. A reader that stays in its section stops the resizer where it waits for
//! readers.

use std::ptr::NonNull;
use std::thread;

use relativist_table::{Guard, Hash, Link, Resizing, Table, read};

use crate::film::{Chains, Film, Plan};

/// The high three bits of an entry's hash are its key; the high two of them its bucket of four.
const KEYS: [u64; 6] = [0b000, 0b001, 0b011, 0b100, 0b110, 0b111];

const PLAN: Plan = Plan {
    buckets: 4,
    bucket: |key| (key >> 1) as usize,
    entrance: |reader, buckets| reader * buckets / 4,
    // Chains are sorted, so a reader that reaches an entry of a later bucket has come to the end.
    passes: |reader, bucket| bucket <= reader,
    label: |key| format!("{key:03b}"),
};

pub fn shrink() -> Film {
    let captions = &[
        "Four buckets by the first two bits of the hash; chains are sorted.",
        "Ends are linked to beginnings, and the array of two buckets, by the first bit, is published. A reader that entered by the old \
         array finds its entries where they were.",
        "All readers that entered by the old array have left, and it is freed.",
    ];
    film("The sorted table shrinks", captions, 4, 2)
}

pub fn grow() -> Film {
    let captions = &[
        "Two buckets by the first bit of the hash. A reader that looks for 11 passes 10 (grey). One that looks for 10 ends at the first 11.",
        "The array of four buckets, by the first two bits, is published. A reader that enters by it needs no \
         link between buckets. A reader that entered by the old array does.",
        "The readers of the old array have left, after one wait. The links between buckets are cut, in any order, and the old array is freed.",
    ];
    film("The sorted table grows", captions, 2, 4)
}

fn film(title: &'static str, captions: &'static [&'static str], from: usize, to: usize) -> Film {
    let table = Table::new(from, Resizing::Manual, dispose).expect("memory for a few buckets");
    KEYS.iter().for_each(|&key| insert(&table, key));
    let mut film = Film::new(title, PLAN, captions);
    thread::scope(|scope| {
        let reader = read();
        film.show(chains(&table, &reader));
        let resizer = scope.spawn(|| table.resize_to(to));
        let published = loop {
            let chains = chains(&table, &reader);
            if chains.len() == to {
                break chains;
            }
            thread::yield_now();
        };
        film.show(published);
        drop(reader);
        resizer.join().expect("no panic").expect("memory for a few buckets");
        film.show_after_wait(chains(&table, &read()));
    });
    film.end()
}

#[repr(C)]
struct Entry {
    link: Link,
    key: u64,
}

fn insert(table: &Table, key: u64) {
    let hash = (0..).map(Hash::new).find(|hash| hash.get() >> 61 == key).expect("multiplication spreads numbers");
    let entry = NonNull::from(Box::leak(Box::new(Entry { link: Link::new(hash), key })));
    // SAFETY: a fresh object, which `dispose` can free.
    unsafe { table.insert(entry.cast(), &read()) };
}

unsafe fn dispose(link: NonNull<Link>) {
    // SAFETY: all links of these tables are in boxed entries.
    drop(unsafe { Box::from_raw(link.cast::<Entry>().as_ptr()) });
}

fn chains(table: &Table, guard: &Guard) -> Chains {
    // SAFETY: all links of these tables are in entries, and alive as long as the guard.
    let key = |link: NonNull<Link>| unsafe { link.cast::<Entry>().as_ref() }.key;
    table.chains(guard).into_iter().map(|chain| chain.into_iter().map(key).collect()).collect()
}
