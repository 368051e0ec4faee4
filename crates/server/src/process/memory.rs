//! The memory that this process may use, of which `-m auto` takes a share.
//!
//! That is the least of the machine's memory and the limits of the process's control groups: its
//! own and those above it, as far as the process can see them. Both versions of control groups are
//! read, because some systems mount both.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// An upper bound of the memory of this process.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Bound {
    pub bytes: u64,
    /// The file that it comes from.
    pub file: PathBuf,
}

/// The lowest bound at the first call: later, the sandbox hides the files. None on systems without
/// `/proc`.
pub(crate) fn lowest_bound() -> Option<&'static Bound> {
    static LOWEST: OnceLock<Option<Bound>> = OnceLock::new();
    LOWEST.get_or_init(|| lowest_bound_in(Path::new("/"))).as_ref()
}

/// The lowest bound in the file system at `root`.
fn lowest_bound_in(root: &Path) -> Option<Bound> {
    let proc = |name: &str| fs::read_to_string(root.join("proc").join(name)).unwrap_or_default();
    let machine = total(&proc("meminfo")).map(|bytes| Bound { bytes, file: "/proc/meminfo".into() });
    let groups = limit_files(&proc("self/mountinfo"), &proc("self/cgroup"));
    let limits = groups.into_iter().filter_map(|file| {
        let text = fs::read_to_string(root.join(file.strip_prefix("/").ok()?)).ok()?;
        Some(Bound { bytes: limit(&text)?, file })
    });
    limits.chain(machine).min()
}

/// The bytes that `/proc/meminfo` reports as the machine's memory.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The limit that a file of a control group has; none if it has the word `max`. Version 1 has a
/// number larger than any machine's memory instead.
fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The files that may limit this process: those of its control groups and of all above these, in
/// each hierarchy that is mounted. `mountinfo` and `cgroup` are files of `/proc/self`.
fn limit_files(mountinfo: &str, cgroup: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for Mount { root, point, names } in mountinfo.lines().filter_map(hierarchy) {
        let is_unified = names != ["memory.limit_in_bytes"];
        let Some(group) = cgroup.lines().find_map(|line| group(line, is_unified)) else { continue };
        // In a container the mount may begin at the container's own group, or the path may be
        // outside of what is mounted.
        let inside = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
        let folders = inside.ancestors().map(|folder| Path::new(point).join(folder));
        files.extend(folders.flat_map(|folder| names.iter().map(move |name| folder.join(name))));
    }
    files
}

/// A mounted hierarchy of control groups that may limit memory.
struct Mount<'t> {
    /// The group that is mounted.
    root: &'t str,
    point: &'t str,
    /// The names of the files with limits.
    names: &'static [&'static str],
}

/// The hierarchy that a line of `mountinfo` describes.
fn hierarchy(line: &str) -> Option<Mount<'_>> {
    let (place, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let names: &[&str] = match (kind.next()?, kind.nth(1)?) {
        // Beyond memory.high the kernel slows the process down until it has freed memory.
        ("cgroup2", _) => &["memory.max", "memory.high"],
        ("cgroup", options) if options.split(',').any(|option| option == "memory") => &["memory.limit_in_bytes"],
        _ => return None,
    };
    let mut place = place.split(' ').skip(3);
    Some(Mount { root: place.next()?, point: place.next()?, names })
}

