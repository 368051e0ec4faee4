//! The options of a running server.

use super::Options;
use std::sync::{Arc, PoisonError, RwLock};

/// The options in force: those of the start, with the changes of reloads since.
#[derive(Debug)]
pub struct LiveOptions(RwLock<Arc<Options>>);

impl LiveOptions {
    /// The options of the start.
    pub fn new(options: Options) -> LiveOptions {
        LiveOptions(RwLock::new(Arc::new(options)))
    }

    /// The options in force. This takes a lock, so it is not for every request.
    pub fn get(&self) -> Arc<Options> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the options in force.
    pub(crate) fn set(&self, options: Options) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(options);
    }
}
