//! Looks up many keys at once, so that the processor fetches what it needs for all of them at the
//! same time.
//!
//! `cargo run --release -p relativist --example get_many`

use relativist::HashMap;

fn main() {
    let prices: HashMap<String, u32> =
        (0..100_000).map(|article| (format!("article {article}"), article % 1000)).collect();
    let pinned = prices.pin();

    let [first, second, missing] = pinned.get_many(["article 7", "article 8", "article 100000"]);
    assert_eq!((first, second, missing), (Some(&7), Some(&8), None));

    // A longer list, eight keys at a time. Nothing is allocated.
    let basket: Vec<String> = (0..1000).map(|n| format!("article {}", n * 97)).collect();
    let mut total = 0;
    for keys in basket.chunks_exact(8) {
        let found = pinned.get_many(std::array::from_fn::<&String, 8, _>(|n| &keys[n]));
        total += found.into_iter().flatten().sum::<u32>();
    }
    println!("{} articles cost {total}", basket.len());
    assert_eq!(total, (0..1000).map(|n| n * 97 % 1000).sum());
}
