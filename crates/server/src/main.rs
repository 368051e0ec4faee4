//! `relativistd`: parses the command line, starts the server, and stops it on SIGINT or SIGTERM.

use mimalloc::MiMalloc;
use relativistd::{Options, Server, StartError, Stopper, options};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;

/// Items are many, small, and freed on other threads than they were allocated on.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let options = match Options::parse_from_args(std::env::args_os()) {
        Ok(options) => options,
        Err(message) => {
            // Help on a closed pipe is nobody's loss.
            let _ = message.print();
            return options::exit_status(&message).into();
        }
    };
    match serve(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The exit status tells as much if stderr is gone.
            let _ = writeln!(io::stderr().lock(), "relativistd: {error}");
            error.exit_status().into()
        }
    }
}

fn serve(options: &Options) -> Result<(), StartError> {
    let server = Server::bind(options)?;
    stop_on_signals(server.stopper())?;
    server.run()
}

/// Lets the first SIGINT or SIGTERM stop the server. The thread waits for signals until the process ends.
fn stop_on_signals(stopper: Stopper) -> Result<(), StartError> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| StartError::System("cannot watch for signals".into(), error))?;
    thread::spawn(move || {
        for _signal in &mut signals {
            stopper.stop();
        }
    });
    Ok(())
}
