use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};

use relativist::Resizing;
use relativist::raw::{self, Entry, Hash};
use relativist_rcu::{Guard, read};

/// To be embedded in objects that are in a table: one for each table that they are in. Objects must
/// be aligned to 8 bytes and lie below address 2^48, as malloc's do.
#[repr(C)]
pub struct Link {
    reserved: [u64; 2],
}

const _: () = assert!(size_of::<Link>() == size_of::<raw::Link>() && align_of::<Link>() == align_of::<raw::Link>());

/// A table. Any number of threads may use it at a time.
pub struct Table(raw::Table);

/// Whether the object with this link has this key. It may run under the lock of a bucket: it must
/// not update the table. It leaves as many read sections as it enters.
pub type Match = Option<unsafe extern "C" fn(link: *mut Link, key: *const c_void) -> bool>;

/// Is shown a link. False: it wants to see no more. It leaves as many read sections as it enters.
pub type Visit = Option<unsafe extern "C" fn(link: *mut Link, argument: *mut c_void) -> bool>;

fn from_raw(link: NonNull<raw::Link>) -> *mut Link {
    link.cast().as_ptr()
}

fn into_raw(link: *mut Link) -> NonNull<raw::Link> {
    NonNull::new(link.cast()).expect("a link that is NULL")
}

/// # Safety
///
/// The table is one of ours, and is not freed meanwhile.
unsafe fn raw_of<'t>(table: *const Table) -> &'t raw::Table {
    // SAFETY: the caller's promise.
    &unsafe { table.as_ref() }.expect("a table that is NULL").0
}

/// The guard of the read section that the caller has entered by `relativist_read_lock`.
fn callers_guard() -> ManuallyDrop<Guard> {
    // SAFETY: forgotten in `relativist_read_lock`; and it stays so.
    let guard = unsafe { Guard::of_forgotten() };
    ManuallyDrop::new(guard.expect("a lookup outside of read sections: call relativist_read_lock first"))
}

/// What asks the caller about each link.
///
/// Requires: The function may be called with all links of the table and the key, as long as what is
/// returned is used.
unsafe fn matching(matches: Match, key: *const c_void) -> impl FnMut(NonNull<raw::Link>) -> bool {
    let matches = matches.expect("a match function that is NULL");
    // SAFETY: the caller's promise.
    move |link| unsafe { matches(from_raw(link), key) }
}

/// Makes a table of at least so many buckets, rounded up to a power of two. NULL when there is no
/// memory for them.
///
/// If it is automatic, a background thread grows and shrinks it, so that there are 1/8 to 3/4
/// objects per bucket, but never below the size it was made with. Otherwise only relativist_resize
/// does.
#[unsafe(no_mangle)]
pub extern "C" fn relativist_table_new(buckets: usize, automatic: bool) -> *mut Table {
    let resizing = if automatic { Resizing::Automatic } else { Resizing::Manual };
    // None is left when it is freed.
    let table = raw::Table::new(buckets, resizing, |_| {});
    table.map_or(null_mut(), |table| Box::into_raw(Box::new(Table(table))))
}

/// Frees an empty table. NULL is allowed.
///
/// Aborts when there is something in it: the background thread may be at work on it even now. See
/// relativist_clear.
///
/// Requires: nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_table_free(table: *mut Table) {
    if !table.is_null() {
        // SAFETY: from `relativist_table_new`, and nobody uses it, says the caller.
        let table = unsafe { Box::from_raw(table) };
        assert!(table.0.is_empty(), "relativist_table_free of a table that is not empty");
    }
}

/// Prepares a link for an object with this hash. Not while it is in a table, or readers may still
/// find it.
///
/// Requires: `link` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_link_init(link: *mut Link, hash: u64) {
    // SAFETY: the caller's promise.
    unsafe { into_raw(link).write(raw::Link::new(Hash::new(hash))) };
}

/// The link of an object with this key, or NULL. To be called inside a read section; the link is
/// valid until its end. Wait-free.
///
/// Requires: the table is valid, `matches` can be called with all links in it, and links in it are
/// valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_lookup(
    table: *const Table,
    hash: u64,
    matches: Match,
    key: *const c_void,
) -> *mut Link {
    // SAFETY: the caller's promise, both.
    let (table, matches) = unsafe { (raw_of(table), matching(matches, key)) };
    table.find(Hash::new(hash), matches, &callers_guard()).map_or(null_mut(), from_raw)
}

