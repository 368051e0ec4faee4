//! Doubly linked lists over numbered objects. Each object is in at most one list.

const NONE: u32 = u32::MAX;

/// The links of all objects, for any number of lists.
#[derive(Debug)]
pub(super) struct Links {
    newer: Vec<u32>,
    older: Vec<u32>,
}

/// A list from its newest to its oldest object, and the bytes in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    newest: u32,
    oldest: u32,
    pub(super) bytes: u64,
}

impl Links {
    pub(super) fn new(objects: usize) -> Self {
        Self { newer: vec![NONE; objects], older: vec![NONE; objects] }
    }

    /// Returns the next newer object in the list.
    pub(super) fn newer(&self, object: u32) -> Option<u32> {
        some(self.newer[object as usize])
    }
}

impl List {
    pub(super) fn new() -> Self {
        Self { newest: NONE, oldest: NONE, bytes: 0 }
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        some(self.oldest)
    }

    pub(super) fn push(&mut self, object: u32, size: u64, links: &mut Links) {
        links.newer[object as usize] = NONE;
        links.older[object as usize] = self.newest;
        match some(self.newest) {
            Some(newest) => links.newer[newest as usize] = object,
            None => self.oldest = object,
        }
        self.newest = object;
        self.bytes += size;
    }

    pub(super) fn remove(&mut self, object: u32, size: u64, links: &mut Links) {
        let (newer, older) = (links.newer[object as usize], links.older[object as usize]);
        match some(newer) {
            Some(newer) => links.older[newer as usize] = older,
            None => self.newest = older,
        }
        match some(older) {
            Some(older) => links.newer[older as usize] = newer,
            None => self.oldest = newer,
        }
        self.bytes -= size;
    }
}

fn some(object: u32) -> Option<u32> {
    (object != NONE).then_some(object)
}
