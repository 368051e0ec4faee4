//! Interrupts runs, and checks their reports, their exit status, and that no server outlives them.
#![cfg(target_os = "linux")]

mod started;

use std::process::Command;

use relativist_testing::{Run, poll, send, wait_until};
use serde_json::Value;
use started::script;
use tempfile::TempDir;

const RELATIVIST: &str = env!("CARGO_BIN_EXE_relativist-bench");

/// Runs the workbench in a folder of its own.
fn begin(line: &str) -> Run<TempDir> {
    let mut command = Command::new(RELATIVIST);
    command.args(shlex::split(line).unwrap());
    Run::begin(tempfile::tempdir().unwrap(), command)
}

/// Waits until the run has started a server, directly or through a script.
fn wait_for_server(run: &Run<TempDir>) -> i32 {
    let is_server = |arguments: &str| arguments.contains(started::NAME) && !arguments.contains("\0supervise\0");
    let server = || run.processes().into_iter().find(|(_, arguments)| is_server(arguments));
    poll("a server", server).0
}

#[test]
fn an_interrupted_measurement_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    for (signal, status) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let server = script(folder.path(), "exec SERVE");
        let servers = format!("--exec '{server} -t 1' --vs {server} --items 100");
        let mut run = begin(&format!("load {servers} --rounds 200 --seconds 2 --json samples.json"));
        wait_for_server(&run);
        run.signal(signal);
        let (ended, stderr) = (run.status(), run.read("stderr"));
        assert_eq!(ended.code(), Some(status), "{stderr}");
        assert!(stderr.contains("the report follows after this round"), "{stderr}");
        assert!(run.read("stdout").contains("server CPU/request"));
        let document: Value = serde_json::from_str(&run.read("samples.json")).unwrap();
        let servers = document["results"]["servers"].as_array().unwrap();
        let rounds: Vec<_> = servers.iter().map(|server| server["samples"].as_array().unwrap().len()).collect();
        assert!(rounds.len() == 2 && (1..200).contains(&rounds[0]) && rounds[0] == rounds[1], "{rounds:?}");
        let warning = format!("interrupted: {} of 200 rounds were measured", rounds[0]);
        assert!(document["warnings"].as_array().unwrap().contains(&warning.into()), "{}", document["warnings"]);
    }
}

/// The workbench starts the server directly, through a script, in a new session, or as a daemon,
/// whose parent has ended.
#[test]
fn no_server_outlives_the_run() {
    // Below `nohup`, programs ignore SIGHUP.
    // SAFETY: sets the default action.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    let folder = tempfile::tempdir().unwrap();
    let scripts = ["exec SERVE", "SERVE\ntrue", "setsid SERVE &\nwait", "(setsid SERVE &)\nexec sleep 1000"];
    let ends: [&[i32]; 4] =
        [&[libc::SIGINT, libc::SIGINT], &[libc::SIGTERM, libc::SIGINT], &[libc::SIGHUP], &[libc::SIGKILL]];
    for text in scripts {
        let server = script(folder.path(), text);
        for signals in ends {
            let mut run = begin(&format!("load --exec {server} --items 100 --rounds 20 --seconds 60"));
            wait_for_server(&run);
            let (&last, first) = signals.split_last().unwrap();
            for &signal in first {
                run.signal(signal);
                wait_until("a notice", || run.read("stderr").contains("a second signal ends the run at once"));
            }
            run.signal(last);
            let status = run.status();
            assert_eq!(status.code(), (!first.is_empty()).then_some(130), "{text}, {signals:?}: {status}");
            wait_until(&format!("the end of {text} after {signals:?}"), || run.processes().is_empty());
        }
    }
}

/// A complete run also ends the servers that its command started as daemons.
#[test]
fn no_daemon_outlives_a_complete_run() {
    let folder = tempfile::tempdir().unwrap();
    let server = script(folder.path(), "(setsid SERVE &)\nexec sleep 1000");
    let mut run = begin(&format!("load --exec {server} --items 100 --rounds 1 --seconds 2"));
    assert!(run.status().success(), "{}", run.read("stderr"));
    // The run ends only after all servers.
    assert_eq!(run.processes(), []);
}

/// A server ends when its supervisor is killed.
#[test]
fn no_server_outlives_its_supervisor() {
    let folder = tempfile::tempdir().unwrap();
    let server = script(folder.path(), "exec SERVE");
    let mut run = begin(&format!("load --exec {server} --items 100 --rounds 20 --seconds 3"));
    let server = wait_for_server(&run);
    let is_supervisor = |(_, arguments): &(i32, String)| arguments.contains("\0supervise\0");
    let (supervisor, _) = run.processes().into_iter().find(is_supervisor).unwrap();
    send(supervisor, libc::SIGKILL).unwrap();
    wait_until("the end of the server", || !run.processes().iter().any(|&(process, _)| process == server));
    assert_eq!(run.status().code(), Some(1), "{}", run.read("stderr"));
}
