//! The states of a table during a resize, and the entries at which readers may have been.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;

/// The keys to which each bucket's head leads, in the order of the chains.
pub type Chains = Vec<Vec<u64>>;

/// How a table takes buckets from keys. A reader is identified by the bucket of the larger array in
/// which it searches.
pub struct Plan {
    /// Buckets of the larger array.
    pub buckets: usize,
    /// Returns the bucket of a key in the larger array.
    pub bucket: fn(u64) -> usize,
    /// Returns the bucket by which a reader enters an array of this size.
    pub entrance: fn(reader: usize, buckets: usize) -> usize,
    /// Returns whether a reader continues at an entry of this bucket.
    pub passes: fn(reader: usize, bucket: usize) -> bool,
    pub label: fn(u64) -> String,
}

/// One moment of a resize.
pub struct Moment {
    pub caption: &'static str,
    /// What new readers find.
    pub chains: Chains,
    /// The other array, while readers that entered by it may be inside: the first entry of each
    /// bucket.
    pub left_behind: Option<Vec<Option<u64>>>,
    /// For each reader, the entries at which it may be.
    pub readers: Vec<BTreeSet<u64>>,
}

/// The states of a table from the beginning of a resize to its end.
pub struct Film {
    pub title: &'static str,
    pub plan: Plan,
    pub moments: Vec<Moment>,
    /// The captions that are left.
    captions: std::slice::Iter<'static, &'static str>,
}

impl Film {
    pub fn new(title: &'static str, plan: Plan, captions: &'static [&'static str]) -> Self {
        Self { title, plan, moments: Vec::new(), captions: captions.iter() }
    }

    /// Records the table as it is now, while earlier readers may be inside.
    ///
    /// # Panics
    ///
    /// Panics if one of them, or a new one, could miss an entry.
    pub fn show(&mut self, chains: Chains) {
        let last = self.moments.last();
        let left_behind = last.and_then(|last| {
            let is_replaced = last.chains.len() != chains.len();
            if is_replaced { Some(heads(&last.chains)) } else { last.left_behind.clone() }
        });
        let readers = (0..self.plan.buckets).map(|reader| self.positions(reader, &chains, last)).collect();
        self.push(chains, left_behind, readers);
    }

    /// Records the table as it is now, when all earlier readers have left.
    ///
    /// # Panics
    ///
    /// See [`Film::show`].
    pub fn show_after_wait(&mut self, chains: Chains) {
        let readers = (0..self.plan.buckets).map(|reader| self.positions(reader, &chains, None)).collect();
        self.push(chains, None, readers);
    }

    /// Ends the film. All captions must have been used.
    pub fn end(self) -> Self {
        assert_eq!(self.captions.len(), 0, "{}: more captions than moments", self.title);
        self
    }

    fn push(&mut self, chains: Chains, left_behind: Option<Vec<Option<u64>>>, readers: Vec<BTreeSet<u64>>) {
        let caption = self.captions.next().expect("a caption for each moment");
        self.moments.push(Moment { caption, chains, left_behind, readers });
    }

    /// Returns the entries at which this reader may be, if it enters now, or was at an entry at the
    /// last moment.
    fn positions(&self, reader: usize, chains: &Chains, last: Option<&Moment>) -> BTreeSet<u64> {
        let own = |key: &u64| (self.plan.bucket)(*key) == reader;
        let entrance = chains[(self.plan.entrance)(reader, chains.len())].first();
        let mut positions = self.path(reader, entrance.copied(), chains);
        assert!(chains.iter().flatten().filter(|key| own(key)).all(|key| positions.contains(key)), "{}", self.title);
        if let Some(last) = last {
            for &from in &last.readers[reader] {
                let path = self.path(reader, Some(from), chains);
                let expected = self.path(reader, Some(from), &last.chains);
                assert!(expected.iter().filter(|key| own(key)).all(|key| path.contains(key)), "{}", self.title);
                positions.extend(path);
            }
        }
        positions
    }

    /// Returns the entries that a reader passes from this entry on.
    fn path(&self, reader: usize, from: Option<u64>, chains: &Chains) -> BTreeSet<u64> {
        let next = links(chains);
        let passes = |key: &u64| (self.plan.passes)(reader, (self.plan.bucket)(*key));
        successors(from, |key| next.get(key).copied()).take_while(passes).collect()
    }
}

/// Returns, for each entry, the entry to which it leads.
pub fn links(chains: &Chains) -> BTreeMap<u64, u64> {
    chains.iter().flat_map(|chain| chain.windows(2)).map(|pair| (pair[0], pair[1])).collect()
}

pub fn heads(chains: &Chains) -> Vec<Option<u64>> {
    chains.iter().map(|chain| chain.first().copied()).collect()
}
