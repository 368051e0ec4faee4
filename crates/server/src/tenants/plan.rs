//! How the memory of `-m` is divided.

use crate::options::Options;
use crate::security::auth::{TenantLine, UserList};

/// The smallest cache, in bytes, as in `cache_memlimit`.
const MIN_MEMORY: usize = 8 << 20;

/// The tenants of a file, with their memory in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) tenants: Vec<(TenantLine, usize)>,
    /// The memory of the users without a tenant.
    pub(crate) rest: usize,
}

impl Plan {
    /// Divides the memory of `options` among the tenants of `users`.
    ///
    /// # Errors
    /// When the memory is not enough.
    pub(crate) fn new(options: &Options, users: Option<&UserList>) -> Result<Plan, String> {
        let whole = options.memory_bytes();
        let Some(users) = users.filter(|users| !users.tenants().is_empty()) else {
            return Ok(Plan { tenants: Vec::new(), rest: whole });
        };
        let least = MIN_MEMORY.max(2 * options.max_item_size);
        let mut rest = whole;
        let mut tenants = Vec::new();
        for tenant in users.tenants() {
            let (bytes, name) = (tenant.memory.of(whole), &tenant.name);
            if bytes < least {
                return Err(format!(
                    "tenant {name} would have {} of memory, and needs {} (8 MiB, and twice the largest item, -I)",
                    mebibytes(bytes),
                    mebibytes(least)
                ));
            }
            rest = rest.checked_sub(bytes).ok_or_else(|| {
                format!("there is too little memory for tenant {name}: all tenants together have more than -m")
            })?;
            tenants.push((tenant.clone(), bytes));
        }
        if users.has_common() && rest < least {
            return Err(format!(
                "the tenants leave {} of -m to the users without a tenant, which need {}",
                mebibytes(rest),
                mebibytes(least)
            ));
        }
        Ok(Plan { tenants, rest })
    }
}

fn mebibytes(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}