/// The group that a line of `cgroup` names, if it is of the unified hierarchy (version 2), or else
/// of the one that limits memory.
fn group(line: &str, is_unified: bool) -> Option<&str> {
    let (number, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    let is_right =
        if is_unified { number == "0" } else { controllers.split(',').any(|controller| controller == "memory") };
    is_right.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       16316412 kB\nMemFree:          100 kB\n";
    const MACHINE: u64 = 16_316_412 << 10;
    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const V1_GROUPS: &str = "4:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n0::/\n";

    /// The bound in a file system with these files, and the file that it comes from.
    fn bound(mountinfo: &str, cgroup: &str, limits: &[(&str, &str)]) -> Option<(u64, String)> {
        let root = tempfile::tempdir().unwrap();
        let fixed = [("proc/meminfo", MEMINFO), ("proc/self/mountinfo", mountinfo), ("proc/self/cgroup", cgroup)];
        for (name, text) in fixed.iter().chain(limits) {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        lowest_bound_in(root.path()).map(|bound| (bound.bytes, bound.file.display().to_string()))
    }

    fn is_by(bytes: u64, file: &str) -> Option<(u64, String)> {
        Some((bytes, file.into()))
    }

    #[test]
    fn the_group_of_a_container_is_the_root_that_it_sees() {
        let limits = [("sys/fs/cgroup/memory.max", "1073741824\n"), ("sys/fs/cgroup/memory.high", "max\n")];
        assert_eq!(bound(V2, "0::/\n", &limits), is_by(1 << 30, "/sys/fs/cgroup/memory.max"));
        // The path is outside of the namespace: the process was moved in from there.
        assert_eq!(bound(V2, "0::/../other\n", &limits), is_by(1 << 30, "/sys/fs/cgroup/memory.max"));
    }

    #[test]
    fn the_lowest_limit_on_the_way_up_counts() {
        let limits = |inner, outer, high| {
            [
                ("sys/fs/cgroup/system.slice/r.service/memory.max", inner),
                ("sys/fs/cgroup/system.slice/memory.max", outer),
                ("sys/fs/cgroup/system.slice/r.service/memory.high", high),
            ]
        };
        let group = "0::/system.slice/r.service\n";
        let folder = "/sys/fs/cgroup/system.slice";
        assert_eq!(bound(V2, group, &limits("7", "8", "max")), is_by(7, &format!("{folder}/r.service/memory.max")));
        assert_eq!(bound(V2, group, &limits("9", "8", "max")), is_by(8, &format!("{folder}/memory.max")));
        assert_eq!(bound(V2, group, &limits("max", "8", "6")), is_by(6, &format!("{folder}/r.service/memory.high")));
        assert_eq!(bound(V2, group, &limits("max", "max", "max")), is_by(MACHINE, "/proc/meminfo"));
    }

    #[test]
    fn version_1_is_read_also_if_version_2_is_mounted() {
        let file = "sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes";
        assert_eq!(bound(V1, V1_GROUPS, &[(file, "5000\n")]), is_by(5000, &format!("/{file}")));
        // What version 1 has for "unlimited".
        assert_eq!(bound(V1, V1_GROUPS, &[(file, "9223372036854771712\n")]), is_by(MACHINE, "/proc/meminfo"));
        // Containers without a namespace for groups see the path on the host, but mount their own.
        let mount = "9 8 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let own = "sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert_eq!(bound(mount, V1_GROUPS, &[(own, "6000\n")]), is_by(6000, &format!("/{own}")));
    }

    #[test]
    fn without_groups_the_machine_is_the_bound() {
        for (mountinfo, cgroup) in [("", ""), (V2, ""), ("", "0::/\n"), (V2, "0::/\n"), (V1, V1_GROUPS)] {
            assert_eq!(bound(mountinfo, cgroup, &[]), is_by(MACHINE, "/proc/meminfo"));
        }
        assert_eq!(bound(V2, "0::/\n", &[("sys/fs/cgroup/memory.max", "-1\n")]), is_by(MACHINE, "/proc/meminfo"));
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(lowest_bound_in(nothing.path()), None);
    }

    #[test]
    fn truncated_files_name_no_other_folder() {
        let parts = |text: &'static str| (0..text.len()).map(move |end| &text[..end]);
        for mountinfo in parts(V1).chain(parts(V2)) {
            for cgroup in parts(V1_GROUPS) {
                let files = limit_files(mountinfo, cgroup);
                assert!(files.iter().all(|file| file.starts_with("/sys/fs/cgroup/")), "{mountinfo}{cgroup}{files:?}");
            }
        }
        assert!(parts(MEMINFO).all(|text| total(text).is_none_or(|bytes| bytes == MACHINE)));
    }

    #[test]
    fn this_machine_has_a_bound() {
        let bound = lowest_bound().expect("/proc is mounted");
        assert!(bound.bytes > 1 << 20 && bound.file.is_absolute(), "{bound:?}");
    }
}
