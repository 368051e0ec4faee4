//! The side of the successor.

use super::wire::Wire;
use super::{BEGIN, GO, LOADED};
use crate::error::StartError;
use crate::observability::log::{Level, Log};
use crate::options::Options;
use crate::process::inherited::{Inherited, Passed};
use crate::security::privileges;
use crate::snapshot;
use crate::tenants::Caches;
use relativist_store::{OutOfMemory, Ticker};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A server that hands over to this process.
pub(crate) struct Predecessor {
    wire: Wire<fn() -> bool>,
    path: PathBuf,
}

impl Predecessor {
    /// Connects to the server that `options` name, if they name one, and receives its sockets.
    pub(crate) fn meet(options: &Options) -> Result<(Option<Predecessor>, Inherited), StartError> {
        let Some(path) = &options.take_over else { return Ok((None, Inherited::default())) };
        // This process may still be root, and the server may have become another user.
        let friend = options.user.as_deref().map(privileges::user).transpose()?.map(|user| user.uid);
        let meet = || {
            let never: fn() -> bool = || false;
            let mut wire = Wire::new(UnixStream::connect(path)?, never)?;
            wire.check_peer(friend)?;
            wire.send_header(&Passed::default())?;
            let inherited = Inherited::new(wire.receive_header()?);
            Ok((Some(Predecessor { wire, path: path.clone() }), inherited))
        };
        meet().map_err(|error| cannot_take_over(path, error))
    }

    /// Caches made by `make`, with the clock of `ticker`, and with the items of the server, which
    /// executes no requests from now on.
    pub(crate) fn take_items(
        &mut self,
        make: impl FnOnce() -> Result<Caches, OutOfMemory>,
        ticker: &Ticker,
        log: &Log,
    ) -> Result<Caches, StartError> {
        let (caches, start) = (make().map_err(|_| StartError::NoMemory)?, Instant::now());
        let take = || {
            self.wire.write_all(&[BEGIN])?;
            let mut last_cas = [0; 8];
            self.wire.read_exact(&mut last_cas)?;
            let caches = caches.with_cas_after(u64::from_le_bytes(last_cas));
            let (items, left_out) = snapshot::receive(&mut self.wire, |name| caches.named(name), ticker)?;
            Ok((caches, items, left_out))
        };
        let (caches, items, left_out) = take().map_err(|error| cannot_take_over(&self.path, error))?;
        let (path, took) = (self.path.display(), start.elapsed());
        log.write(Level::Trouble, format_args!("{items} items from {path} in {took:.1?}, {left_out} left out"));
        Ok(caches)
    }

    /// Lets the server end. This process must serve if this succeeds, and must not if it fails.
    pub(crate) fn replace(mut self) -> Result<(), StartError> {
        let replaced = self.wire.write_all(&[LOADED]).and_then(|()| self.wire.expect(GO));
        replaced.map_err(|error| cannot_take_over(&self.path, error))
    }
}

fn cannot_take_over(path: &Path, error: io::Error) -> StartError {
    StartError::System(format!("cannot take over from the server at {} (--take-over)", path.display()), error)
}
