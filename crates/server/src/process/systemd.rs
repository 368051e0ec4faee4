//! What the server and systemd say to each other: sockets that it has opened for us, and when we serve and stop.
//!
//! Under anything else all of this does nothing.

use crate::error::StartError;
use sd_notify::NotifyState;
use socket2::Socket;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The sockets that were handed to this process (`LISTEN_FDS`), to whoever asks first.
pub(crate) fn sockets() -> Result<Vec<Socket>, StartError> {
    static ARE_TAKEN: AtomicBool = AtomicBool::new(false);
    // Relaxed: who finds it unset is the only one, and nothing else was written.
    if ARE_TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let descriptors = sd_notify::listen_fds()
        .map_err(|error| StartError::System("cannot use the sockets of systemd (LISTEN_FDS)".into(), error))?;
    let adopt = |descriptor| {
        // SAFETY: it is open, as marking it close-on-exec has shown; LISTEN_PID says that it was opened for this process, in which
        // nobody else takes it: they are handed out once.
        Socket::from(unsafe { OwnedFd::from_raw_fd(descriptor) })
    };
    Ok(descriptors.map(adopt).collect())
}

/// Whether there are sockets for this process, and not for one that it would start.
pub fn has_sockets() -> bool {
    let is_ours = |pid: String| pid.parse() == Ok(std::process::id());
    std::env::var_os("LISTEN_FDS").is_some() && std::env::var("LISTEN_PID").is_ok_and(is_ours)
}

/// Says that clients are served from now on.
pub fn tell_ready() {
    tell(NotifyState::Ready);
}

/// Says that the end has begun. It may take longer than usual, if there is a snapshot to write.
pub(crate) fn tell_stopping() {
    tell(NotifyState::Stopping);
}

fn tell(state: NotifyState<'_>) {
    // A service manager that does not listen is its own problem; it will find out by other means.
    let _ = sd_notify::notify(&[state]);
}
