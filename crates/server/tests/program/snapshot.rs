//! Tests of restarts with `--snapshot`.

use super::{Daemon, converse, expect, logs, patience, program, program_after, run, serve, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::BufReader;
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The number of items. Their snapshot has a few frames.
const ITEMS: usize = 5_000;

/// Starts a server with its snapshot at `file`, and returns it with its port.
fn start(file: &Path, command: &mut Command) -> (Daemon, u16) {
    let (daemon, port) = serve(command.args(["-t", "1", "-v", "-o", "drop_privileges", "-e"]).arg(file));
    // Before it serves clients, a signal ends it by default.
    assert_eq!(converse(port, "mn\r\n"), "MN\r\n");
    (daemon, port)
}

/// Returns the program with the option that keeps the snapshot, so that it also loads one that was
/// written on SIGUSR2.
fn warm() -> Command {
    let mut command = program();
    command.arg("--warm-after-crash");
    command
}

/// Stores `value` under all keys.
fn fill(port: u16, value: &str) {
    let sets: String = (0..ITEMS).map(|n| format!("set {n} 0 0 {} noreply\r\n{value}\r\n", value.len())).collect();
    assert_eq!(converse(port, &format!("{sets}mn\r\n")), "MN\r\n");
}

/// Returns the value of all keys, and asserts that it is the same.
fn value(port: u16) -> String {
    let all = converse(port, &(0..ITEMS).map(|n| format!("mg {n} v\r\n")).collect::<String>());
    let mut values = all.lines().skip(1).step_by(2);
    let first = values.next().expect("the server has items").to_owned();
    assert!(values.all(|value| value == first), "values of two snapshots");
    assert_eq!(all.lines().filter(|line| line.starts_with("VA ")).count(), ITEMS);
    first
}

#[test]
fn a_draft_of_a_server_that_was_killed_is_removed_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let (file, draft) = (folder.path().join("items"), folder.path().join("items.new"));
    fs::write(&draft, "values").unwrap();
    let (daemon, _) = start(&file, &mut program());
    assert!(!draft.exists());
    let (status, stderr) = daemon.end(Signal::SIGTERM);
    assert_eq!(status, Some(0), "{stderr}");
}

#[test]
fn every_orderly_end_keeps_the_items() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("items");
    let (daemon, port) = start(&file, &mut program());
    assert_eq!(converse(port, "set a 7 0 2\r\n00\r\nset gone 0 -1 1\r\nx\r\n"), "STORED\r\nSTORED\r\n");
    assert_eq!(daemon.end(Signal::SIGTERM).0, Some(0));
    for (signal, number) in [(Signal::SIGINT, "01"), (Signal::SIGUSR1, "02"), (Signal::SIGTERM, "03")] {
        let (daemon, port) = start(&file, &mut program());
        assert_eq!(converse(port, "incr a 1\r\nget gone\r\n"), format!("{}\r\nEND\r\n", &number[1..]));
        let (status, stderr) = daemon.end(signal);
        assert_eq!(status, Some(0), "{signal}: {stderr}");
        assert!(stderr.contains("1 items from ") && stderr.contains("1 items written to "), "{stderr}");
    }
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let (_daemon, port) = start(&file, &mut program());
    assert_eq!(converse(port, "get a\r\n"), "VALUE a 7 2\r\n3 \r\nEND\r\n");
}

