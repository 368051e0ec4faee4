//! Code that the tests of this folder share: no test may hang, whatever is broken.
#![allow(dead_code, reason = "each test program takes what it needs")]

use std::sync::mpsc;

use relativist_testing::patience;

/// Runs `body` on its own thread. Panics if it panics, or does not end.
#[track_caller]
pub fn must_end<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || done.send(body()));
    match ended.recv_timeout(patience()) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("ended without a result"),
        },
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("hangs"),
    }
}

/// A reader on its own thread, which stays in its section until `leave` is called.
pub struct Reader {
    thread: std::thread::JoinHandle<()>,
    leave: mpsc::Sender<()>,
}

impl Reader {
    /// Returns when the reader is inside.
    pub fn enter() -> Self {
        let (entered, inside) = mpsc::channel();
        let (leave, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let guard = relativist_rcu::read();
            entered.send(()).unwrap();
            // An error means that the test has failed and unwinds.
            let _ = told.recv();
            drop(guard);
        });
        inside.recv().unwrap();
        Self { thread, leave }
    }

    /// Returns when the thread of the reader is gone.
    pub fn leave(self) {
        drop(self.leave);
        self.thread.join().unwrap();
    }
}
