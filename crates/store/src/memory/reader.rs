//! For tests: a reader that stays in its section.

use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

/// A thread in a read section, until this is dropped.
pub(crate) struct Reader(Option<(Sender<()>, JoinHandle<()>)>);

impl Reader {
    /// Starts the thread. Returns when it has entered its section.
    pub(crate) fn enter() -> Reader {
        let (entered, has_entered) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel();
        let thread = thread::spawn(move || {
            let _section = relativist_rcu::read();
            entered.send(()).expect("`enter` waits for this");
            // Returns when the sender is dropped.
            let _ = may_leave.recv();
        });
        has_entered.recv().expect("the thread enters");
        Reader(Some((leave, thread)))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some((leave, thread)) = self.0.take() {
            drop(leave);
            thread.join().expect("the reader does not panic");
        }
    }
}
