//! How many items fit.

use anyhow::Result;
use serde::Serialize;

use super::engine::{Engine, Plan};
use super::speed::{KEY, Key};
use super::{Args, Candidate};

/// The items that a cache has room for.
#[derive(Debug, Serialize)]
pub struct Room {
    pub cache: &'static str,
    pub items: u64,
    /// Bytes of the limit per item, without key and value.
    pub overhead: f64,
}

/// Counts the items that fit into each cache.
pub fn count_all(args: &Args) -> Result<Vec<Room>> {
    let item = KEY as u64 + args.value_size;
    let plan = Plan { limit: args.memory << 20, mean_item: item, largest_item: item };
    let mut rooms = Vec::new();
    for &candidate in Candidate::ALL {
        let mut most = None;
        for table in 0.. {
            let Some(engine) = candidate.without_eviction(plan, table)? else { break };
            most = most.max(Some(fill(&*engine, args.value_size)));
        }
        if let Some(items) = most {
            let overhead = plan.limit as f64 / items.max(1) as f64 - item as f64;
            rooms.push(Room { cache: candidate.name(), items, overhead });
        }
    }
    Ok(rooms)
}

/// Stores items until one in a hundred is refused, because memory is full, or because a table
/// without room refuses more and more. Returns the number of stored items.
fn fill(engine: &dyn Engine, value_size: u64) -> u64 {
    let mut value = vec![0; value_size as usize];
    let (mut stored, mut refused) = (Vec::new(), 0);
    for index in 0_u64.. {
        let key = Key::new(index);
        key.mark(&mut value);
        if engine.set(&key.bytes(), &value) {
            stored.push(key);
        } else {
            refused += 1;
        }
        if refused * 100 > index.max(1000) {
            break;
        }
    }
    for key in &stored {
        value.clear();
        assert!(engine.get(&key.bytes(), &mut value) && key.is_marked(&value), "a stored item is not there");
    }
    stored.len() as u64
}