/// Shows all links with this hash, in the order in which they were added: for tables with several
/// objects of the same key. Which of them have the key, `visit` has to see. Otherwise as
/// relativist_lookup.
///
/// Requires: as for relativist_lookup.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_lookup_all(table: *const Table, hash: u64, visit: Visit, argument: *mut c_void) {
    // SAFETY: the caller's promise.
    let table = unsafe { raw_of(table) };
    // SAFETY: as above.
    unsafe { show(table.find_all(Hash::new(hash), &callers_guard()), visit, argument) };
}

/// Adds a link that was initialised, whatever else there is. From here on lookups find it.
///
/// Blocks while another update of the same bucket is under way, as all updates do. Outside of read
/// sections all of them may run functions given to relativist_call when they are done, as
/// relativist_read_unlock does.
///
/// Requires: the table is valid. The link is in no table, and was in none within the last grace
/// period. It stays valid and in place while it is in the table, and when it has been removed or
/// replaced, until a grace period has passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_add(table: *const Table, link: *mut Link) {
    // SAFETY: the caller's promise, both.
    unsafe { raw_of(table).insert(into_raw(link), &read()) };
}

/// Adds a link unless an object with this key is there. The link that is in the table now: this
/// one, or that of the other object. That one is valid only inside a read section that the caller
/// has entered before.
///
/// Requires: as for relativist_add and relativist_lookup.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_add_unique(
    table: *const Table,
    link: *mut Link,
    matches: Match,
    key: *const c_void,
) -> *mut Link {
    // SAFETY: the caller's promise, all.
    let (table, matches, hash) = unsafe { (raw_of(table), matching(matches, key), hash_of(link)) };
    match table.entry(hash, matches, &read()) {
        Entry::Occupied(entry) => from_raw(entry.get()),
        Entry::Vacant(entry) => {
            // SAFETY: the caller's promise, and the hash is its own.
            unsafe { entry.insert(into_raw(link)) };
            link
        }
    }
}

/// Adds a link, in place of an object with this key if there is one, in one step as lookups see it.
/// The link of that object, which is the caller's now, to be freed after a grace period; or NULL.
///
/// Requires: as for relativist_add and relativist_lookup.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_add_replace(
    table: *const Table,
    link: *mut Link,
    matches: Match,
    key: *const c_void,
) -> *mut Link {
    // SAFETY: the caller's promise, all.
    let (table, matches, hash) = unsafe { (raw_of(table), matching(matches, key), hash_of(link)) };
    match table.entry(hash, matches, &read()) {
        // SAFETY: the caller's promise, and the hash is its own.
        Entry::Occupied(entry) => from_raw(unsafe { entry.replace(into_raw(link)) }),
        Entry::Vacant(entry) => {
            // SAFETY: as above.
            unsafe { entry.insert(into_raw(link)) };
            null_mut()
        }
    }
}

/// Puts `link` in the place of `old`, in one step as lookups see it. False, and nothing has
/// changed, when `old` is not in the table (any more). If it is true, `old` is the caller's, to be
/// freed after a grace period.
///
/// Aborts when their hashes differ.
///
/// Requires: as for relativist_add. `old` is valid: the caller has found it in the read section
/// that it is in, or nobody else frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_replace(table: *const Table, old: *mut Link, link: *mut Link) -> bool {
    // SAFETY: the caller's promise, both.
    let (table, hash) = unsafe { (raw_of(table), hash_of(old)) };
    match table.entry(hash, |found| found == into_raw(old), &read()) {
        Entry::Occupied(entry) => {
            // SAFETY: the caller's promise. A hash that differs is a panic.
            unsafe { entry.replace(into_raw(link)) };
            true
        }
        Entry::Vacant(_) => false,
    }
}

/// Removes a link. False when it is not in the table (any more): of several who remove it, one gets
/// true. The object is that one's now, to be freed after a grace period.
///
/// Requires: the table is valid, and so is the link: the caller has found it in the read section
/// that it is in, or nobody else frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_del(table: *const Table, link: *mut Link) -> bool {
    // SAFETY: the caller's promise, both.
    let (table, hash) = unsafe { (raw_of(table), hash_of(link)) };
    table.remove(hash, |found| found == into_raw(link), &read()).is_some()
}

