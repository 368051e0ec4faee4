//! Items in a file, so that a server that is started again begins warm (`--snapshot`).
//!
//! A snapshot is written to a file beside the old one, forced to the disk, and then renamed over
//! it: whenever the writer is killed or the disk is full, there is the old one or the new one,
//! whole. Reading trusts nothing: a file that is torn, foreign or changed is refused, and the cache
//! starts empty.
//!
//! **After a crash the cache starts empty**, because every snapshot is older than the crash: items
//! that clients deleted or overwrote since would come back. So the server removes a file that it
//! has read before it serves clients, and refuses a file that was written while clients went on
//! (SIGUSR2). With `--warm-after-crash` it does neither.
//!
//! A file written while clients go on has each item that was there all the time, as it was at some
//! moment meanwhile, and no item that was flushed meanwhile. Items keep their values, flags,
//! remaining time to live, marks of the meta protocol, and uniques that clients have given. Other
//! uniques are new, and unknown to clients.

mod format;
mod moment;

use crate::observability::log::{Level, Log};
pub(crate) use format::Occasion;
use format::{Refusal, Summary};
use moment::{BootId, Moment};
use nix::unistd::{AccessFlags, access};
use relativist_cache::{Cache, OutOfMemory};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The file of the snapshots.
#[derive(Debug)]
pub struct Snapshot {
    path: PathBuf,
    /// Whether the server starts with the last snapshot even after a crash.
    warm_after_crash: bool,
    /// Read before the process is confined.
    boot: Option<BootId>,
    /// Held by the thread that writes.
    writing: Mutex<()>,
}

impl Snapshot {
    /// Snapshots at `path`.
    ///
    /// # Errors
    /// When the folder does not exist or may not be written: better known now than at the end.
    pub fn new(path: PathBuf, warm_after_crash: bool) -> io::Result<Snapshot> {
        access(folder(&path), AccessFlags::W_OK | AccessFlags::X_OK)?;
        Ok(Snapshot { path, warm_after_crash, boot: moment::boot_id(), writing: Mutex::default() })
    }

    /// An engine made by `make` with the items of the file, and whether the file was used. Without
    /// a file, or if the file is refused, the engine is empty; the log says why.
    ///
    /// # Errors
    /// When there is no memory for an empty engine.
    pub fn restore(
        &self,
        make: impl Fn() -> Result<Cache, OutOfMemory>,
        log: &Log,
    ) -> Result<(Cache, Restored), OutOfMemory> {
        let (engine, start, path) = (make()?, Instant::now(), self.path.display());
        match self.read(&engine) {
            Ok(None) => {
                log.say(Level::Internal, format_args!("there is no snapshot {path} yet"));
                Ok((engine, Restored { is_file_used: false }))
            }
            Ok(Some(Summary { items, left_out })) => {
                log.say(
                    Level::Trouble,
                    format_args!("{items} items from {path} in {:.1?}, {left_out} left out", start.elapsed()),
                );
                Ok((engine, Restored { is_file_used: true }))
            }
            Err(refusal) => {
                log.say(Level::Warning, format_args!("the cache starts empty, because {path} is refused: {refusal}"));
                // Items read before the refusal are not trusted either.
                drop(engine);
                Ok((make()?, Restored { is_file_used: false }))
            }
        }
    }

    /// Removes the file that was read, unless it may be read again after a crash. Call this when
    /// all else that can fail at the start has succeeded, and before clients are served.
    ///
    /// # Errors
    /// When it cannot be removed, so that it would be read after a crash.
    pub fn retire(&self, restored: Restored) -> io::Result<()> {
        if restored.is_file_used && !self.warm_after_crash {
            fs::remove_file(&self.path)?;
            // Otherwise the file might be back after a crash of the system or a loss of power.
            File::open(folder(&self.path))?.sync_all()?;
        }
        Ok(())
    }

    fn read(&self, engine: &Cache) -> Result<Option<Summary>, Refusal> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let length = file.metadata()?.len();
        let now = Moment::now(self.boot);
        format::read(io::BufReader::new(file), length, engine, self.warm_after_crash, &now).map(Some)
    }

    /// Writes the items of `engine`, and returns their number. A second caller waits for the first.
    ///
    /// # Errors
    /// When the file cannot be written. The snapshot that was there before still is.
    pub fn write(&self, engine: &Cache, occasion: Occasion) -> io::Result<u64> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        replace(&self.path, |file| format::write(file, engine, occasion, &Moment::now(self.boot)))
    }

    /// Whether the server reads, after a crash, a file written while clients went on.
    pub(crate) fn is_read_after_crash(&self) -> bool {
        self.warm_after_crash
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether a server has started with the items of its snapshot.
#[derive(Debug)]
#[must_use]
pub struct Restored {
    is_file_used: bool,
}

/// Where the file at `path` is, or would be.
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Puts what `write` writes in the place of the file at `path`, all at once.
fn replace<T>(path: &Path, write: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    let mut draft = OsString::from(path);
    draft.push(".new");
    // One that was killed may have left its draft.
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => (),
    }
    // Values are confidential.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = write(&mut file).and_then(|result| file.sync_all().map(|()| result));
    let renamed = written.and_then(|result| fs::rename(&draft, path).map(|()| result));
    if renamed.is_err() {
        // The disk may be full: a useless file must not stay. The first error is reported.
        let _ = fs::remove_file(&draft);
    }
    let result = renamed?;
    // The rename itself has to survive a loss of power.
    File::open(folder(path))?.sync_all()?;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_writer_that_fails_leaves_the_old_file_and_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("snapshot");
        fs::write(&path, "old").unwrap();
        fs::write(folder.path().join("snapshot.new"), "left by one that was killed").unwrap();
        let failure = replace(&path, |file| {
            file.write_all(b"ne")?;
            Err::<(), _>(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failure.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        replace(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_noticed_early() {
        assert!(Snapshot::new("/nonexistent/snapshot".into(), false).is_err());
        assert!(Snapshot::new("snapshot".into(), false).is_ok(), "here");
    }
}
