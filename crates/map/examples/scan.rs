//! Walks through a map in small steps, while another thread keeps changing and resizing it.
//!
//! ```sh
//! cargo run --release -p relativist --example scan
//! ```

use std::thread;

use relativist::{AllocError, HashMap};

fn main() -> Result<(), AllocError> {
    let map: HashMap<u32, &str> = (0..10_000).map(|n| (n, "resident")).collect();
    thread::scope(|scope| {
        scope.spawn(|| scan(&map));
        for round in 0..10 {
            (0..5000).for_each(|n| _ = map.pin().insert(10_000 + n, "guest"));
            map.resize_to(1 << (8 + round))?;
            (0..5000).for_each(|n| _ = map.pin().remove(&(10_000 + n)));
        }
        Ok(())
    })
}

/// Sees each resident once, and a guest only if it is in the map when the scan passes.
fn scan(map: &HashMap<u32, &str>) {
    let (mut steps, mut residents, mut guests) = (0, 0, 0);
    let mut next = Some(0);
    while let Some(cursor) = next {
        // The guard is dropped after each step, so no thread waits long for this reader.
        next = map.pin().scan(cursor, 100, |_, &kind| match kind {
            "resident" => residents += 1,
            _ => guests += 1,
        });
        steps += 1;
    }
    assert_eq!(residents, 10_000);
    println!("{residents} residents and {guests} guests in {steps} steps");
}
