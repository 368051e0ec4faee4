//! Giving up root (`-u`).

use crate::error::StartError;
use crate::observability::log::{Level, Log};
use crate::options::Options;
use nix::unistd::{Uid, User, setgid, setuid};

/// Gives up root: becomes the user of `-u`. Does nothing if the process does not run as root.
///
/// # Errors
/// If there is no such user, or the kernel refuses.
pub(crate) fn drop_privileges(options: &Options, log: &Log) -> Result<(), StartError> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let Some(name) = options.user.as_deref() else {
        log.write(Level::Warning, format_args!("running as root; -u USER drops root after start-up"));
        return Ok(());
    };
    let user = user(name)?;
    let become_user = || {
        #[cfg(not(target_vendor = "apple"))]
        nix::unistd::initgroups(&std::ffi::CString::new(name).map_err(|_| nix::Error::EINVAL)?, user.gid)?;
        setgid(user.gid)?;
        setuid(user.uid)
    };
    if user.uid.is_root() {
        return Ok(());
    }
    become_user().map_err(|error| StartError::System(format!("cannot become user {name:?}"), error.into()))?;
    #[cfg(target_os = "linux")]
    if options.enable_coredumps {
        // After setuid the kernel disables core dumps; turn them back on. Ignore failure: the
        // operator will notice the missing file.
        let _ = nix::sys::prctl::set_dumpable(true);
    }
    Ok(())
}

/// The user of that name.
///
/// # Errors
/// If there is no such user.
pub(crate) fn user(name: &str) -> Result<User, StartError> {
    User::from_name(name).ok().flatten().ok_or_else(|| StartError::NoSuchUser(name.into()))
}
