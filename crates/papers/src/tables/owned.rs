//! Chains for tables behind a lock: no RCU, and no unsafe code.

use std::mem::take;

type Link = Option<Box<Node>>;

/// An entry, laid out like that of the other tables.
#[repr(C)]
#[derive(Debug)]
struct Node {
    next: Link,
    hash: u64,
    key: u64,
    value: u64,
}

/// A hash table without synchronisation.
#[derive(Debug)]
pub struct Chains(Box<[Link]>);

impl Chains {
    pub(crate) fn new(buckets: usize) -> Self {
        assert!(buckets.is_power_of_two(), "{buckets} is not a power of two");
        Self((0..buckets).map(|_| None).collect())
    }

    pub(crate) fn buckets(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    #[inline(always)]
    pub(crate) fn get(&self, hash: u64, key: u64) -> Option<u64> {
        let mut next = &self.0[hash as usize & (self.0.len() - 1)];
        while let Some(node) = next {
            if node.key == key {
                return Some(node.value);
            }
            next = &node.next;
        }
        None
    }

    pub(crate) fn insert(&mut self, hash: u64, key: u64, value: u64) -> bool {
        let absent = self.get(hash, key).is_none();
        if absent {
            self.push(Box::new(Node { next: None, hash, key, value }));
        }
        absent
    }

    pub(crate) fn remove(&mut self, hash: u64, key: u64) -> Option<u64> {
        let mut link = self.head(hash);
        while link.as_ref()?.key != key {
            link = &mut link.as_mut()?.next;
        }
        let node = link.take()?;
        *link = node.next;
        Some(node.value)
    }

    /// Moves all nodes to a new array.
    pub(crate) fn resize(&mut self, buckets: usize) {
        let mut old = std::mem::replace(self, Self::new(buckets));
        old.drain(|node| self.push(node));
    }

    fn head(&mut self, hash: u64) -> &mut Link {
        let mask = self.0.len() - 1;
        &mut self.0[hash as usize & mask]
    }

    fn push(&mut self, mut node: Box<Node>) {
        let head = self.head(node.hash);
        node.next = head.take();
        *head = Some(node);
    }

    fn drain(&mut self, mut each: impl FnMut(Box<Node>)) {
        for head in &mut self.0 {
            while let Some(mut node) = head.take() {
                *head = take(&mut node.next);
                each(node);
            }
        }
    }
}

/// Frees the nodes without recursion, because chains may be long.
impl Drop for Chains {
    fn drop(&mut self) {
        self.drain(drop);
    }
}