/// Removes an object with this key. Its link, which is the caller's now, to be freed after a grace
/// period; or NULL if there is none.
///
/// Requires: as for relativist_lookup.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_remove(
    table: *const Table,
    hash: u64,
    matches: Match,
    key: *const c_void,
) -> *mut Link {
    // SAFETY: the caller's promise, both.
    let (table, matches) = unsafe { (raw_of(table), matching(matches, key)) };
    table.remove(Hash::new(hash), matches, &read()).map_or(null_mut(), from_raw)
}

/// Shows all links. To be called inside a read section. What is in the table throughout is shown
/// exactly once, whatever updates and resizes go on.
///
/// Requires: as for relativist_lookup. `visit` may update the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_for_each(table: *const Table, visit: Visit, argument: *mut c_void) {
    // SAFETY: the caller's promise.
    let table = unsafe { raw_of(table) };
    // SAFETY: as above.
    unsafe { show(table.iter(&callers_guard()), visit, argument) };
}

/// The same in pieces, with a read section for each: shows `count` links from `*cursor` on, and a
/// few more perhaps, whatever `visit` returns. Begins with a cursor of 0. True: it goes on where
/// the cursor is now. False: that was all.
///
/// Requires: as for relativist_for_each, and `cursor` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_scan(
    table: *const Table,
    cursor: *mut u64,
    count: usize,
    visit: Visit,
    argument: *mut c_void,
) -> bool {
    let visit = visit.expect("a visit function that is NULL");
    let cursor = NonNull::new(cursor).expect("a cursor that is NULL");
    // SAFETY: the caller's promise, both.
    let (table, from) = unsafe { (raw_of(table), cursor.read()) };
    // SAFETY: as above.
    let show = |link| _ = unsafe { visit(from_raw(link), argument) };
    let next = table.scan(from, count, &callers_guard(), show);
    // SAFETY: as above. There is no reference to it: `visit` may have looked at it.
    unsafe { cursor.write(next.unwrap_or(0)) };
    next.is_some()
}

/// Removes all objects that are in the table when it gets to them, and shows each to `removed`,
/// whose they are now, to be freed after a grace period. It wants all, whatever it returns.
///
/// Requires: as for relativist_for_each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_clear(table: *const Table, removed: Visit, argument: *mut c_void) {
    let removed = removed.expect("a function that is NULL");
    // SAFETY: the caller's promise.
    let table = unsafe { raw_of(table) };
    // SAFETY: as above.
    table.clear(&read(), |link| _ = unsafe { removed(from_raw(link), argument) });
}

/// How many objects there are: exact when nobody updates meanwhile.
///
/// Requires: the table is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_count(table: *const Table) -> usize {
    // SAFETY: the caller's promise.
    unsafe { raw_of(table) }.len()
}

/// How many buckets there are.
///
/// Requires: the table is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_buckets(table: *const Table) -> usize {
    // SAFETY: the caller's promise.
    unsafe { raw_of(table) }.buckets()
}

/// Resizes to so many buckets, rounded up to a power of two, and returns when that is done: 0, or
/// ENOMEM. Lookups and updates go on meanwhile.
///
/// Aborts inside a read section: it waits for readers.
///
/// Requires: the table is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_resize(table: *const Table, buckets: usize) -> c_int {
    // SAFETY: the caller's promise.
    let resized = unsafe { raw_of(table) }.resize_to(buckets);
    resized.map_or(libc::ENOMEM, |()| 0)
}

/// # Safety
///
/// The link was initialised, and is valid.
unsafe fn hash_of(link: *mut Link) -> Hash {
    // SAFETY: the caller's promise.
    unsafe { into_raw(link).as_ref() }.hash()
}

/// # Safety
///
/// `visit` may be called with the links.
unsafe fn show(mut links: impl Iterator<Item = NonNull<raw::Link>>, visit: Visit, argument: *mut c_void) {
    let visit = visit.expect("a visit function that is NULL");
    // SAFETY: the caller's promise.
    let _ = links.all(|link| unsafe { visit(from_raw(link), argument) });
}
