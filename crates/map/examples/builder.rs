//! Sets the capacity and the hasher, and handles a lack of memory.
//!
//! `cargo run -p relativist --example builder`

use relativist::{AllocError, FlatMap, HashMap};
use rustc_hash::FxBuildHasher;

fn main() -> Result<(), AllocError> {
    // This map has room for 1,000 entries before it grows, and hashes with a fast function.
    let map = HashMap::<u64, u64>::builder().capacity(1_000).hasher(FxBuildHasher).try_build()?;
    println!("room for {} entries", map.capacity());
    assert!(map.capacity() >= 1_000);

    // No machine has that much memory: the map stays as it is.
    map.pin().insert(1, 10);
    let error = map.try_reserve(1 << 60).unwrap_err();
    println!("refused: {error}");
    assert_eq!(map.get_copied(&1), Some(10));

    // An alias is enough if only the hasher matters.
    type FastMap<K, V> = FlatMap<K, V, FxBuildHasher>;
    let squares: FastMap<u64, u64> = (0..1_000).map(|n| (n, n * n)).collect();
    assert_eq!(squares.get_copied(&12), Some(144));

    // `shrink_to_fit` gives memory back. It waits for readers, so this thread may hold no handle.
    squares.pin().retain(|n, _| *n < 10);
    squares.shrink_to_fit()?;
    println!("room for {} entries", squares.capacity());
    assert!(squares.capacity() < 100);
    Ok(())
}
