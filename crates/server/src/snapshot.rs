//! Items in a file (`--snapshot`), so that a restarted server is not empty.
//!
//! A snapshot is written to a new file next to the old one, flushed to the disk, and then renamed
//! to replace the old one. Even if the writer is killed or the disk is full, one of them exists and
//! is complete. The reader trusts nothing: it refuses a file that is incomplete, damaged, or not a
//! snapshot, and the cache starts empty.
//!
//! **After a crash the cache starts empty**, because every snapshot is older than the crash: items
//! that clients deleted or overwrote since would come back. So after reading a file, the server
//! removes it before it serves clients. It also refuses a file that was written while clients were
//! served (SIGUSR2). With `--warm-after-crash` it does neither.
//!
//! A file written while clients are served has each item that existed all the time, in a state that
//! it had meanwhile, and no item that was flushed meanwhile. Items keep their values, flags,
//! remaining time to live, marks of the meta protocol, and CAS values that clients have set. Other
//! CAS values are new, and unknown to clients. Items return to the tenant of the same name. They
//! are left out if there is none: another tenant must not see them.

mod format;
mod moment;
pub(crate) mod record;

use crate::observability::log::{Level, Log};
use crate::process::files::folder;
use crate::tenants::Caches;
pub(crate) use format::Occasion;
use format::{Refusal, Summary};
use moment::{BootId, Moment};
use nix::unistd::{AccessFlags, access};
use relativist_store::{Cache, OutOfMemory, Ticker};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
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
    /// This boot's identity, read before the process is confined.
    boot: Option<BootId>,
    /// Locked by the thread that writes.
    writing: Mutex<()>,
}

impl Snapshot {
    /// Snapshots at `path`.
    ///
    /// # Errors
    /// When the folder does not exist or is not writable. It is better to fail now than at the end.
    pub fn new(path: PathBuf, warm_after_crash: bool) -> io::Result<Snapshot> {
        access(folder(&path), AccessFlags::W_OK | AccessFlags::X_OK)?;
        Ok(Snapshot { path, warm_after_crash, boot: moment::boot_id(), writing: Mutex::default() })
    }

    /// Caches made by `make` with the items of the file, and whether the file was used. Without a
    /// file, or if the file is refused, the caches are empty; the log says why.
    ///
    /// # Errors
    /// When there is no memory for empty caches.
    pub(crate) fn restore(
        &self,
        make: impl Fn() -> Result<Caches, OutOfMemory>,
        log: &Log,
    ) -> Result<(Caches, Restored), OutOfMemory> {
        // A draft has values, and the next snapshot may be far away. An error is reported then.
        let _ = remove_draft(&draft(&self.path));
        let (caches, start, path) = (make()?, Instant::now(), self.path.display());
        match self.read(&caches) {
            Ok(None) => {
                log.write(Level::Internal, format_args!("there is no snapshot {path} yet"));
                Ok((caches, Restored { is_file_used: false }))
            }
            Ok(Some(Summary { items, left_out })) => {
                log.write(
                    Level::Trouble,
                    format_args!("{items} items from {path} in {:.1?}, {left_out} left out", start.elapsed()),
                );
                Ok((caches, Restored { is_file_used: true }))
            }
            Err(refusal) => {
                log.write(Level::Warning, format_args!("the cache starts empty, because {path} is refused: {refusal}"));
                // Items read before the refusal are not trusted either.
                drop(caches);
                Ok((make()?, Restored { is_file_used: false }))
            }
        }
    }

    /// Removes the file that was read, unless it may be read again after a crash. Call this when
    /// all else that can fail at the start has succeeded, and before clients are served.
    ///
    /// # Errors
    /// When the file cannot be removed, so that it would be read after a crash.
    pub fn retire(&self, restored: Restored) -> io::Result<()> {
        if restored.is_file_used && !self.warm_after_crash {
            fs::remove_file(&self.path)?;
            // Otherwise the file might reappear after a crash of the system or a loss of power.
            File::open(folder(&self.path))?.sync_all()?;
        }
        Ok(())
    }

    fn read(&self, caches: &Caches) -> Result<Option<Summary>, Refusal> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let length = file.metadata()?.len();
        let now = Moment::now(self.boot);
        let named = |name: &str| caches.named(name);
        format::read(io::BufReader::new(file), Some(length), named, self.warm_after_crash, &now).map(Some)
    }

    /// Writes the items of all `caches`, each with the name of its tenant, and returns their
    /// number. Concurrent calls wait for each other.
    ///
    /// # Errors
    /// When the file cannot be written. The previous snapshot is still there.
    pub(crate) fn write(&self, caches: &[(&str, &Cache)], occasion: Occasion) -> io::Result<u64> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        replace(&self.path, |file| format::write(file, caches, occasion, &Moment::now(self.boot)))
    }

    /// Whether the server reads a snapshot after a crash, even if it was written while clients were
    /// served.
    pub(crate) fn is_read_after_crash(&self) -> bool {
        self.warm_after_crash
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Sends the items of all `caches`, whose clock is that of `ticker`, to another process, and
/// returns their number. No other thread may execute requests meanwhile.
pub(crate) fn send(out: &mut impl Write, caches: &[(&str, &Cache)], ticker: &Ticker) -> io::Result<u64> {
    // The clock may be behind, because the thread that drives it stands still.
    format::write(out, caches, Occasion::End, &Moment::at_tick(ticker, None))
}

/// Receives the items of another process into the caches that `named` returns, which are empty, and
/// whose clock is that of `ticker`. Returns how many there are, and how many were left out.
pub(crate) fn receive<'c>(
    source: &mut impl Read,
    named: impl Fn(&str) -> Option<&'c Cache>,
    ticker: &Ticker,
) -> io::Result<(u64, u64)> {
    // The clock may be behind, because nothing drives it yet.
    match format::read(io::BufReader::new(source), None, named, false, &Moment::at_tick(ticker, None)) {
        Ok(Summary { items, left_out }) => Ok((items, left_out)),
        Err(Refusal::Unreadable(error)) => Err(error),
        Err(Refusal::Torn) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(refusal) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("the items are refused: {refusal}"))),
    }
}

/// Whether a server has started with the items of its snapshot.
#[derive(Debug)]
#[must_use]
pub struct Restored {
    is_file_used: bool,
}

/// The file that becomes the one at `path` when it is complete.
fn draft(path: &Path) -> PathBuf {
    let mut draft = OsString::from(path);
    draft.push(".new");
    draft.into()
}

/// Removes a draft that a server left because it was killed.
fn remove_draft(draft: &Path) -> io::Result<()> {
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Atomically replaces the file at `path` by what `write` writes.
fn replace<T>(path: &Path, write: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    let draft = draft(path);
    remove_draft(&draft)?;
    // Values are confidential.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = write(&mut file).and_then(|result| file.sync_all().map(|()| result));
    let renamed = written.and_then(|result| fs::rename(&draft, path).map(|()| result));
    if renamed.is_err() {
        // The disk may be full, so an incomplete file must not stay. The first error is reported.
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
    fn an_unwritable_folder_is_an_error_at_the_start() {
        assert!(Snapshot::new("/nonexistent/snapshot".into(), false).is_err());
        assert!(Snapshot::new("snapshot".into(), false).is_ok(), "here");
    }
}
