//! The leader of a load: it calls the loader, inserts the value, and passes it to those that wait.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Instant;

use super::core::{Condition, Core, Unput};
use super::flight::{Flight, Outcome};
use super::node::Lifespan;

/// The right to load a key, and the duty to land its flight.
pub(super) struct Lead<'c, K, V, S, L: Lifespan> {
    core: &'c Core<K, V, S, L>,
    pub(super) flight: Arc<Flight<K, V>>,
    outcome: Option<Outcome<V>>,
    /// Whether the flight was taken out of its list without having been cancelled.
    has_ended: bool,
}

impl<'c, K, V, S, L: Lifespan> Lead<'c, K, V, S, L> {
    /// The flight is in the list of its shard.
    pub(super) fn new(core: &'c Core<K, V, S, L>, flight: Arc<Flight<K, V>>) -> Self {
        Self { core, flight, outcome: None, has_ended: false }
    }

    /// Takes the flight out of its list. Returns false if it was cancelled.
    fn end(&self) -> bool {
        let mut locked = self.core.lock(self.core.shard_of(self.flight.hash));
        let has_ended = locked.remove_flight(&self.flight);
        locked.unlock();
        has_ended
    }
}

impl<K, V, S, L: Lifespan> Drop for Lead<'_, K, V, S, L> {
    fn drop(&mut self) {
        let has_ended = self.has_ended || self.end();
        // Those that wait for a load that was cancelled look again.
        self.flight.land(self.outcome.take().filter(|_| has_ended).unwrap_or(Outcome::Nothing));
    }
}

/// A call of a loader. It has failed if it is dropped without a value.
pub(super) struct Load<'c, K, V, S, L: Lifespan> {
    core: &'c Core<K, V, S, L>,
    start: Instant,
    succeeded: bool,
}

impl<'c, K, V, S, L> Load<'c, K, V, S, L>
where
    K: Hash + Eq,
    V: Clone,
    S: BuildHasher,
    L: Lifespan,
{
    pub(super) fn new(core: &'c Core<K, V, S, L>) -> Self {
        Self { core, start: Instant::now(), succeeded: false }
    }

    /// Inserts the value, and passes it to those that wait. `old` is the value that was to be
    /// refreshed.
    pub(super) fn finish<E: Send + Sync + 'static>(
        mut self,
        mut lead: Lead<'_, K, V, S, L>,
        key: K,
        loaded: Result<V, E>,
        old: Option<V>,
    ) -> Result<V, Arc<E>> {
        match loaded {
            Ok(value) => {
                self.succeeded = true;
                drop(old);
                let made = self.core.make(lead.flight.hash, key, value.clone());
                let put = self.core.update().put(made, &Condition::Loaded(&lead.flight));
                lead.has_ended = put.is_ok();
                let unused = match put {
                    Ok(()) => None,
                    Err(Unput::Refused(made)) => Some(made.node.into_parts()),
                    Err(Unput::TooHeavy(made)) => {
                        lead.has_ended = lead.end();
                        if lead.has_ended {
                            // As an insertion does: an older value is out of date.
                            self.core.update().remove(lead.flight.hash, &made.node.key);
                        }
                        Some(made.node.into_parts())
                    }
                };
                // Here, so that a panic in the destructor of the key leaks no value.
                drop(unused);
                lead.outcome = Some(Outcome::Value(value.clone()));
                drop(lead);
                Ok(value)
            }
            Err(error) => {
                drop(key);
                // Those that wait have not found the old value.
                let error = Arc::new(error);
                lead.outcome = Some(Outcome::Failed(Arc::clone(&error) as _));
                drop(lead);
                old.ok_or(error)
            }
        }
    }

    /// Does not keep the value: it comes from no flight, so no removal could have cancelled it.
    pub(super) fn finish_alone<E>(mut self, key: K, loaded: Result<V, E>) -> Result<V, Arc<E>> {
        self.succeeded = loaded.is_ok();
        drop(key);
        loaded.map_err(Arc::new)
    }
}

impl<K, V, S, L: Lifespan> Drop for Load<'_, K, V, S, L> {
    fn drop(&mut self) {
        self.core.loads.record(self.succeeded, self.start.elapsed());
    }
}
