//! Tenants: teams that share a server, and know nothing of each other.
//!
//! A tenant is a group of users in the file of `-Y` (or of SASL). It has a **cache of its own**,
//! with a part of `-m`, and counters, hot keys, counts by prefix and watchers of its own. A
//! connection belongs to the tenant of the user that has logged in, and an
//! [`Executor`](crate::execute::Executor) reads and changes items only by the tenant that it was
//! made for. So no command of any protocol can read, list, flush or evict an item of another
//! tenant, because none can name it: that needs no check for each command, and costs nothing where
//! there are no tenants. All users outside tenants share the *common* cache, as with memcached.
//!
//! **Prefixes.** A tenant may have a prefix, with which all of its keys must begin. Other keys are
//! refused with an error, as in the ACLs of Redis: a prefix that the server added by itself would
//! show keys in dumps and logs that no client knows. Separate caches need no prefix, but with one
//! the keys in logs and in `stats hotkeys` show to whom they belong, and teams can move between
//! servers without collisions.
//!
//! **The server as a whole.** While there are tenants, no client may stop the server, nor change
//! its settings (`shutdown`, `cache_memlimit`, `verbosity`, `slabs`, `lru`, `lru_crawler` except
//! dumps, `refresh_certs`): that is the operator's. Datagrams and logins exclude each other. A
//! certificate of a client replaces no login.
//!
//! **Limits.** A file has at most 32 tenants, with 8 users each (any number for SASL). Each has at
//! least 8 MiB, and twice the largest item. All parts together have at most `-m`, and the rest
//! belongs to the users outside tenants.
//!
//! **Reloads** add tenants, and change their memory. A part that shrinks gives its memory back
//! within seconds. The items of a tenant that has left the file are freed. Connections are closed
//! whose user has left the file, or has another password or tenant. (Without tenants they stay, as
//! in memcached.)
//!
//! **Restarts.** Snapshots and hand-overs keep the items of each tenant by the tenant's name. Items
//! of a tenant that does not exist any more are left out.

mod caches;
mod plan;

pub(crate) use caches::{Caches, empty_cache};
pub(crate) use plan::Plan;
