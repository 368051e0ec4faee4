//! File operations, and the paths that they name.

use std::collections::HashMap;

pub const ROOT: u32 = 0;

/// Gives numbers to paths and to names. The paths are a tree.
#[derive(Clone, Debug)]
pub struct Paths {
    nodes: Vec<(u32, u32)>,
    children: HashMap<(u32, u32), u32>,
    names: Vec<Box<[u8]>>,
    name_numbers: HashMap<Box<[u8]>, u32>,
}

impl Default for Paths {
    fn default() -> Self {
        let names = vec![Box::default()];
        Self { nodes: vec![(ROOT, 0)], children: HashMap::new(), names, name_numbers: HashMap::new() }
    }
}

impl Paths {
    /// Returns the number of an absolute path.
    pub fn number(&mut self, path: &[u8]) -> u32 {
        path.split(|&byte| byte == b'/').fold(ROOT, |parent, name| match name {
            b"" | b"." => parent,
            b".." => self.parent(parent),
            name => self.child(parent, name),
        })
    }

    /// Returns the number of the path `name` in the directory `parent`.
    pub fn child(&mut self, parent: u32, name: &[u8]) -> u32 {
        let names = &mut self.names;
        let name = *self.name_numbers.entry(name.into()).or_insert_with(|| {
            names.push(name.into());
            names.len() as u32 - 1
        });
        let nodes = &mut self.nodes;
        *self.children.entry((parent, name)).or_insert_with(|| {
            nodes.push((parent, name));
            u32::try_from(nodes.len() - 1).expect("fewer than 2^32 paths")
        })
    }

    /// Returns the parent directory. The root is its own parent.
    pub fn parent(&self, path: u32) -> u32 {
        self.nodes[path as usize].0
    }

    /// Returns the last component of the path, as a number and as bytes.
    pub fn name(&self, path: u32) -> (u32, &[u8]) {
        let name = self.nodes[path as usize].1;
        (name, &self.names[name as usize])
    }

    /// Returns the directories on the way from the root to the path, and the path itself.
    pub fn steps(&self, path: u32) -> Vec<u32> {
        let above = |&path: &u32| Some(self.parent(path)).filter(|&parent| parent != ROOT);
        let mut steps: Vec<u32> = std::iter::successors(Some(path).filter(|&path| path != ROOT), above).collect();
        steps.reverse();
        steps
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Looks up the path, as `open`, `stat`, `access` and `execve` do, whether it exists or not.
    Look,
    Create,
    /// Reads bytes. The numbers are the offset and the length.
    Read(u64, u64),
    /// Writes bytes. The numbers are the offset and the length.
    Write(u64, u64),
    /// Truncates the file to length zero.
    Truncate,
    Remove,
}

/// A request, and the path to which it applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub path: u32,
    pub request: Request,
}

/// All operations on one file system.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    pub paths: Paths,
    /// Files that exist from the start, with their sizes.
    pub files: Vec<(u32, u64)>,
    pub operations: Vec<Operation>,
    /// The number of operations before the users delete their files.
    pub work: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_numbers() {
        let mut paths = Paths::default();
        let file = paths.number(b"/usr/include/stdio.h");
        assert_eq!(paths.number(b"/usr//lib/../include/./stdio.h"), file);
        assert_eq!(paths.name(file).1, b"stdio.h");
        let steps = paths.steps(file);
        assert_eq!(
            steps.iter().map(|&step| paths.name(step).1).collect::<Vec<_>>(),
            [&b"usr"[..], b"include", b"stdio.h"]
        );
        assert_eq!((paths.parent(steps[0]), paths.steps(ROOT).len(), paths.number(b"/..")), (ROOT, 0, ROOT));
        let other = paths.number(b"/include");
        assert_ne!(other, steps[1]);
        assert_eq!(paths.name(other).0, paths.name(steps[1]).0);
    }
}
