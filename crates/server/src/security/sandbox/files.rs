//! Landlock: the files, TCP ports and processes that this thread may access.

use super::extent::{Extent, Lack};
use super::needs::Needs;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

/// All that Linux 6.12 can restrict. Older kernels restrict less.
const LEVEL: ABI = ABI::V6;

/// Confines this thread.
pub(super) fn confine(needs: &Needs) -> Result<Extent, Lack> {
    match restrict(needs).map_err(|error| error.to_string())?.ruleset {
        RulesetStatus::FullyEnforced => Ok(Extent::Whole),
        RulesetStatus::PartiallyEnforced => Ok(Extent::Part),
        RulesetStatus::NotEnforced => Err("the kernel has no Landlock, or does not allow it".into()),
    }
}

fn restrict(needs: &Needs) -> Result<RestrictionStatus, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let make = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile;
    // Paths that do not exist are left out.
    Ruleset::default()
        .handle_access(AccessFs::from_all(LEVEL))?
        .handle_access(AccessNet::from_all(LEVEL))?
        .scope(scope())?
        .create()?
        .add_rules(path_beneath_rules(&needs.read, read))?
        .add_rules(path_beneath_rules(&needs.write, read | make))?
        .add_rules(path_beneath_rules(&needs.make, make))?
        .restrict_self()
}

/// Forbids signals to other processes, and connections to abstract sockets of other processes. The
/// latter stay allowed if systemd is notified by an abstract socket.
fn scope() -> BitFlags<Scope> {
    let is_told_by_one =
        std::env::var_os("NOTIFY_SOCKET").is_some_and(|path| path.as_encoded_bytes().starts_with(b"@"));
    if is_told_by_one { Scope::Signal.into() } else { Scope::from_all(LEVEL) }
}
