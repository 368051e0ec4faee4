//! Two ways to be in a read section: a handle for one map, or a guard for several.
//!
//! `cargo run -p relativist --example guards`

use relativist::{Guard, HashMap, read};

struct Shop {
    prices: HashMap<&'static str, u32>,
    stock: HashMap<&'static str, u32>,
}

impl Shop {
    /// Returns an offer as references that live as long as the caller's guard.
    fn cheapest<'g>(&'g self, max_price: u32, guard: &'g Guard) -> Option<(&'g str, &'g u32)> {
        let in_stock = |name: &str| self.stock.get(name, guard).is_some_and(|&n| n > 0);
        let offers = self.prices.iter(guard).filter(|&(name, price)| *price <= max_price && in_stock(name));
        offers.min_by_key(|&(_, price)| price).map(|(name, price)| (*name, price))
    }
}

fn main() {
    let shop = Shop {
        prices: HashMap::from([("nut", 3), ("bolt", 2), ("nail", 1)]),
        stock: HashMap::from([("nut", 10), ("bolt", 7), ("nail", 0)]),
    };

    let guard = read();
    let offer = shop.cheapest(5, &guard);
    shop.prices.pin().insert("bolt", 9); // what was found stays as it was
    assert_eq!(offer, Some(("bolt", &2)));
    println!("offered: {offer:?}");

    // Drop the guard when the references are no longer needed, so that memory can be reclaimed.
    drop(guard);
    assert_eq!(shop.cheapest(5, &read()).map(|(name, _)| name), Some("nut"));

    // Resizing by hand waits for readers, so this thread must not hold a guard.
    shop.stock.try_reserve(1000).expect("memory for 4096 buckets");
}
