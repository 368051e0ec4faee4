use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};

use relativist_rcu::{Guard, read};
use relativist_table::Resizing;
use relativist_table::{self as raw, Entry, Hash};

/// Embed this in objects that are in a table: one for each table that they are in. Objects must be
/// aligned to 8 bytes and lie below address 2^48, as malloc's do.
#[repr(C)]
pub struct Link {
    reserved: [u64; 2],
}

const _: () = assert!(size_of::<Link>() == size_of::<raw::Link>() && align_of::<Link>() == align_of::<raw::Link>());

/// A table. Any number of threads may use it at a time.
pub struct Table(raw::Table);

/// Returns whether the object with this link has this key. It may run under the lock of a bucket,
/// so it must not update the table. It must leave all read sections that it enters.
pub type Match = Option<unsafe extern "C" fn(link: *mut Link, key: *const c_void) -> bool>;

/// Called with each link. Returns false to stop. It must leave all read sections that it enters.
pub type Visit = Option<unsafe extern "C" fn(link: *mut Link, argument: *mut c_void) -> bool>;

fn from_raw(link: NonNull<raw::Link>) -> *mut Link {
    link.cast().as_ptr()
}

fn into_raw(link: *mut Link) -> NonNull<raw::Link> {
    NonNull::new(link.cast()).expect("a link that is NULL")
}

/// # Safety
///
/// The table came from `relativist_table_new`, and is not freed meanwhile.
unsafe fn raw_of<'t>(table: *const Table) -> &'t raw::Table {
    // SAFETY: guaranteed by the caller.
    &unsafe { table.as_ref() }.expect("a table that is NULL").0
}

/// Returns the guard of the read section that the caller has entered by `relativist_read_lock`.
fn callers_guard() -> ManuallyDrop<Guard> {
    // SAFETY: forgotten in `relativist_read_lock`, and not dropped here.
    let guard = unsafe { Guard::of_forgotten() };
    ManuallyDrop::new(guard.expect("a lookup outside of read sections: call relativist_read_lock first"))
}

/// Returns a closure that calls the caller's function for each link.
///
/// Requires: the function may be called with all links of the table and the key, as long as the
/// closure is used.
unsafe fn matching(matches: Match, key: *const c_void) -> impl FnMut(NonNull<raw::Link>) -> bool {
    let matches = matches.expect("a match function that is NULL");
    // SAFETY: guaranteed by the caller.
    move |link| unsafe { matches(from_raw(link), key) }
}

/// Creates a table of `buckets` buckets, rounded up to a power of two. Returns NULL if there is no
/// memory for them.
///
/// If it is automatic, a background thread grows it above one object per bucket and shrinks it
/// below 1/8, but never below its initial size. Otherwise only relativist_resize changes its size.
#[unsafe(no_mangle)]
pub extern "C" fn relativist_table_new(buckets: usize, automatic: bool) -> *mut Table {
    let resizing = if automatic { Resizing::Automatic } else { Resizing::Manual };
    // The table is empty when it is freed.
    let table = raw::Table::new(buckets, resizing, |_| {});
    table.map_or(null_mut(), |table| Box::into_raw(Box::new(Table(table))))
}

/// Frees an empty table. NULL is allowed.
///
/// Aborts if the table is not empty, because the background thread may be resizing it. See
/// relativist_clear.
///
/// Requires: no thread uses the table any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_table_free(table: *mut Table) {
    if !table.is_null() {
        // SAFETY: the caller guarantees that it came from `relativist_table_new` and that no thread
        // uses it.
        let table = unsafe { Box::from_raw(table) };
        assert!(table.0.is_empty(), "relativist_table_free of a table that is not empty");
    }
}

/// Initialises the link of an object with this hash. The link must not be in a table, and readers
/// must not be able to find it.
///
/// Requires: `link` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_link_init(link: *mut Link, hash: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe { into_raw(link).write(raw::Link::new(Hash::new(hash))) };
}

