//! `relativistd`: parses the command line, goes into the background if it is to, starts the server, and does what signals say.

use mimalloc::MiMalloc;
use relativistd::engine::{Engine, GlobalLock};
use relativistd::options::EngineKind;
use relativistd::process::{PidFile, Readiness, Side, daemonize};
use relativistd::{Options, Reloader, Saver, Server, StartError, Stopper, log, options, systemd};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;

/// For what connections need; items lie in memory of the engine's own.
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
    log::to_stderr(options.log_format);
    run(&options).unwrap_or_else(|error| {
        log::fatal(&error);
        error.exit_status().into()
    })
}

/// Does what the options ask for, which need not be to serve.
fn run(options: &Options) -> Result<ExitCode, StartError> {
    // What is printed to a closed pipe is nobody's loss.
    if options.license {
        let _ = io::stdout().write_all(include_bytes!("../../../LICENSE-MIT"));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(kind) = options.generate {
        let _ = kind.write(&mut io::stdout());
        return Ok(ExitCode::SUCCESS);
    }
    options.check()?;
    if options.only_check {
        return Ok(ExitCode::SUCCESS);
    }
    let mut readiness = None;
    if options.daemon {
        match daemonize().map_err(|error| StartError::System("cannot go into the background".into(), error))? {
            Side::Starter(status) => return Ok(status),
            Side::Daemon(other) => readiness = Some(other),
        }
    }
    match options.engine {
        EngineKind::Relativistic => serve(Server::bind(options)?, options, readiness),
        EngineKind::GlobalLock => serve(Server::bind_with(options, GlobalLock::new)?, options, readiness),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn serve<E: Engine>(server: Server<E>, options: &Options, readiness: Option<Readiness>) -> Result<(), StartError> {
    let _pid_file = options.pidfile.as_deref().map(|path| PidFile::write(path, options.daemon)).transpose()?;
    obey_signals(server.stopper(), server.reloader(), server.saver())?;
    systemd::tell_ready();
    if let Some(readiness) = readiness {
        readiness.announce(options.verbose > 0);
    }
    server.run()
}

/// Lets SIGTERM and SIGUSR1 stop the server when it is drained, or at once the second time, as SIGINT does; SIGHUP make it read its users again, and SIGUSR2 write its
/// snapshot. The threads wait for signals until the process ends: one for what takes no time, one for the snapshot.
fn obey_signals(stopper: Stopper, reloader: Reloader, saver: Saver) -> Result<(), StartError> {
    let watch = |signals: &[i32]| {
        Signals::new(signals).map_err(|error| StartError::System("cannot watch for signals".into(), error))
    };
    let mut signals = watch(&[SIGINT, SIGTERM, SIGUSR1, SIGHUP])?;
    let mut requests = watch(&[SIGUSR2])?;
    thread::spawn(move || requests.forever().for_each(|_| saver.save()));
    thread::spawn(move || {
        for signal in &mut signals {
            match signal {
                SIGHUP => reloader.reload(),
                SIGINT => stopper.stop(),
                _ if stopper.is_stopping() => stopper.stop(),
                _ => stopper.drain(),
            }
        }
    });
    Ok(())
}
