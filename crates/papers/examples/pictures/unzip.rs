//! The paper's table: the resizer stops at each of its waits for readers.

use std::hash::{BuildHasherDefault, Hasher};

use relativist_papers::tables::Table;
use relativist_papers::tables::unzip::{Unzip, Wait};

use crate::film::{Film, Plan};

/// Numbers are their own hashes, so even ones go into one bucket, and odd ones into the other.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

const PLAN: Plan = Plan {
    buckets: 2,
    bucket: |key| (key % 2) as usize,
    entrance: |reader, buckets| reader % buckets,
    passes: |_, _| true,
    label: |key| key.to_string(),
};

pub fn shrink() -> Film {
    let captions = &[
        "Two buckets, of even and of odd numbers.",
        "The end of the even chain leads to the odd one; the array of one bucket is published. Readers that entered by the old array \
         may be anywhere. At a grey entry there may be even and odd readers.",
        "All readers that entered by the old array have left, and it can be freed.",
    ];
    film("The paper's table shrinks", captions, 2, 1)
}

pub fn grow() -> Film {
    let captions = &[
        "One bucket. A reader that looks for an odd number passes even ones, and the other way round.",
        "The array of two buckets is published. Each leads to its first entry: the chains are zipped. Readers that entered by the \
         old array may be anywhere.",
        "These readers have left. Only odd readers reach 1, so its link may change.",
        "1 leads past the even numbers. Odd readers may still be at these.",
        "These readers have left. Only even readers reach 2 and 4.",
        "4 is the end of its chain now. Even readers may still be at 3.",
        "These readers have left. The chains are separate.",
    ];
    film("The paper's table grows", captions, 1, 2)
}

fn film(title: &'static str, captions: &'static [&'static str], from: usize, to: usize) -> Film {
    let table = Unzip::<BuildHasherDefault<Identity>>::with_buckets(1);
    table.resize_to_watched(from, |_| ());
    // The newest comes first.
    for key in [3, 4, 2, 1] {
        assert!(table.insert(key, key));
    }
    let mut film = Film::new(title, PLAN, captions);
    film.show(table.chains());
    table.resize_to_watched(to, |wait| match wait {
        Wait::Begins => film.show(table.chains()),
        Wait::Ended => film.show_after_wait(table.chains()),
    });
    film.end()
}
