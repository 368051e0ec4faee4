//! Kernels: the hash function and the number of buckets of each of the four tables.

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::events::Cache;
use crate::hashing::functions::modern::Fold;
use crate::hashing::functions::{BITS, HashFunction, all};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    pub function: String,
    pub buckets: u64,
}

impl Choice {
    fn new(function: &str, buckets: u64) -> Self {
        Self { function: function.to_owned(), buckets }
    }

    pub fn resolve(&self) -> Result<(Box<dyn HashFunction>, u32)> {
        let Self { function: name, buckets } = self;
        let bits = buckets.checked_ilog2().filter(|bits| BITS.contains(bits) && buckets.is_power_of_two());
        let bits = bits.with_context(|| format!("{buckets} buckets: expected a power of two, 2 at least"))?;
        let functions = all(&[Fold::Low, Fold::High, Fold::Mixed]);
        let function = functions.into_iter().find(|function| function.name() == *name);
        Ok((function.with_context(|| format!("there is no hash function {name}"))?, bits))
    }
}

/// A kernel: its four tables, and whether it prunes the dentry cache whenever memory is short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    pub name: String,
    #[serde(default = "reference_page")]
    pub page: Choice,
    #[serde(default = "reference_buffer")]
    pub buffer: Choice,
    #[serde(default = "reference_dentry")]
    pub dentry: Choice,
    #[serde(default = "reference_inode")]
    pub inode: Choice,
    /// Whether the dentry cache is pruned whenever memory is short; see [`vfs`](super::vfs).
    #[serde(default)]
    pub shrink: bool,
}

fn reference_page() -> Choice {
    Choice::new("page-shift-add", 2048)
}

fn reference_buffer() -> Choice {
    Choice::new("buffer-one-to-one", 32768)
}

fn reference_dentry() -> Choice {
    Choice::new("dentry-xor", 1024)
}

fn reference_inode() -> Choice {
    Choice::new("inode-shift-add", 256)
}

impl Kernel {
    /// Returns the reference kernel, Linux 2.2.5.
    pub fn reference() -> Self {
        Self {
            name: "reference".into(),
            page: reference_page(),
            buffer: reference_buffer(),
            dentry: reference_dentry(),
            inode: reference_inode(),
            shrink: false,
        }
    }

    /// Returns the reference kernel with one table changed.
    pub fn but(name: &str, cache: Cache, function: &str, buckets: u64) -> Self {
        let mut kernel = Self { name: name.into(), ..Self::reference() };
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
    pub fn combined(name: &str, page: &str, buffer: &str) -> Self {
        Self {
            name: name.into(),
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
            name: "2.2.16".into(),
            page: Choice::new("page-shift-add", buckets(4 << 10)),
            buffer: Choice::new("buffer-shift-add", buckets(1 << 10).min(128 << 10)),
            dentry: Choice::new("dentry-xor", buckets(8 << 10)),
            inode: reference_inode(),
            shrink: false,
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

/// Parses a TOML file with a `[[kernel]]` section per kernel, which has a name and the differences
/// from the reference.
pub fn parse(text: &str) -> Result<Vec<Kernel>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        kernel: Vec<Kernel>,
    }
    let File { kernel: kernels } = toml::from_str(text)?;
    ensure!(!kernels.is_empty(), "the file has no [[kernel]] section");
    for kernel in &kernels {
        for cache in super::events::CACHES {
            if let Err(error) = kernel.choice(cache).resolve() {
                bail!("kernel {}: {error}", kernel.name);
            }
        }
    }
    Ok(kernels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_read_from_toml() {
        let text = "[[kernel]]\nname = 'mine'\nshrink = true\npage = { function = 'page-mult', buckets = 8192 }\n\
                    inode = { function = 'foldhash+mixed', buckets = 1024 }\n";
        let kernels = parse(text).unwrap();
        assert_eq!(kernels[0].page, Choice::new("page-mult", 8192));
        assert_eq!(kernels[0].dentry, Kernel::reference().dentry);
        assert!(kernels[0].shrink);
    }

    #[test]
    fn what_does_not_exist_is_refused() {
        for (text, why) in [
            ("kernel = []", "no [[kernel]]"),
            ("[[kernel]]\nname = 'x'\npages = 1", "pages"),
            ("[[kernel]]\nname = 'x'\npage = { function = 'sha', buckets = 2 }", "no hash function sha"),
            ("[[kernel]]\nname = 'x'\npage = { function = 'page-mult', buckets = 3 }", "power of two"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(format!("{error:#}").contains(why), "{error:#}");
        }
    }

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
