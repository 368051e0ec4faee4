//! One read section for several maps: handles that share a guard.
//!
//! `cargo run -p relativist --example pin_with`

use relativist::{Guard, HashMap, read};

struct Shop {
    prices: HashMap<&'static str, u32>,
    stock: HashMap<&'static str, u32>,
}

impl Shop {
    /// Returns the cheapest offer. The guard is the caller's: entering a section once is enough.
    fn cheapest(&self, max_price: u32, guard: &Guard) -> Option<(&'static str, u32)> {
        let (prices, stock) = (self.prices.pin_with(guard), self.stock.pin_with(guard));
        let in_stock = |name: &str| stock.get(name).is_some_and(|&n| n > 0);
        let offers = prices.iter().filter(|&(name, price)| *price <= max_price && in_stock(name));
        offers.min_by_key(|&(_, price)| price).map(|(name, price)| (*name, *price))
    }
}

fn main() {
    let shop = Shop {
        prices: HashMap::from([("nut", 3), ("bolt", 2), ("nail", 1)]),
        stock: HashMap::from([("nut", 10), ("bolt", 7), ("nail", 0)]),
    };

    let guard = read();
    assert_eq!(shop.cheapest(5, &guard), Some(("bolt", 2)));
    let prices = shop.prices.pin_with(&guard);
    let bolt = prices.get("bolt");
    prices.insert("bolt", 9);
    assert_eq!(bolt, Some(&2)); // what was found stays as it was
    println!("now offered: {:?}", shop.cheapest(5, &guard));
    assert_eq!(shop.cheapest(5, &guard), Some(("nut", 3)));

    // Another way to the same: a handle has a guard.
    assert_eq!(shop.stock.pin_with(prices.guard()).get("nut"), Some(&10));
}
