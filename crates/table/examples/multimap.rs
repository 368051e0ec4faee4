//! A multimap on the table: orders by customer, several of each.
//!
//! ```sh
//! cargo run -p relativist-table --example multimap
//! ```

use std::ptr::NonNull;

use relativist_rcu::defer_raw;
use relativist_table::{AllocError, Entry, Guard, Hash, Link, Resizing, Table, read};

#[repr(C)]
struct Order {
    link: Link,
    customer: u64,
    cents: u64,
}

/// Orders by customer.
struct Orders(Table);

impl Orders {
    fn new() -> Result<Self, AllocError> {
        Table::new(2, Resizing::Automatic, dispose).map(Self)
    }

    fn add(&self, customer: u64, cents: u64) {
        let order = Box::new(Order { link: Link::new(Hash::new(customer)), customer, cents });
        // SAFETY: a fresh object, which `dispose` can free.
        unsafe { self.0.insert(NonNull::from(Box::leak(order)).cast(), &read()) };
    }

    /// Returns the orders of a customer, the oldest first.
    fn of<'g>(&'g self, customer: u64, guard: &'g Guard) -> impl Iterator<Item = &'g Order> {
        // SAFETY: all links of this table are in orders, and what is found stays alive as long as
        // the guard.
        let orders = self.0.find_all(Hash::new(customer), guard).map(|link| unsafe { link.cast::<Order>().as_ref() });
        // Other customers may have the same hash.
        orders.filter(move |order| order.customer == customer)
    }

    /// Removes the oldest order of a customer, and returns what it was worth.
    fn settle(&self, customer: u64) -> Option<u64> {
        let guard = read();
        // SAFETY: as above.
        let is_his = |link: NonNull<Link>| unsafe { link.cast::<Order>().as_ref() }.customer == customer;
        match self.0.entry(Hash::new(customer), is_his, &guard) {
            Entry::Vacant(_) => None,
            Entry::Occupied(entry) => {
                let order = entry.remove().cast::<Order>();
                // SAFETY: later readers do not find it, and it is freed after a grace period, when
                // all readers that have found it have left.
                unsafe { defer_raw(order.cast(), size_of::<Order>(), |order| dispose(order.cast())) };
                // SAFETY: the guard was taken before it was unlinked.
                Some(unsafe { order.as_ref() }.cents)
            }
        }
    }
}

unsafe fn dispose(link: NonNull<Link>) {
    // SAFETY: `add` leaked the box.
    drop(unsafe { Box::from_raw(link.cast::<Order>().as_ptr()) });
}

fn main() -> Result<(), AllocError> {
    let orders = Orders::new()?;
    for n in 0..1000 {
        orders.add(n % 10, n);
    }
    let guard = read();
    assert_eq!(orders.of(7, &guard).count(), 100);
    assert_eq!(orders.settle(7), Some(7));
    let total: u64 = orders.of(7, &guard).map(|order| order.cents).sum();
    println!("customer 7 owes {}.{:02} for {} orders", total / 100, total % 100, orders.of(7, &guard).count());
    Ok(())
}
