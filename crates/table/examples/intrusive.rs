//! Keeps objects in two tables: users are found by number and by name, without a copy or a second
//! allocation.
//!
//! ```sh
//! cargo run -p relativist-table --example intrusive
//! ```

use std::mem::offset_of;
use std::ptr::NonNull;

use relativist_rcu::defer_raw;
use relativist_table::{AllocError, Entry, Guard, Hash, Link, Resizing, Table, read};

#[repr(C)]
struct User {
    by_number: Link,
    by_name: Link,
    number: u64,
    name: &'static str,
}

/// The table `by_number` owns the users. The other one only refers to them.
struct Users {
    by_name: Table,
    by_number: Table,
}

impl User {
    /// # Safety
    ///
    /// The link is in the table by number, and alive during `'g`.
    unsafe fn by_number<'g>(link: NonNull<Link>) -> &'g Self {
        // SAFETY: the link is the first field; the caller guarantees the rest.
        unsafe { link.cast().as_ref() }
    }

    /// # Safety
    ///
    /// The link is in the table by name, and alive during `'g`.
    unsafe fn by_name<'g>(link: NonNull<Link>) -> &'g Self {
        // SAFETY: the link is at this offset from the beginning of a user, in the same allocation;
        // the caller guarantees the rest.
        unsafe { link.byte_sub(offset_of!(Self, by_name)).cast().as_ref() }
    }

    unsafe fn dispose(link: NonNull<Link>) {
        // SAFETY: `Users::add` leaked the box.
        drop(unsafe { Box::from_raw(link.cast::<Self>().as_ptr()) });
    }

    unsafe fn leave(_: NonNull<Link>) {}
}

impl Users {
    fn new() -> Result<Self, AllocError> {
        Ok(Self {
            by_name: Table::new(2, Resizing::Automatic, User::leave)?,
            by_number: Table::new(2, Resizing::Automatic, User::dispose)?,
        })
    }

    fn add(&self, number: u64, name: &'static str) {
        let (by_number, by_name) = (Link::new(Hash::new(number)), Link::new(hash_of(name)));
        let user = NonNull::from(Box::leak(Box::new(User { by_number, by_name, number, name })));
        let guard = read();
        // SAFETY: a fresh object, which `dispose` can free. It is in the table by name only while
        // it is in the other one.
        unsafe {
            self.by_number.insert(user.cast(), &guard);
            self.by_name.insert(user.byte_add(offset_of!(User, by_name)).cast(), &guard);
        }
    }

    fn get<'g>(&'g self, number: u64, guard: &'g Guard) -> Option<&'g User> {
        // SAFETY: all links of this table are in users, and alive as long as the guard.
        let user = |link| unsafe { User::by_number(link) };
        self.by_number.find(Hash::new(number), move |link| user(link).number == number, guard).map(user)
    }

    fn named<'g>(&'g self, name: &str, guard: &'g Guard) -> Option<&'g User> {
        // SAFETY: as above.
        let user = |link| unsafe { User::by_name(link) };
        self.by_name.find(hash_of(name), move |link| user(link).name == name, guard).map(user)
    }

    /// Removes a user from both tables, first from the one that does not own it.
    fn remove(&self, name: &str) -> bool {
        let guard = read();
        // SAFETY: as above.
        let is_match = |link| unsafe { User::by_name(link) }.name == name;
        let Entry::Occupied(entry) = self.by_name.entry(hash_of(name), is_match, &guard) else { return false };
        // SAFETY: as above; the guard keeps it alive.
        let user = unsafe { User::by_name(entry.remove()) };
        // SAFETY: as above.
        let is_match = |link| std::ptr::eq(unsafe { User::by_number(link) }, user);
        let Entry::Occupied(entry) = self.by_number.entry(Hash::new(user.number), is_match, &guard) else {
            unreachable!("a user that was in the table by name is in the table by number");
        };
        // SAFETY: it is in neither table any more, and is freed after a grace period, when all
        // readers that have found it have left.
        unsafe { defer_raw(entry.remove().cast(), size_of::<User>(), |user| User::dispose(user.cast())) };
        true
    }
}

/// Returns the FNV-1a hash of a name. The table mixes it, but if untrusted clients choose names,
/// use a keyed hash.
fn hash_of(name: &str) -> Hash {
    Hash::new(
        name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)),
    )
}

fn main() -> Result<(), AllocError> {
    let users = Users::new()?;
    users.add(1, "one");
    users.add(2, "two");
    let guard = read();
    assert!(std::ptr::eq(users.get(2, &guard).unwrap(), users.named("two", &guard).unwrap()));
    assert!(users.remove("one") && !users.remove("one"));
    println!("user {} is left", users.named("two", &guard).unwrap().number);
    Ok(())
}