#[test]
fn after_a_crash_the_cache_starts_cold() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("items");
    let (daemon, port) = start(&file, &mut program());
    assert_eq!(converse(port, "set a 0 0 3\r\nold\r\n"), "STORED\r\n");
    assert_eq!(daemon.end(Signal::SIGTERM).0, Some(0));
    let (daemon, port) = start(&file, &mut program());
    assert_eq!(converse(port, "get a\r\ndelete a\r\n"), "VALUE a 0 3\r\nold\r\nEND\r\nDELETED\r\n");
    assert!(!file.exists(), "the snapshot is older than the crash");
    daemon.end(Signal::SIGKILL);
    let (daemon, port) = start(&file, &mut program());
    assert_eq!(converse(port, "get a\r\nset a 0 0 3\r\nold\r\n"), "END\r\nSTORED\r\n");

    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGUSR2).unwrap();
    wait_until("the snapshot", || file.exists());
    assert_eq!(converse(port, "delete a\r\n"), "DELETED\r\n");
    let (_, stderr) = daemon.end(Signal::SIGKILL);
    assert!(stderr.contains("only a server started with --warm-after-crash"), "{stderr}");
    let (daemon, port) = start(&file, &mut program());
    assert_eq!(converse(port, "get a\r\n"), "END\r\n");
    let (_, stderr) = daemon.end(Signal::SIGKILL);
    assert!(stderr.contains("the cache starts empty") && stderr.contains("--warm-after-crash"), "{stderr}");

    for _ in 0..2 {
        let (daemon, port) = start(&file, &mut warm());
        assert_eq!(converse(port, "get a\r\n"), "VALUE a 0 3\r\nold\r\nEND\r\n");
        daemon.end(Signal::SIGKILL);
    }
}

/// A server that fails to start changes nothing.
#[test]
fn a_start_that_fails_keeps_the_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("items");
    let (daemon, port) = start(&file, &mut program());
    assert_eq!(converse(port, "set a 0 0 3\r\nold\r\n"), "STORED\r\n");
    assert_eq!(daemon.end(Signal::SIGTERM).0, Some(0));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for cause in [format!("-p {port}"), "-p -1 -P /nonexistent/pid".into()] {
        let output = run(&format!("{cause} -e {}", file.display()));
        assert!(matches!(output.status.code(), Some(71)), "{cause}: {output:?}");
    }
    let (_daemon, port) = start(&file, &mut program());
    assert_eq!(converse(port, "get a\r\n"), "VALUE a 0 3\r\nold\r\nEND\r\n");
}

/// A CAS value from before an orderly end or a crash is never that of another item afterwards.
#[test]
fn cas_values_do_not_repeat_after_a_crash() {
    for command in [program, warm] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("items");
        let (daemon, port) = start(&file, &mut command());
        let mut known = Vec::new();
        let cas = |port, value: &str| {
            let reply = converse(port, &format!("set k 0 0 1\r\n{value}\r\nmg k c\r\n"));
            reply.strip_prefix("STORED\r\nHD c").expect(&reply).trim().to_owned()
        };
        known.push(cas(port, "0"));
        assert_eq!(daemon.end(Signal::SIGTERM).0, Some(0));
        for life in 1..=3 {
            let (daemon, port) = start(&file, &mut command());
            let now = cas(port, &life.to_string());
            for old in &known {
                assert_eq!(converse(port, &format!("cas k 0 0 4 {old}\r\nlost\r\n")), "EXISTS\r\n", "{now}");
            }
            known.push(now);
            daemon.end(Signal::SIGKILL);
        }
    }
}

#[test]
fn killing_the_writer_leaves_one_snapshot_or_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let (file, draft) = (folder.path().join("items"), folder.path().join("items.new"));
    let text = |round: usize| format!("{round}").repeat(200);
    let (daemon, port) = start(&file, &mut warm());
    fill(port, &text(0));
    assert_eq!(daemon.end(Signal::SIGTERM).0, Some(0));
    let (length, mut last) = (fs::metadata(&file).unwrap().len(), 0);
    for round in 1..=7 {
        let (daemon, port) = start(&file, &mut warm());
        assert_eq!(value(port), text(last));
        fill(port, &text(round));
        let before = fs::metadata(&file).unwrap().ino();
        kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGUSR2).unwrap();
        // Kill the writer at another time in each round: in the last one, after it has renamed the
        // draft.
        let min_length = length * (round as u64 - 1) / 5;
        let began = Instant::now();
        while fs::metadata(&file).unwrap().ino() == before
            && fs::metadata(&draft).map_or(true, |draft| draft.len() < min_length)
        {
            assert!(began.elapsed() < patience(), "the snapshot is not written");
        }
        daemon.end(Signal::SIGKILL);
        let (daemon, port) = start(&file, &mut warm());
        let now = value(port);
        last = if now == text(round) { round } else { last };
        assert_eq!(now, text(last));
        daemon.end(Signal::SIGKILL);
    }
}

