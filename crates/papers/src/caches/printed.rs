//! Tables 1 to 6 of the paper: the kernels, and their measured throughput.
//!
//! In the paper, tables 4 and 5 seem to be swapped. Here, following the paper's text, table 4 is
//! about the inode cache and table 5 about the dentry cache. The kernel of table 1 that replaces
//! the page table by trees is left out.

use super::events::Cache;
use super::kernel::Kernel;

#[derive(Clone, Debug)]
pub struct Printed {
    /// The number of the table in the paper, 1 to 6.
    pub number: u8,
    pub title: &'static str,
    /// The cache whose hash table differs between kernels, if it is only one.
    pub cache: Option<Cache>,
    /// Numbers of concurrent scripts, each measured separately.
    pub scripts: &'static [u32],
    pub runs: u32,
    /// The machine's memory in MiB.
    pub memory: u64,
    pub rows: Vec<Row>,
}

/// A kernel, and the paper's values for it.
#[derive(Clone, Debug)]
pub struct Row {
    pub kernel: Kernel,
    /// Scripts per hour with their standard deviation, for each number of scripts.
    pub throughputs: &'static [(f64, f64)],
    pub elapsed: &'static str,
}

impl Row {
    fn new(kernel: Kernel, throughputs: &'static [(f64, f64)], elapsed: &'static str) -> Self {
        Self { kernel, throughputs, elapsed }
    }
}

/// The reference kernel on the large machine; tables 2 to 5 repeat these values.
const REFERENCE: &[(f64, f64)] = &[(4282.8, 29.96)];
const REFERENCE_ELAPSED: &str = "12 min 57 sec";

pub fn tables() -> Vec<Printed> {
    vec![page_functions(), page_sizes(), buffers(), inodes(), dentries(), combinations()]
}

fn page_functions() -> Printed {
    let kernel = |name, function, buckets| Kernel::but(name, Cache::Page, function, buckets);
    Printed {
        number: 1,
        title: "hash functions of the page cache",
        cache: Some(Cache::Page),
        scripts: &[16, 32, 48, 64],
        runs: 7,
        memory: 128,
        rows: vec![
            Row::new(
                Kernel::reference(),
                &[(1864.7, 3.77), (1800.8, 8.51), (1739.9, 3.61), (1644.6, 29.35)],
                "50 min 25 sec",
            ),
            Row::new(
                kernel("13-bit", "page-shift-add", 8192),
                &[(1875.8, 5.59), (1834.0, 3.71), (1765.5, 3.01), (1683.3, 17.39)],
                "49 min 43 sec",
            ),
            Row::new(
                kernel("14-bit", "page-shift-add", 16384),
                &[(1877.2, 5.35), (1830.8, 3.81), (1770.5, 3.84), (1694.3, 41.42)],
                "49 min 35 sec",
            ),
            Row::new(
                kernel("15-bit", "page-shift-add", 32768),
                &[(1875.4, 10.72), (1832.4, 3.97), (1770.3, 3.97), (1691.2, 20.05)],
                "49 min 36 sec",
            ),
            Row::new(
                kernel("offset", "page-offset", 16384),
                &[(1880.0, 2.78), (1843.7, 14.65), (1774.5, 4.30), (1685.4, 33.46)],
                "49 min 40 sec",
            ),
            Row::new(
                kernel("mult", "page-mult", 16384),
                &[(1876.4, 6.45), (1836.8, 6.45), (1773.7, 5.20), (1691.7, 25.32)],
                "49 min 29 sec",
            ),
        ],
    }
}

/// Makes one of the tables measured on the large machine.
fn large(number: u8, title: &'static str, cache: Option<Cache>, rows: Vec<Row>) -> Printed {
    Printed { number, title, cache, scripts: &[128], runs: 5, memory: 512, rows }
}

fn page_sizes() -> Printed {
    let kernel = |name, buckets| Kernel::but(name, Cache::Page, "page-shift-add", buckets);
    let rows = vec![
        Row::new(Kernel::reference(), REFERENCE, REFERENCE_ELAPSED),
        Row::new(kernel("13-bit", 8192), &[(4387.3, 23.10)], "12 min 40 sec"),
        Row::new(kernel("15-bit", 32768), &[(4405.3, 5.59)], "12 min 49 sec"),
    ];
    large(2, "sizes of the page cache's table", Some(Cache::Page), rows)
}

