//! Looks up many keys at once, so that the processor fetches what it needs for all of them at the
//! same time.
//!
//! ```sh
//! cargo run --release -p relativist --example get_many
//! ```

use relativist::HashMap;

fn main() {
    let prices: HashMap<String, u32> =
        (0..100_000).map(|article| (format!("article {article}"), article % 1000)).collect();
    let pinned = prices.pin();

    // The number of keys is known at compile time.
    let [first, second, missing] = pinned.get_many(["article 7", "article 8", "article 100000"]);
    assert_eq!((first, second, missing), (Some(&7), Some(&8), None));

    // The number of keys is not known; nothing is allocated.
    let basket: Vec<String> = (0..1000).map(|n| format!("article {}", n * 97)).collect();
    let mut total = 0;
    pinned.get_each(basket.iter().map(String::as_str), |_article, price| total += price.unwrap_or(&0));
    assert_eq!(total, (0..1000).map(|n| n * 97 % 1000).sum());
    println!("{} articles cost {total}", basket.len());
}
