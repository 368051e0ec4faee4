//! Sets the size, bounds, load factor, hasher, and the resizing policy.
//!
//! `cargo run -p relativist --example builder`

use std::hash::{BuildHasherDefault, DefaultHasher};

use relativist::{BuildError, Builder, FlatMap, HashMap, Resizing};

fn main() -> Result<(), BuildError> {
    // This map grows and shrinks in the background, but never below room for 1,000 entries nor
    // above room for a million. Its chains are longer than by default, which saves memory.
    let bounded: HashMap<u64, u64> = Builder::new().floor(1_000).ceiling(1_000_000).load_factor(0.25..=2.0).build()?;
    println!("room for 1,000 entries, at a load of up to 2: {} buckets", bounded.buckets());
    assert_eq!(bounded.buckets(), 1024);

    // This map is resized by hand: its size is the same in every run, and it needs no background
    // thread.
    let manual = HashMap::<u64, u64>::builder()
        .resizing(Resizing::Manual)
        .hasher(BuildHasherDefault::<DefaultHasher>::new())
        .build::<u64, u64>()?;
    (0..10_000).for_each(|n| _ = manual.pin().insert(n, n * n));
    assert_eq!((manual.buckets(), manual.stats().longest_chain > 1000), (2, true));
    manual.resize_to(1 << 14).map_err(BuildError::Alloc)?;
    println!("{:?}", manual.stats());
    assert!(manual.stats().longest_chain < 20);

    // The builder of a flat map has the same options.
    let flat: FlatMap<u64, u64> = FlatMap::<u64, u64>::builder().capacity(1_000).build()?;
    println!("a flat map with room for 1,000 entries: {} buckets", flat.buckets());
    assert_eq!(flat.buckets(), 512);

    // Contradictory bounds are an error.
    let wrong = Builder::new().load_factor(0.5..=0.75).build::<u64, u64>();
    println!("refused: {}", wrong.unwrap_err());
    Ok(())
}
