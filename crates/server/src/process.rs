//! What the server asks of the operating system for itself: descriptors, and to be somebody else than root.

use crate::error::StartError;
use crate::log::{Level, Log};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Uid, User, setgid, setuid};

/// Descriptors needed besides one per connection: listeners, event queues, standard streams.
const DESCRIPTORS_OF_OUR_OWN: u64 = 64;

/// Raises the limit on open files so that `connections` can be open.
pub(crate) fn allow_connections(connections: u64, log: &Log) {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let wanted = connections + DESCRIPTORS_OF_OUR_OWN;
    if soft >= wanted {
        return;
    }
    // Only root may exceed the hard limit.
    let is_raised = setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted.max(hard)).is_ok()
        || setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard).is_ok() && wanted <= hard;
    if !is_raised {
        log.say(
            Level::Warning,
            format_args!("the limit on open files, {hard}, is too low for {connections} connections (-c)"),
        );
    }
}

/// Stops being root: becomes `user`. Does nothing for who is not root.
///
/// # Errors
/// If there is no such user, or the kernel refuses.
pub(crate) fn drop_privileges(user: Option<&str>, log: &Log) -> Result<(), StartError> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let Some(name) = user else {
        log.say(Level::Warning, format_args!("running as root; -u USER makes it somebody else after start-up"));
        return Ok(());
    };
    let user = User::from_name(name).ok().flatten().ok_or_else(|| StartError::NoSuchUser(name.into()))?;
    let become_user = || {
        #[cfg(not(target_vendor = "apple"))]
        nix::unistd::initgroups(&std::ffi::CString::new(name).map_err(|_| nix::Error::EINVAL)?, user.gid)?;
        setgid(user.gid)?;
        setuid(user.uid)
    };
    if user.uid.is_root() {
        return Ok(());
    }
    become_user().map_err(|error| StartError::System(format!("cannot become user {name:?}"), error.into()))
}