/// Returns the link of an object with this key, or NULL. Call this inside a read section; the link
/// is valid until its end. Wait-free.
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
    // SAFETY: guaranteed by the caller.
    let (table, matches) = unsafe { (raw_of(table), matching(matches, key)) };
    table.find(Hash::new(hash), matches, &callers_guard()).map_or(null_mut(), from_raw)
}

/// Calls `visit` with all links that have this hash, in the order in which they were added. Use it
/// for tables in which several objects have the same key. `visit` has to check which of them have
/// the key. Otherwise like relativist_lookup.
///
/// Requires: as for relativist_lookup.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_lookup_all(table: *const Table, hash: u64, visit: Visit, argument: *mut c_void) {
    // SAFETY: guaranteed by the caller.
    let table = unsafe { raw_of(table) };
    // SAFETY: as above.
    unsafe { visit_all(table.find_all(Hash::new(hash), &callers_guard()), visit, argument) };
}

/// Adds an initialised link, even if there are objects with the same key. Lookups that begin
/// afterwards find it.
///
/// Blocks while another update of the same bucket is in progress, as all updates do. Outside of
/// read sections, all updates may run functions that were passed to relativist_call, as
/// relativist_read_unlock does.
///
/// Requires: the table is valid. The link is in no table, and was in none within the last grace
/// period. It stays valid and in place while it is in the table and, after it was removed or
/// replaced, until a grace period has passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_add(table: *const Table, link: *mut Link) {
    // SAFETY: guaranteed by the caller.
    unsafe { raw_of(table).insert(into_raw(link), &read()) };
}

/// Adds a link unless there is an object with this key. Returns the link that is in the table: the
/// new one, or that of the other object. The latter is valid only in a read section that the caller
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
    // SAFETY: guaranteed by the caller.
    let (table, matches, hash) = unsafe { (raw_of(table), matching(matches, key), hash_of(link)) };
    match table.entry(hash, matches, &read()) {
        Entry::Occupied(entry) => from_raw(entry.get()),
        Entry::Vacant(entry) => {
            // SAFETY: guaranteed by the caller, and the hash is that of the link.
            unsafe { entry.insert(into_raw(link)) };
            link
        }
    }
}

/// Adds a link, and replaces an object with this key if there is one, in one step as lookups see
/// it. Returns the link of the replaced object, or NULL. The caller owns the object now, and may
/// free it after a grace period.
///
/// Requires: as for relativist_add and relativist_lookup.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_add_replace(
    table: *const Table,
    link: *mut Link,
    matches: Match,
    key: *const c_void,
) -> *mut Link {
    // SAFETY: guaranteed by the caller.
    let (table, matches, hash) = unsafe { (raw_of(table), matching(matches, key), hash_of(link)) };
    match table.entry(hash, matches, &read()) {
        // SAFETY: guaranteed by the caller, and the hash is that of the link.
        Entry::Occupied(entry) => from_raw(unsafe { entry.replace(into_raw(link)) }),
        Entry::Vacant(entry) => {
            // SAFETY: as above.
            unsafe { entry.insert(into_raw(link)) };
            null_mut()
        }
    }
}

/// Replaces `old` by `link`, in one step as lookups see it. Returns false, and changes nothing, if
/// `old` is not in the table (any more). If it returns true, the caller owns the object of `old`
/// now, and may free it after a grace period.
///
/// Aborts if their hashes differ.
///
/// Requires: as for relativist_add. `old` is valid: the caller has found it in its current read
/// section, or no other thread frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_replace(table: *const Table, old: *mut Link, link: *mut Link) -> bool {
    // SAFETY: guaranteed by the caller.
    let (table, hash) = unsafe { (raw_of(table), hash_of(old)) };
    match table.entry(hash, |found| found == into_raw(old), &read()) {
        Entry::Occupied(entry) => {
            // SAFETY: guaranteed by the caller. Different hashes panic.
            unsafe { entry.replace(into_raw(link)) };
            true
        }
        Entry::Vacant(_) => false,
    }
}