fn buffers() -> Printed {
    let kernel = |name, function, buckets| Kernel::but(name, Cache::Buffer, function, buckets);
    let rows = vec![
        Row::new(Kernel::reference(), REFERENCE, REFERENCE_ELAPSED),
        Row::new(kernel("mult, shift 16", "buffer-mult-16", 32768), &[(4369.3, 19.35)], "12 min 45 sec"),
        Row::new(kernel("mult, shift 11", "buffer-mult-11", 32768), &[(4380.8, 12.09)], "12 min 50 sec"),
        Row::new(kernel("shift-add", "buffer-shift-add", 32768), &[(4388.9, 21.90)], "12 min 31 sec"),
        Row::new(kernel("mult, shift 11", "buffer-mult-11", 16384), &[(4350.5, 99.75)], "12 min 41 sec"),
        Row::new(kernel("mult, shift 17", "buffer-mult-17", 16384), &[(4343.7, 61.17)], "12 min 46 sec"),
        Row::new(kernel("shift-add", "buffer-shift-add", 16384), &[(4390.2, 22.55)], "12 min 37 sec"),
        Row::new(kernel("mult, shift 18", "buffer-mult-18", 8192), &[(4328.9, 16.61)], "12 min 41 sec"),
        Row::new(kernel("shift-add", "buffer-shift-add", 8192), &[(4362.5, 13.37)], "12 min 45 sec"),
    ];
    large(3, "hash functions of the buffer cache", Some(Cache::Buffer), rows)
}

fn inodes() -> Printed {
    let kernel = |name, function, buckets| Kernel::but(name, Cache::Inode, function, buckets);
    let rows = vec![
        Row::new(Kernel::reference(), REFERENCE, REFERENCE_ELAPSED),
        Row::new(kernel("12 bit", "inode-shift-add", 4096), &[(4361.3, 11.15)], "12 min 36 sec"),
        Row::new(kernel("mult", "inode-mult", 4096), &[(4346.0, 20.87)], "12 min 52 sec"),
        Row::new(kernel("14 bit", "inode-shift-add", 16384), &[(4368.3, 20.41)], "12 min 54 sec"),
    ];
    large(4, "hash functions of the inode cache", Some(Cache::Inode), rows)
}

fn dentries() -> Printed {
    let kernel = |name, function| Kernel::but(name, Cache::Dentry, function, 16384);
    let rows = vec![
        Row::new(Kernel::reference(), REFERENCE, REFERENCE_ELAPSED),
        Row::new(kernel("14 bit", "dentry-add"), &[(4375.2, 25.92)], "12 min 42 sec"),
        Row::new(kernel("mult, shift 11", "dentry-mult-11"), &[(4368.7, 62.65)], "12 min 39 sec"),
        Row::new(kernel("mult, shift 17", "dentry-mult-17"), &[(4375.9, 10.40)], "12 min 40 sec"),
        Row::new(kernel("shrink", "dentry-add").shrinking(), &[(4368.7, 33.36)], "12 min 40 sec"),
        Row::new(kernel("shrink + mult 11", "dentry-mult-11").shrinking(), &[(4380.4, 13.53)], "12 min 35 sec"),
        Row::new(kernel("shrink + mult 17", "dentry-mult-17").shrinking(), &[(4368.5, 16.21)], "12 min 42 sec"),
    ];
    large(5, "hash functions of the dentry cache", Some(Cache::Dentry), rows)
}

fn combinations() -> Printed {
    let rows = vec![
        Row::new(Kernel::reference(), &[(4300.7, 15.73)], "26 min 41 sec"),
        Row::new(Kernel::combined("A", "page-mult", "buffer-mult-11"), &[(4582.9, 12.55)], "25 min 24 sec"),
        Row::new(Kernel::combined("B", "page-mult", "buffer-shift-add"), &[(4577.9, 16.22)], "25 min 18 sec"),
        Row::new(Kernel::combined("C", "page-shift-add", "buffer-mult-11"), &[(4596.2, 22.30)], "25 min 18 sec"),
        Row::new(Kernel::combined("D", "page-offset", "buffer-mult-11"), &[(4591.3, 10.98)], "25 min 15 sec"),
    ];
    Printed { runs: 10, ..large(6, "combinations", None, rows) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caches::events::CACHES;

    #[test]
    fn every_row_can_be_simulated() {
        let tables = tables();
        assert_eq!(tables.iter().map(|table| table.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(tables.iter().map(|table| table.rows.len()).collect::<Vec<_>>(), [6, 3, 9, 4, 7, 5]);
        for table in tables {
            for row in table.rows {
                assert_eq!(row.throughputs.len(), table.scripts.len());
                for choice in CACHES.map(|cache| row.kernel.choice(cache)) {
                    assert_eq!(1 << choice.resolve().1, choice.buckets, "{:?}", row.kernel);
                }
            }
        }
    }
}
