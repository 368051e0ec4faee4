//! Runs against servers that are replaced or incomplete, and runs that are interrupted.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use relativist_testing::{Run, wait_until};
use relativistd::{Options, Server};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_relativist-check");

/// Runs the program in a folder of its own.
fn begin(line: &str) -> Run<TempDir> {
    let mut command = Command::new(PROGRAM);
    command.args(shlex::split(line).unwrap());
    Run::begin(tempfile::tempdir().unwrap(), command)
}

/// An environment variable with the options of a server.
const OPTIONS: &str = "RELATIVIST_TEST_OPTIONS";

/// A server for the tests below, if that variable is set. Otherwise it does nothing.
#[test]
fn serves_if_there_are_options() {
    if let Ok(options) = std::env::var(OPTIONS) {
        let options = Options::parse_from_args(["relativistd"].into_iter().chain(options.split(' '))).unwrap();
        Server::bind(&options).unwrap().run().unwrap();
    }
}

/// Writes a script that starts a server after `before`, and returns its path.
fn script(folder: &Path, before: &str) -> String {
    let (path, test) = (folder.join("server"), std::env::current_exe().unwrap());
    let serve = format!("exec env {OPTIONS}=\"$*\" '{}' --exact serves_if_there_are_options", test.display());
    fs::write(&path, format!("#!/bin/sh\n{before}\n{serve}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// A server is replaced while it is tested. No reply is wrong, and the last successor ends with the
/// run.
#[test]
fn an_interrupted_soak_with_successors_reports_what_it_has_done() {
    let folder = tempfile::tempdir().unwrap();
    let server = script(folder.path(), "");
    // The code of this program takes most of the memory that soak allows for other things than
    // items. So the limit is one that the items do not reach.
    for options in ["--unix --exec 'SERVER -m 64 -I 100k'", "--exec 'SERVER -m 64 -I 100k'"] {
        let options = options.replace("SERVER", &server);
        let mut run = begin(&format!("{options} --hand-over 0.2 --clients 4 --keys 300 --seconds 300"));
        let mut successors = BTreeSet::new();
        wait_until("successors", || {
            let found = run.processes().into_iter().filter(|(_, arguments)| arguments.contains("\0--take-over\0"));
            successors.extend(found.map(|(process, _)| process));
            assert!(run.ended().is_none(), "{}", run.read("stderr"));
            // Each successor has a supervisor.
            successors.len() > 8
        });
        run.signal(libc::SIGINT);
        let (status, stderr, stdout) = (run.status(), run.read("stderr"), run.read("stdout"));
        assert_eq!(status.code(), Some(130), "{stderr}");
        assert!(stdout.contains("answers, none wrong") && stdout.contains("the server was replaced"), "{stdout}");
        wait_until("the end of all processes", || run.processes().is_empty());
    }
}

/// The successors accept only smaller items, and leave the others out.
#[test]
fn what_a_successor_leaves_out_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let server = script(folder.path(), "case \"$*\" in *--take-over*) set -- \"$@\" -I 20k;; esac");
    let mut run = begin(&format!("--exec '{server} -m 64 -I 100k' --hand-over 1 --clients 4 --seconds 100"));
    let (status, stderr) = (run.status(), run.read("stderr"));
    // Or a value that is too large now is refused.
    let is_noticed =
        stderr.contains("are missing that were not evicted") || stderr.contains("refused for a wrong reason");
    assert!(status.code() == Some(1) && is_noticed, "{stderr}");
}

#[test]
fn an_interrupted_run_reports_what_it_has_done() {
    let server = Server::bind(&Options::parse_from_args(["relativistd", "-p", "-1", "-t", "1"]).unwrap()).unwrap();
    let (address, stopper) = (server.addresses()[0], server.stopper());
    let running = thread::spawn(|| server.run());
    let mut run = begin(&format!("--clients 2 --keys 100 --seconds 60 --server {address}"));
    wait_until("the first requests", || {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"stats\r\nquit\r\n").unwrap();
        !std::io::read_to_string(client).unwrap().contains("STAT cmd_set 0\r\n")
    });
    run.signal(libc::SIGINT);
    let (status, stderr, stdout) = (run.status(), run.read("stderr"), run.read("stdout"));
    stopper.stop();
    running.join().unwrap().unwrap();
    assert!(status.code() == Some(130) && stderr.contains("interrupted after"), "{stderr}");
    assert!(stdout.contains("answers, none wrong"), "{stdout}");
}

#[test]
fn wrong_options_are_refused_with_an_explanation() {
    for (line, explanation) in [
        ("", "--server"),
        ("--server 127.0.0.1", "HOST:PORT or unix:PATH"),
        ("--server 127.0.0.1:1 --unix", "cannot be used with"),
        ("--server 127.0.0.1:1 --hand-over 1", "cannot be used with"),
        ("--exec relativistd --seconds 0", "between 0.001 and 3600"),
        ("--exec /nonexistent/server", "cannot start server: No such file"),
        ("--exec false", "false ended: exit status: 1"),
    ] {
        let output = Command::new(PROGRAM).args(line.split_whitespace()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{line}: {}", output.status);
        assert!(stderr.contains(explanation) && output.stdout.is_empty(), "{line}: {stderr}");
    }
}

#[test]
fn the_help_has_the_options_of_a_run() {
    let help = String::from_utf8(Command::new(PROGRAM).arg("--help").output().unwrap().stdout).unwrap();
    for expected in ["Sends random requests", "--hand-over <SECONDS>", "\n  130  "] {
        assert!(help.contains(expected), "{expected}: {help}");
    }
    assert!(!help.contains("supervise"), "{help}");
}
