//! `relativistd`: parses the command line, goes into the background (`-d`), starts the server, and
//! handles signals.

use relativistd::observability::log;
use relativistd::process::allocator::map_large_blocks;
use relativistd::process::daemon::{PidFile, Readiness, Side, daemonize};
use relativistd::process::systemd;
use relativistd::signals::HeldSignals;
use relativistd::{CommandLine, Ended, Server, StartError, options, signals};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    map_large_blocks();
    // Without a working directory, relative paths cannot be opened in any case.
    let folder = std::env::current_dir().unwrap_or_default();
    let line = match CommandLine::parse(std::env::args_os(), folder) {
        Ok(mut line) => {
            line.options.owns_process = true;
            line
        }
        Err(message) => {
            // If the pipe is closed, the help is not wanted.
            let _ = message.print();
            return options::exit_status(&message).into();
        }
    };
    log::to_stderr(line.options.log_format);
    let status = run(&line).unwrap_or_else(|error| {
        log::fatal(&error);
        error.exit_status().into()
    });
    log::flush();
    status
}

/// Does what the options ask for: serves, or prints something and returns.
fn run(line: &CommandLine) -> Result<ExitCode, StartError> {
    let options = &line.options;
    // If the pipe is closed, the output is not wanted.
    if options.license {
        let _ = io::stdout().write_all(include_bytes!("../LICENSE-MIT"));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(kind) = options.generate {
        let _ = kind.write(&mut io::stdout());
        return Ok(ExitCode::SUCCESS);
    }
    options.check()?;
    if options.only_check {
        return Server::check(options).map(|()| ExitCode::SUCCESS);
    }
    let mut readiness = None;
    if options.daemon {
        if systemd::has_sockets() {
            return Err(StartError::Usage(
                "the sockets of systemd (LISTEN_FDS) would be lost in the background (-d)".into(),
            ));
        }
        match daemonize().map_err(|error| StartError::System("cannot go into the background".into(), error))? {
            Side::Starter(status) => return Ok(status),
            Side::Daemon(other) => readiness = Some(other),
        }
    }
    // The sandbox may block this check later.
    let is_interactive = !options.daemon && io::stderr().is_terminal();
    let signals = signals::hold()?;
    serve(Server::bind(options)?, line, signals, is_interactive, readiness).map(|()| ExitCode::SUCCESS)
}

fn serve(
    server: Server,
    line: &CommandLine,
    signals: HeldSignals,
    is_interactive: bool,
    readiness: Option<Readiness>,
) -> Result<(), StartError> {
    let options = &line.options;
    let pid_file = options.pidfile.as_deref().map(|path| PidFile::write(path, options.daemon)).transpose()?;
    log::in_background().map_err(|error| StartError::System("cannot start the thread of the log".into(), error))?;
    signals.obey(server.stopper(), server.reloader(line.clone()), server.saver())?;
    let addresses = server.client_addresses();
    let ended = server.run_and_announce(|| {
        // Without this line it would look as if nothing happened.
        if is_interactive && !addresses.is_empty() {
            log::notice(&format!("listening on {}; press Ctrl-C to stop", addresses.join(", ")));
        }
        systemd::notify_ready(options.take_over.is_some());
        if let Some(readiness) = readiness {
            // It may replace stderr.
            log::flush();
            readiness.announce(options.verbose > 0);
        }
    })?;
    if let (Ended::HandedOver, Some(pid_file)) = (ended, pid_file) {
        pid_file.leave();
    }
    Ok(())
}
