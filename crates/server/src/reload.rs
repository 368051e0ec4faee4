//! Reading the options again (SIGHUP).
//!
//! The command line is parsed again, with its file of `--config` as it is now. Then the files of
//! users and certificates are read. Nothing changes unless all of them are right. What the running
//! server cannot change is logged.
//!
//! Clients can change some settings, too (`verbosity`, `cache_memlimit`, `lru_crawler`). Their
//! values stay until the value in the file changes. So a reload for a new certificate does
//! not undo them.

use crate::execute::SharedState;
use crate::observability::log::Level;
use crate::options::{CommandLine, Options, problem};
use crate::process::resources;
use crate::security::auth::Users;
use crate::tenants::Plan;
use std::sync::{Arc, Mutex, PoisonError};

/// Reloads the options of a server.
pub struct Reloader {
    shared: Arc<SharedState>,
    /// The command line of the start.
    start: CommandLine,
    /// The command line when it was last reloaded. Locked while it is reloaded.
    last: Mutex<CommandLine>,
}

impl Reloader {
    /// For a server that was started by `start`.
    pub(crate) fn new(shared: Arc<SharedState>, start: CommandLine) -> Reloader {
        Reloader { shared, last: Mutex::new(start.clone()), start }
    }

    /// Reloads the options, the users and the certificates. If that fails, everything stays as it
    /// is, and the log reports it.
    pub fn reload(&self) {
        if let Err(problem) = self.try_reload() {
            self.shared.log.write(Level::Warning, format_args!("nothing was reloaded: {problem}"));
        }
    }

    fn try_reload(&self) -> Result<(), String> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (shared, log) = (&*self.shared, &self.shared.log);
        let line = self.start.again().map_err(|error| problem(&error))?;
        line.options.check().map_err(|error| error.to_string())?;
        let before = shared.live.get();
        let mut after = before.with_changes(&line.options);
        if after.cluster_node != before.cluster_node {
            after.cluster_changed = shared.ticker.clock().now().max(before.cluster_changed.max(shared.started) + 1);
        }
        // What cannot change may contradict what can.
        after.check().map_err(|error| error.to_string())?;
        let read_users = |users: &Users| {
            let file = after.auth_file.as_deref().unwrap_or(users.file());
            users.read(file).map_err(|error| format!("cannot read the users in {}: {error}", file.display()))
        };
        let new_users = shared.users.as_ref().map(read_users).transpose()?;
        let plan = Plan::new(&after, new_users.as_ref())?;
        let change = shared.tenants.prepare(plan, shared.ticker.clock(), &after)?;
        let certificates = shared.tls.as_ref().map(|tls| tls.read(Some(&after.extended.ssl), log)).transpose()?;
        // Nothing can fail from here on.
        let (rest, is_shared) = (change.rest, !shared.tenants.is_empty());
        for line in shared.tenants.change(change) {
            log.write(Level::Trouble, format_args!("{line}"));
        }
        let is_shared = is_shared || !shared.tenants.is_empty();
        // Clients can change the limit, but not while there are tenants.
        if after.memory_limit != before.memory_limit || is_shared {
            shared.common.cache.set_limit(rest);
        }
        if let (Some(users), Some(new)) = (&shared.users, new_users) {
            users.replace(new);
            // Without tenants, connections stay logged in, as in memcached.
            if is_shared {
                shared.connections.revoke(users);
            }
        }
        if let Some(certificates) = certificates {
            certificates.apply(log);
        }
        apply(shared, &before, after);
        self.report(&last, &line);
        *last = line;
        log.write(Level::Trouble, format_args!("options, users and certificates were reloaded"));
        Ok(())
    }

    fn report(&self, last: &CommandLine, line: &CommandLine) {
        let log = &self.shared.log;
        for changed in last.differences(line).iter().filter(|difference| difference.is_changeable) {
            log.write(
                Level::Trouble,
                format_args!("{} was {}, and is now {}", changed.option, changed.now, changed.file),
            );
        }
        for kept in self.start.differences(line).iter().filter(|difference| !difference.is_changeable) {
            log.write(
                Level::Warning,
                format_args!(
                    "{} cannot change without a restart: it was {} at the start, and is {} in the file",
                    kept.option, kept.now, kept.file
                ),
            );
        }
    }
}

fn apply(shared: &SharedState, before: &Options, after: Options) {
    let tenants = shared.tenants.all();
    shared.caches(&tenants).for_each(|(_, cache)| cache.set_evict_for(after.extended.evict_for));
    if after.verbose != before.verbose {
        shared.log.set_verbosity(after.verbose);
    }
    if after.conn_limit > before.conn_limit {
        resources::allow_connections(after.conn_limit, after.threads, &shared.log);
    }
    shared.connection_limit.set_limit(after.conn_limit as usize);
    shared.buffer_limit.set_limit(after.buffer_bytes());
    shared.tuning.reload(&before.extended, &after.extended);
    // Workers notice a new idle timeout when the acceptor wakes them.
    shared.live.set(after);
}
