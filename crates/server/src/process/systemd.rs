//! The interface to systemd: sockets that it has opened for the server, and notifications of start
//! and stop.
//!
//! Without systemd all of this does nothing.

use crate::error::StartError;
use sd_notify::NotifyState;
use socket2::Socket;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The sockets passed to this process (`LISTEN_FDS`). Only the first call returns them.
pub(crate) fn sockets() -> Result<Vec<Socket>, StartError> {
    static ARE_TAKEN: AtomicBool = AtomicBool::new(false);
    // Relaxed: only one caller finds it unset, and no other data depends on it.
    if ARE_TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let descriptors = sd_notify::listen_fds()
        .map_err(|error| StartError::System("cannot use the sockets of systemd (LISTEN_FDS)".into(), error))?;
    let adopt = |descriptor| {
        // SAFETY: it is open, because it was marked close-on-exec. LISTEN_PID shows that it was
        // opened for this process, and the swap above that no other caller takes it.
        Socket::from(unsafe { OwnedFd::from_raw_fd(descriptor) })
    };
    Ok(descriptors.map(adopt).collect())
}

/// Whether systemd has passed sockets to this process.
pub fn has_sockets() -> bool {
    let is_ours = |pid: String| pid.parse() == Ok(std::process::id());
    std::env::var_os("LISTEN_FDS").is_some() && std::env::var("LISTEN_PID").is_ok_and(is_ours)
}

/// Notifies that the server serves. One that has taken over becomes the service's main process.
pub fn notify_ready(has_taken_over: bool) {
    if has_taken_over {
        send(NotifyState::MainPid(std::process::id()));
    }
    send(NotifyState::Ready);
}

/// Notifies the service manager that the server is stopping, which takes long if there is a
/// snapshot to write.
pub(crate) fn notify_stopping() {
    send(NotifyState::Stopping);
}

fn send(state: NotifyState<'_>) {
    // Best effort: the service manager will notice by other means.
    let _ = sd_notify::notify(&[state]);
}
