//! The files that a server needs.

use crate::options::Options;
use crate::process::files::folder;
use nix::sys::resource::{Resource, getrlimit};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What a server needs in the file system after it has bound its sockets.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// Files, and folders with all that is in them.
    pub(super) read: Vec<PathBuf>,
    /// Files, and folders in which files are made, written, read, replaced and removed.
    pub(super) write: Vec<PathBuf>,
    /// Folders in which files are made, written and removed, but not read.
    pub(super) make: Vec<PathBuf>,
    /// Paths that are not granted because they are in `/`: a rule for a folder covers everything
    /// below it.
    pub(super) lost: BTreeSet<&'static str>,
}

impl Needs {
    pub(super) fn of<'f>(options: &Options, files: impl IntoIterator<Item = &'f Path>) -> Needs {
        let mut needs = Needs::default();
        for file in files {
            // The file that is read later may be a new file, or a link, at the same path.
            for file in file.canonicalize().as_deref().into_iter().chain([file]) {
                needs.grant(|needs| &mut needs.read, folder(file), "SIGHUP reads no files there, use another folder");
            }
        }
        if let Some(file) = &options.snapshot {
            needs.grant(|needs| &mut needs.write, folder(file), "no snapshot is written there, use another folder");
        }
        if let Some(file) = &options.pidfile {
            needs.grant(|needs| &mut needs.make, folder(file), "no pid file is written there (-P), use another folder");
        }
        if let Some(folder) = options.enable_coredumps.then(core_folder).flatten() {
            let lost = "no core files are written there (-r), use WorkingDirectory= or an absolute core_pattern";
            needs.grant(|needs| &mut needs.make, &folder, lost);
        }
        // For the standard streams of a daemon.
        needs.write.push("/dev/null".into());
        // For the names in a panic's backtrace, and for the number of processors that a container
        // may use.
        needs.read.extend(std::env::current_exe());
        needs.read.extend(["/proc/self", "/sys/fs/cgroup"].map(PathBuf::from));
        needs
    }

    /// Adds a folder to a list. If it is `/`, adds `lost` instead: what the server cannot do
    /// without it.
    pub(super) fn grant(&mut self, list: fn(&mut Needs) -> &mut Vec<PathBuf>, folder: &Path, lost: &'static str) {
        if folder.canonicalize().is_ok_and(|folder| folder.parent().is_none()) {
            self.lost.insert(lost);
        } else {
            list(self).push(folder.into());
        }
    }
}

/// The folder in which the kernel would write a core file, if this process may have one. The kernel
/// writes it with the rights of this process.
fn core_folder() -> Option<PathBuf> {
    let (most, _) = getrlimit(Resource::RLIMIT_CORE).ok()?;
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").ok()?;
    if most == 0 { None } else { folder_of_pattern(pattern.trim_end()).map(PathBuf::from) }
}

fn folder_of_pattern(pattern: &str) -> Option<&Path> {
    // The kernel passes core files to a program or a socket with rights of its own.
    if pattern.starts_with(['|', '@']) {
        return None;
    }
    // The folder's path may also contain variables: take what precedes them.
    let fixed = pattern.split('%').next().unwrap_or_default();
    Some(Path::new(match fixed.rsplit_once('/') {
        None => ".",
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
    }))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_core_pattern_names_a_folder() {
        for (pattern, folder) in [
            ("core", "."),
            ("core.%e.%p", "."),
            ("cores/core.%p", "cores"),
            ("/var/crash/core.%p", "/var/crash"),
            ("/var/crash/%e/core", "/var/crash"),
            ("/core", "/"),
            ("/%e/core", "/"),
        ] {
            assert_eq!(folder_of_pattern(pattern), Some(Path::new(folder)), "{pattern}");
        }
        assert_eq!(folder_of_pattern("|/usr/bin/handler %p"), None);
        assert_eq!(folder_of_pattern("@/run/handler"), None);
    }

    #[test]
    fn the_root_is_never_granted() {
        let options = Options::parse_from_args(["relativistd", "-e", "/items", "-P", "/../r.pid"]).unwrap();
        let needs = Needs::of(&options, [Path::new("/proc/self/root/users")]);
        let lists = [&needs.read, &needs.write, &needs.make];
        for path in lists.into_iter().flatten() {
            assert_ne!(path.canonicalize().ok().as_deref(), Some(Path::new("/")), "{path:?}");
        }
        assert_eq!(needs.lost.len(), 3, "{:?}", needs.lost);
    }

    #[test]
    fn core_files_need_a_folder_only_if_enabled() {
        let options = |args: &[&str]| Options::parse_from_args([&["relativistd"], args].concat()).unwrap();
        assert_eq!(Needs::of(&options(&[]), []).make, Vec::<PathBuf>::new());
        let granted = Needs::of(&options(&["-r"]), []);
        assert_eq!(granted.make.len() + granted.lost.len(), usize::from(core_folder().is_some()));
    }

    #[test]
    fn little_is_needed_by_default() {
        let needs = Needs::of(&Options::parse_from_args(["relativistd"]).unwrap(), []);
        let program = std::env::current_exe().unwrap();
        assert_eq!(needs.read, [&*program, Path::new("/proc/self"), Path::new("/sys/fs/cgroup")]);
        assert_eq!((needs.write, needs.make), (vec!["/dev/null".into()], Vec::new()));
    }

    #[test]
    fn files_named_by_options_are_needed() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("in/users"), folder.path().join("users"));
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::write(&target, "a:b").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let options = Options::parse_from_args(["relativistd", "-e", "/var/lib/items", "-P", "/run/r.pid"]).unwrap();
        let needs = Needs::of(&options, [&*link]);
        let has = |paths: &[PathBuf], path: &Path| paths.iter().any(|other| other == path);
        assert!(has(&needs.read, folder.path()) && has(&needs.read, &folder.path().canonicalize().unwrap().join("in")));
        assert!(has(&needs.write, Path::new("/var/lib")) && has(&needs.make, Path::new("/run")));
        assert!(!has(&needs.write, Path::new("/run")), "pid files need not be read");
    }
}
