//! Any decision about an entry as one atomic step: `try_compute` sets, removes or leaves alone.
//!
//! The example has accounts that can't be overdrawn, and that are closed when they are empty.
//!
//! `cargo run -p relativist --example compute`

use std::thread;

use relativist::HashMap;

#[derive(Debug, PartialEq)]
enum Refused {
    NoAccount,
    Overdrawn { by: u32 },
}

struct Bank {
    accounts: HashMap<String, u32>,
}

impl Bank {
    fn pay_in(&self, name: &str, amount: u32) {
        self.accounts.pin().update_or_insert(name.into(), |balance| balance + amount, amount);
    }

    /// Returns what is left.
    fn pay_out(&self, name: &str, amount: u32) -> Result<u32, Refused> {
        let pinned = self.accounts.pin();
        let change = pinned.try_compute(name.into(), |balance| match balance {
            None => Err(Refused::NoAccount),
            Some(&balance) if balance < amount => Err(Refused::Overdrawn { by: amount - balance }),
            Some(&balance) if balance == amount => Ok(None),
            Some(&balance) => Ok(Some(balance - amount)),
        })?;
        Ok(change.new.copied().unwrap_or(0))
    }
}

fn main() {
    let bank = Bank { accounts: HashMap::new() };
    bank.pay_in("ada", 100);
    assert_eq!(bank.pay_out("ada", 30), Ok(70));
    assert_eq!(bank.pay_out("ada", 100), Err(Refused::Overdrawn { by: 30 }));
    assert_eq!(bank.pay_out("bob", 1), Err(Refused::NoAccount));

    // However the threads interleave, seven of ten withdrawals succeed, and the account is closed.
    let served = thread::scope(|scope| {
        let threads: Vec<_> = (0..10).map(|_| scope.spawn(|| bank.pay_out("ada", 10).is_ok())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|&served| served).count()
    });
    println!("{served} of 10 were served");
    assert_eq!(served, 7);
    assert!(bank.accounts.is_empty());
}