#[test]
fn a_full_disk_leaves_the_old_snapshot_and_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("items");
    let (daemon, port) = start(&file, &mut warm());
    assert_eq!(converse(port, "set 0 0 0 3\r\nold\r\n"), "STORED\r\n");
    assert_eq!(daemon.end(Signal::SIGTERM).0, Some(0));

    // For a process that ignores the signal, a limit on the file size looks like a full disk.
    let mut limited = program_after("trap '' XFSZ && ulimit -f 64");
    let (daemon, port) = start(&file, limited.arg("--warm-after-crash"));
    fill(port, &"new".repeat(100));
    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGUSR2).unwrap();
    assert_eq!(value(port), "new".repeat(100), "the server continues to serve");
    let (status, stderr) = daemon.end(Signal::SIGTERM);
    assert_eq!(status, Some(71), "{stderr}");
    assert!(stderr.contains("cannot write the snapshot"), "{stderr}");

    let (_daemon, port) = start(&file, &mut warm());
    assert_eq!(converse(port, "get 0 1\r\n"), "VALUE 0 0 3\r\nold\r\nEND\r\n");
    assert!(!file.with_extension("new").exists());
}

#[test]
fn without_descriptors_the_old_snapshot_stays_and_an_error_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("items");
    let (mut daemon, port) = start(&file, &mut warm());
    let id = daemon.0.id();
    let mut stderr = BufReader::new(daemon.0.stderr.take().unwrap());
    let save = || kill(Pid::from_raw(id as i32), Signal::SIGUSR2).unwrap();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut ask = |request: &str, reply: &str| expect(&mut client, request, reply);
    ask("set a 0 0 3\r\nold\r\n", "STORED\r\n");
    save();
    wait_until("the snapshot", || file.exists());
    // Descriptors that are open stay open.
    let limit = Command::new("prlimit").arg("--nofile=3:3").args(["--pid", &id.to_string()]).status();
    assert!(limit.expect("util-linux is there").success());
    ask("set a 0 0 3\r\nnew\r\n", "STORED\r\n");
    save();
    assert!(logs(&mut stderr, "Too many open files"));
    ask("get a\r\n", "VALUE a 0 3\r\nnew\r\nEND\r\n");
    kill(Pid::from_raw(id as i32), Signal::SIGTERM).unwrap();
    assert!(logs(&mut stderr, "cannot write the snapshot"));
    assert_eq!(daemon.0.wait().unwrap().code(), Some(71));

    let (_daemon, port) = start(&file, &mut warm());
    assert_eq!(converse(port, "get a\r\n"), "VALUE a 0 3\r\nold\r\nEND\r\n");
}

#[test]
fn a_file_that_is_no_snapshot_is_refused_and_the_cache_starts_empty() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("items");
    fs::write(&file, "set a 0 0 1\r\nx\r\n and more that is not a snapshot").unwrap();
    let (daemon, port) = start(&file, &mut program());
    assert_eq!(converse(port, "get a\r\n"), "END\r\n");
    let (_, stderr) = daemon.end(Signal::SIGKILL);
    assert!(stderr.contains("the cache starts empty") && stderr.contains("it is not a snapshot"), "{stderr}");
    assert_eq!(run("-p -1 -e /nonexistent/items").status.code(), Some(71));
}

#[test]
fn without_a_file_a_request_for_a_snapshot_logs_a_warning() {
    let (mut daemon, port) = serve(&mut program());
    // The server handles signals at the latest when it answers a request.
    assert_eq!(converse(port, "mn\r\n"), "MN\r\n");
    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGUSR2).unwrap();
    assert!(logs(&mut BufReader::new(daemon.0.stderr.as_mut().unwrap()), "no snapshot written"));
    assert_eq!(converse(port, "mn\r\n"), "MN\r\n");
}
