//! Insertions grow a table while the worker is blocked. In a process of its own, because there is
//! one worker per process.
#![cfg(not(relativist_loom))]

use std::ptr::NonNull;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};

use relativist_rcu::read;
use relativist_table::worker::{Progress, Resize, request};
use relativist_table::{Entry, Hash, Link, Resizing, Table};
use relativist_testing::wait_until;

/// Blocks the worker from the time at which it says so until it is told to go on.
struct Blocks(Mutex<(Sender<()>, Receiver<()>)>);

impl Resize for Blocks {
    fn advance_resize(&self) -> Progress {
        let (blocked, go_on) = &*self.0.lock().unwrap();
        _ = blocked.send(());
        _ = go_on.recv();
        Progress::Done
    }
}

unsafe fn dispose(link: NonNull<Link>) {
    // SAFETY: all links of this table are boxed.
    drop(unsafe { Box::from_raw(link.as_ptr()) });
}

fn link(hash: Hash) -> NonNull<Link> {
    NonNull::from(Box::leak(Box::new(Link::new(hash))))
}

/// T5: a table never has more than 16 links per bucket, whatever the worker does. The thread that
/// inserts holds a read section all the time. Another thread holds the lock of a bucket at first:
/// nobody waits for it, and the table goes on growing when it has left.
#[test]
fn insertions_grow_the_table_while_the_worker_is_blocked() {
    const LINKS: usize = 30_000;
    let ((said, is_blocked), (tell, told)) = (channel(), channel());
    let blocks = Arc::new(Blocks(Mutex::new((said, told))));
    let weak: Weak<Blocks> = Arc::downgrade(&blocks);
    assert!(request(weak), "the worker can be started");
    is_blocked.recv().expect("it says so");

    let table = Table::new(64, Resizing::Automatic, dispose).expect("memory for some buckets");
    let hash_of = |n: usize| Hash::new(n as u64);
    let locked_bucket = |hash: Hash| hash.get() >> 58 == 63;
    let guard = read();
    // SAFETY: a fresh link.
    let insert = |n| unsafe { table.insert(link(hash_of(n)), &guard) };
    std::thread::scope(|scope| {
        let (release, released) = channel::<()>();
        let (locked, is_locked) = channel();
        let table = &table;
        scope.spawn(move || {
            let guard = read();
            let hash = (0..).map(|n| Hash::new(u64::MAX / 2 + n)).find(|&hash| locked_bucket(hash)).unwrap();
            let Entry::Vacant(entry) = table.entry(hash, |_| false, &guard) else { panic!("the table is empty") };
            locked.send(()).expect("the other thread waits");
            _ = released.recv();
            // SAFETY: a fresh link.
            unsafe { entry.insert(link(hash)) };
        });
        is_locked.recv().expect("it locks a bucket");
        (0..2000).filter(|&n| !locked_bucket(hash_of(n))).for_each(insert);
        assert_eq!(table.buckets(), 64, "the growth has stopped at the locked bucket");
        drop(release);
    });
    (0..2000).filter(|&n| locked_bucket(hash_of(n))).for_each(insert);
    for n in 2000..LINKS {
        insert(n);
        assert!(n < 4000 || table.len() <= 16 * table.buckets(), "{} in {}", table.len(), table.buckets());
    }
    for n in 0..LINKS {
        table.find(hash_of(n), |_| true, &guard).expect("it was inserted");
    }
    drop(guard);
    tell.send(()).expect("the worker waits");
    wait_until("the worker to cut chains", || table.buckets() > LINKS / 2 && !table.is_resizing());
    assert_eq!(table.stats().entries, LINKS + 1);
}
