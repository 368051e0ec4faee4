//! Kernels: the hash function and the number of buckets of each of the four tables.

use serde::Serialize;

use super::events::Cache;
use relativist_bench::hashing::functions::{HashFunction, named};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    pub function: &'static str,
    pub buckets: u64,
}

impl Choice {
    fn new(function: &'static str, buckets: u64) -> Self {
        Self { function, buckets }
    }

    /// Returns the function, and the binary logarithm of the number of buckets.
    pub fn resolve(&self) -> (Box<dyn HashFunction>, u32) {
        (named(self.function), self.buckets.ilog2())
    }
}

/// A kernel: its four tables, and whether it prunes the dentry cache whenever memory is short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kernel {
    pub name: &'static str,
    pub page: Choice,
    pub buffer: Choice,
    pub dentry: Choice,
    pub inode: Choice,
    /// Whether the dentry cache is pruned whenever memory is short; see [`vfs`](super::vfs).
    pub shrink: bool,
}

impl Kernel {
    /// Returns the reference kernel, Linux 2.2.5.
    pub fn reference() -> Self {
        Self {
            name: "reference",
            page: Choice::new("page-shift-add", 2048),
            buffer: Choice::new("buffer-one-to-one", 32768),
            dentry: Choice::new("dentry-xor", 1024),
            inode: Choice::new("inode-shift-add", 256),
            shrink: false,
        }
    }

    /// Returns the reference kernel with one table changed.
    pub fn but(name: &'static str, cache: Cache, function: &'static str, buckets: u64) -> Self {
        let mut kernel = Self { name, ..Self::reference() };
        *kernel.choice_mut(cache) = Choice::new(function, buckets);
        kernel
    }

    /// Returns this kernel with `shrink` set.
    pub fn shrinking(self) -> Self {
        Self { shrink: true, ..self }
    }

    /// Returns one of the kernels A to D of section 4, which differ in the functions of the page
    /// and buffer caches. In the paper their function for inodes is "slightly modified" in a way
    /// that it does not describe; here it is the reference's.
    pub fn combined(name: &'static str, page: &'static str, buffer: &'static str) -> Self {
        Self {
            name,
            page: Choice::new(page, 8192),
            buffer: Choice::new(buffer, 16384),
            dentry: Choice::new("dentry-add", 8192),
            inode: Choice::new("inode-shift-add", 2048),
            shrink: false,
        }
    }

    /// Returns Linux 2.2.16 with table sizes for `memory` bytes, as section 3 describes them: a
    /// bucket per page for the page cache; a bucket per KiB, up to 128 MiB, for buffers; a bucket
    /// per 8 KiB for dentries; and for inodes the size of the reference. The paper does not
    /// describe its functions. Here the function for buffers is the best of the paper, and the
    /// others are the reference's.
    pub fn sized(memory: u64) -> Self {
        let buckets = |bytes_each: u64| 1 << (memory / bytes_each).max(2).ilog2();
        Self {
            name: "2.2.16",
            page: Choice::new("page-shift-add", buckets(4 << 10)),
            buffer: Choice::new("buffer-shift-add", buckets(1 << 10).min(128 << 10)),
            dentry: Choice::new("dentry-xor", buckets(8 << 10)),
            ..Self::reference()
        }
    }

    pub fn choice(&self, cache: Cache) -> &Choice {
        match cache {
            Cache::Page => &self.page,
            Cache::Buffer => &self.buffer,
            Cache::Dentry => &self.dentry,
            Cache::Inode => &self.inode,
        }
    }

    fn choice_mut(&mut self, cache: Cache) -> &mut Choice {
        match cache {
            Cache::Page => &mut self.page,
            Cache::Buffer => &mut self.buffer,
            Cache::Dentry => &mut self.dentry,
            Cache::Inode => &mut self.inode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of section 3 has 64 MB of memory.
    #[test]
    fn sizes_follow_from_memory_as_in_2_2_16() {
        let buckets = |megabytes: u64| {
            let kernel = Kernel::sized(megabytes << 20);
            [kernel.page.buckets, kernel.buffer.buckets, kernel.dentry.buckets, kernel.inode.buckets]
        };
        assert_eq!(buckets(64), [16384, 65536, 8192, 256]);
        assert_eq!(buckets(512), [131_072, 131_072, 65536, 256]);
    }
}
