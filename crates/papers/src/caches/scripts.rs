//! A development workload on a real source tree. It resembles SPEC SDM, which the paper uses: many
//! concurrent scripts, each "a fixed script of commands typically used by software developers"
//! (section 2).
//!
//! Each script has a home with copies of some of the tree's files. In each round it compiles a
//! file, edits one, formats one and checks the spelling of one. Compilers search the original tree
//! for headers. The scripts of SDM are not freely available, so the selection and frequency of
//! files are our own.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use walkdir::WalkDir;

use super::workload::{Operation, Paths, Request, Workload};

/// The files of a source tree: paths from its root, and sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(Vec<(String, u64)>);

impl Tree {
    /// Lists all regular files below `root`, except hidden ones and cargo's build output, in the
    /// order of their names.
    pub fn read(root: &Path) -> Result<Self> {
        let wanted = |entry: &walkdir::DirEntry| {
            let name = entry.file_name().to_string_lossy();
            entry.depth() == 0 || !(name.starts_with('.') || entry.file_type().is_dir() && name == "target")
        };
        let mut files = Vec::new();
        for entry in WalkDir::new(root).sort_by_file_name().into_iter().filter_entry(wanted) {
            let entry = entry.with_context(|| format!("cannot read {}", root.display()))?;
            if entry.file_type().is_file() {
                let path = entry.path().strip_prefix(root).expect("it is below the root");
                files.push((path.to_string_lossy().into_owned(), entry.metadata()?.len()));
            }
        }
        ensure!(!files.is_empty(), "there are no files in {}", root.display());
        Ok(Self(files))
    }
}

/// Files that all scripts use, with their sizes: programs and their libraries, a dictionary,
/// macros.
const SHARED: [(&str, u64); 10] = [
    ("/bin/ed", 60 << 10),
    ("/lib/ld-linux.so.2", 80 << 10),
    ("/lib/libc.so.6", 650 << 10),
    ("/usr/bin/cc", 70 << 10),
    ("/usr/bin/spell", 30 << 10),
    ("/usr/bin/troff", 250 << 10),
    ("/usr/lib/cc1", 1300 << 10),
    ("/usr/lib/as", 220 << 10),
    ("/usr/lib/tmac/an", 40 << 10),
    ("/usr/dict/words", 400 << 10),
];

/// The search path of headers. All headers are in the last folder.
const SEARCH: [&str; 3] = ["/usr/local/include", "/usr/lib/include", "/usr/include"];

/// Generates the operations of `scripts` scripts with `rounds` rounds of commands each. They are
/// interleaved at random, but in the same way in every run.
pub fn generate(tree: &Tree, scripts: u32, rounds: u32) -> Workload {
    let mut workload = Workload::default();
    workload.files.extend(SHARED.map(|(path, bytes)| (workload.paths.number(path.as_bytes()), bytes)));
    for (path, bytes) in &tree.0 {
        let header = workload.paths.number(format!("{}/{path}", SEARCH[2]).as_bytes());
        workload.files.push((header, *bytes));
    }
    let mut rng = SmallRng::seed_from_u64(u64::from(scripts));
    let mut queues = Vec::new();
    let mut rest = Vec::new();
    for number in 0..scripts {
        let seed = rng.random();
        let mut script = Script::new(tree, &mut workload, number, rounds, seed);
        (0..rounds).for_each(|round| script.work(round));
        rest.extend(script.tidy_up());
        queues.push(script.operations.into_iter());
    }
    // A script runs a few operations before the next one gets its turn.
    while !queues.is_empty() {
        let turn = rng.random_range(0..queues.len());
        let before = workload.operations.len();
        workload.operations.extend(queues[turn].by_ref().take(rng.random_range(1..=8)));
        if workload.operations.len() == before {
            queues.swap_remove(turn);
        }
    }
    workload.work = workload.operations.len();
    workload.operations.extend(rest);
    workload
}

struct Script<'a> {
    tree: &'a Tree,
    paths: &'a mut Paths,
    rng: SmallRng,
    number: u32,
    /// Copies of the tree's files: their paths and sizes.
    files: Vec<(u32, u64)>,
    /// Files that were created in the home and are kept.
    made: Vec<u32>,
    operations: Vec<Operation>,
}

impl<'a> Script<'a> {
    fn new(tree: &'a Tree, workload: &'a mut Workload, number: u32, rounds: u32, seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let sample: Vec<_> = tree.0.sample(&mut rng, 2 * rounds as usize).collect();
        let copy = |(path, bytes): &(String, u64)| {
            // Larger files are data rather than sources.
            (workload.paths.number(format!("/home/user{number:03}/{path}").as_bytes()), *bytes.min(&(256 << 10)))
        };
        let files: Vec<_> = sample.into_iter().map(copy).collect();
        workload.files.extend(&files);
        Self { tree, paths: &mut workload.paths, rng, number, files, made: Vec::new(), operations: Vec::new() }
    }

    fn push(&mut self, path: u32, request: Request) {
        self.operations.push(Operation { path, request });
    }

    fn file(&mut self) -> (u32, u64) {
        *self.files.choose(&mut self.rng).expect("there is a file at least")
    }

    fn temporary(&mut self, prefix: &str, round: u32) -> u32 {
        self.paths.number(format!("/tmp/{prefix}{:05}{round:03}", 100 + self.number * 7).as_bytes())
    }

    fn read(&mut self, path: u32, bytes: u64) {
        self.push(path, Request::Look);
        // The size of reads and writes, like that of stdio.
        const AT_ONCE: u64 = 16 << 10;
        for offset in (0..bytes).step_by(AT_ONCE as usize) {
            self.push(path, Request::Read(offset, AT_ONCE.min(bytes - offset)));
        }
    }