/// Removes a link. Returns false if it is not in the table (any more): if several threads remove
/// it, only one of them gets true. That thread owns the object now, and may free it after a grace
/// period.
///
/// Requires: the table is valid, and so is the link: the caller has found it in its current read
/// section, or no other thread frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_del(table: *const Table, link: *mut Link) -> bool {
    // SAFETY: guaranteed by the caller.
    let (table, hash) = unsafe { (raw_of(table), hash_of(link)) };
    table.remove(hash, |found| found == into_raw(link), &read()).is_some()
}

/// Removes an object with this key. Returns its link, or NULL if there is none. The caller owns the
/// object now, and may free it after a grace period.
///
/// Requires: as for relativist_lookup.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_remove(
    table: *const Table,
    hash: u64,
    matches: Match,
    key: *const c_void,
) -> *mut Link {
    // SAFETY: guaranteed by the caller.
    let (table, matches) = unsafe { (raw_of(table), matching(matches, key)) };
    table.remove(Hash::new(hash), matches, &read()).map_or(null_mut(), from_raw)
}

/// Calls `visit` with all links. Call this inside a read section. A link that is in the table
/// throughout is visited exactly once, whatever updates and resizes happen during the call.
///
/// Requires: as for relativist_lookup. `visit` may update the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_for_each(table: *const Table, visit: Visit, argument: *mut c_void) {
    // SAFETY: guaranteed by the caller.
    let table = unsafe { raw_of(table) };
    // SAFETY: as above.
    unsafe { visit_all(table.iter(&callers_guard()), visit, argument) };
}

/// Like relativist_for_each, but in pieces, each in its own read section: visits `count` links from
/// `*cursor` on, or a few more, and ignores the result of `visit`. The first call takes a cursor of
/// 0. Returns true, and sets the cursor for the next call, if there is more to visit.
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
    // SAFETY: guaranteed by the caller.
    let (table, from) = unsafe { (raw_of(table), cursor.read()) };
    // SAFETY: as above.
    let show = |link| _ = unsafe { visit(from_raw(link), argument) };
    let next = table.scan(from, count, &callers_guard(), show);
    // SAFETY: as above. Written through the pointer, because `visit` may have read it.
    unsafe { cursor.write(next.unwrap_or(0)) };
    next.is_some()
}

/// Removes all objects, bucket by bucket, and calls `removed` with each; its result is ignored. The
/// caller owns the objects now, and may free them after a grace period. Objects that are added
/// meanwhile may stay.
///
/// Requires: as for relativist_for_each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_clear(table: *const Table, removed: Visit, argument: *mut c_void) {
    let removed = removed.expect("a function that is NULL");
    // SAFETY: guaranteed by the caller.
    let table = unsafe { raw_of(table) };
    // SAFETY: as above.
    table.clear(&read(), |link| _ = unsafe { removed(from_raw(link), argument) });
}

/// Returns the number of objects. It is exact if no thread updates the table meanwhile.
///
/// Requires: the table is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_count(table: *const Table) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { raw_of(table) }.len()
}

/// Returns the number of buckets.
///
/// Requires: the table is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_buckets(table: *const Table) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { raw_of(table) }.buckets()
}

/// Resizes the table to `buckets` buckets, rounded up to a power of two. Returns 0, or ENOMEM.
/// Lookups and updates can run at the same time.
///
/// Aborts inside a read section: it waits for readers.
///
/// Requires: the table is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn relativist_resize(table: *const Table, buckets: usize) -> c_int {
    // SAFETY: guaranteed by the caller.
    let resized = unsafe { raw_of(table) }.resize_to(buckets);
    resized.map_or(libc::ENOMEM, |()| 0)
}

/// # Safety
///
/// The link was initialised, and is valid.
unsafe fn hash_of(link: *mut Link) -> Hash {
    // SAFETY: guaranteed by the caller.
    unsafe { into_raw(link).as_ref() }.hash()
}

/// # Safety
///
/// `visit` may be called with the links.
unsafe fn visit_all(mut links: impl Iterator<Item = NonNull<raw::Link>>, visit: Visit, argument: *mut c_void) {
    let visit = visit.expect("a visit function that is NULL");
    // SAFETY: guaranteed by the caller.
    let _ = links.all(|link| unsafe { visit(from_raw(link), argument) });
}
