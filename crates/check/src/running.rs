//! A relativistd in this process, for tests.

use std::thread::{self, JoinHandle};

use relativistd::{Options, Server, StartError, Stopper};

use crate::client::Address;

pub(crate) struct Running {
    pub(crate) address: Address,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), StartError>>>,
}

impl Running {
    pub(crate) fn start(flags: &str) -> Self {
        let line = format!("relativistd -p -1 -t 2 {flags}");
        let server = Server::bind(&Options::parse_from_args(line.split_whitespace()).unwrap()).unwrap();
        let (address, stopper) = (Address::Tcp(server.addresses()[0]), server.stopper());
        Self { address, stopper, thread: Some(thread::spawn(|| server.run())) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}