    fn write(&mut self, path: u32, bytes: u64) {
        const AT_ONCE: u64 = 4 << 10;
        for offset in (0..bytes).step_by(AT_ONCE as usize) {
            self.push(path, Request::Write(offset, AT_ONCE.min(bytes - offset)));
        }
    }

    /// Starts a program: searches it in the path of commands, and maps it and its libraries.
    fn execute(&mut self, program: &str) {
        let name = program.rsplit('/').next().expect("a path");
        for folder in ["/usr/local/bin", "/bin", "/usr/bin"] {
            let candidate = format!("{folder}/{name}");
            let path = self.paths.number(candidate.as_bytes());
            self.push(path, Request::Look);
            if candidate == program {
                break;
            }
        }
        for (path, bytes) in SHARED.into_iter().filter(|(path, _)| *path == program || path.starts_with("/lib/")) {
            let path = self.paths.number(path.as_bytes());
            self.read(path, bytes);
        }
    }

    fn read_shared(&mut self, name: &str) {
        let (path, bytes) = SHARED.into_iter().find(|(path, _)| *path == name).expect("one of them");
        let path = self.paths.number(path.as_bytes());
        self.read(path, bytes);
    }

    fn work(&mut self, round: u32) {
        self.compile(round);
        self.edit(round);
        self.format(round);
        self.spell(round);
    }

    fn compile(&mut self, round: u32) {
        self.execute("/usr/bin/cc");
        self.read_shared("/usr/lib/cc1");
        let (source, bytes) = self.file();
        self.read(source, bytes);
        let popular = Zipf::new(self.tree.0.len() as f64, 1.0).expect("a file at least");
        for _ in 0..self.rng.random_range(4..20) {
            let (header, bytes) = &self.tree.0[popular.sample(&mut self.rng) as usize - 1];
            let candidates = SEARCH.map(|folder| self.paths.number(format!("{folder}/{header}").as_bytes()));
            candidates[..2].iter().for_each(|&absent| self.push(absent, Request::Look));
            self.read(candidates[2], (*bytes).min(64 << 10));
        }
        let assembly = self.temporary("cc", round);
        self.push(assembly, Request::Create);
        self.write(assembly, 3 * bytes);
        self.read_shared("/usr/lib/as");
        self.read(assembly, 3 * bytes);
        let object = self.sibling(source, ".o");
        self.keep(object, bytes);
        self.push(assembly, Request::Remove);
    }

    fn edit(&mut self, round: u32) {
        self.execute("/bin/ed");
        let (file, bytes) = self.file();
        self.read(file, bytes);
        let buffer = self.temporary("e", round);
        self.push(buffer, Request::Create);
        self.write(buffer, bytes);
        self.push(file, Request::Truncate);
        self.write(file, bytes);
        self.push(buffer, Request::Remove);
    }

    fn format(&mut self, _round: u32) {
        self.execute("/usr/bin/troff");
        self.read_shared("/usr/lib/tmac/an");
        let (file, bytes) = self.file();
        self.read(file, bytes);
        let output = self.sibling(file, ".out");
        self.keep(output, bytes + bytes / 2);
    }

    fn spell(&mut self, round: u32) {
        self.execute("/usr/bin/spell");
        let (file, bytes) = self.file();
        self.read(file, bytes);
        let words = self.temporary("spell", round);
        self.push(words, Request::Create);
        self.write(words, bytes / 2);
        self.read_shared("/usr/dict/words");
        self.read(words, bytes / 2);
        self.push(words, Request::Remove);
    }

    /// Returns the path of an output file.
    fn sibling(&mut self, file: u32, suffix: &str) -> u32 {
        let name = [self.paths.name(file).1, suffix.as_bytes()].concat();
        self.paths.child(self.paths.parent(file), &name)
    }

    /// Creates or overwrites a file that is kept until the end.
    fn keep(&mut self, path: u32, bytes: u64) {
        if self.made.contains(&path) {
            self.push(path, Request::Look);
            self.push(path, Request::Truncate);
        } else {
            self.push(path, Request::Create);
            self.made.push(path);
        }
        self.write(path, bytes);
    }

    fn tidy_up(&self) -> impl Iterator<Item = Operation> + use<> {
        let paths: Vec<u32> = self.files.iter().map(|(path, _)| *path).chain(self.made.iter().copied()).collect();
        paths.into_iter().map(|path| Operation { path, request: Request::Remove })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Makes a tree of files with realistic sizes.
    pub fn tree() -> Tree {
        Tree((0..60).map(|n| (format!("part{}/file{n}.c", n % 7), 300 + n * n * 13)).collect())
    }

    #[test]
    fn hidden_and_built_files_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["src", ".git", "target"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("a.c"), b"int main;").unwrap();
        }
        assert_eq!(Tree::read(folder.path()).unwrap(), Tree(vec![("src/a.c".into(), 9)]));
        std::fs::remove_file(folder.path().join("src/a.c")).unwrap();
        assert!(Tree::read(folder.path()).is_err());
    }

    #[test]
    fn a_workload_is_always_the_same_and_grows_with_its_scripts() {
        let (one, again, more) = (generate(&tree(), 2, 2), generate(&tree(), 2, 2), generate(&tree(), 6, 2));
        assert_eq!(one.operations, again.operations);
        assert!(more.operations.len() > 2 * one.operations.len());
        assert!(one.work < one.operations.len(), "they tidy up");
    }
}
