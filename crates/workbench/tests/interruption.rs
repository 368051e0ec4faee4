//! Interrupts runs, and checks their reports, their exit status, and that no server outlives them.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use relativist_testing::{poll, wait_until};
use relativistd::{Options, Server};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;

const RELATIVIST: &str = env!("CARGO_BIN_EXE_relativist-bench");

/// An environment variable that marks all descendants of a run, whatever their parents and sessions
/// are.
const MARKER: &str = "RELATIVIST_TEST_RUN";

/// A run in its own process group, as if a terminal had started it, and in its own folder. Its
/// stdout and stderr are files there, because processes that it leaves behind would hold pipes
/// open.
struct Run {
    child: Child,
    folder: TempDir,
}

impl Run {
    fn begin(line: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [stdout, stderr] = ["stdout", "stderr"].map(|name| File::create(folder.path().join(name)).unwrap());
        let mut command = Command::new(RELATIVIST);
        command.args(shlex::split(line).unwrap()).env(MARKER, folder.path()).current_dir(folder.path());
        let child = command.process_group(0).stdout(stdout).stderr(stderr).spawn().unwrap();
        Self { child, folder }
    }

    /// Returns the contents of a file in the folder.
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// Waits until the run ends.
    fn status(&mut self) -> ExitStatus {
        poll("the end of the run", || self.child.try_wait().unwrap())
    }

    /// Returns all descendants of the run with their arguments. Zombies have no arguments.
    fn processes(&self) -> Vec<(i32, String)> {
        let marker = format!("{MARKER}={}\0", self.folder.path().display());
        let find = |pid: i32| {
            let read =
                |file: &str| Some(String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{file}")).ok()?).into_owned());
            read("environ").filter(|environment| environment.contains(&marker))?;
            Some((pid, read("cmdline")?))
        };
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter_map(find).collect()
    }

    /// Waits until the run has started a server, directly or through a script.
    fn wait_for_server(&self) -> i32 {
        let is_server = |arguments: &str| arguments.contains("\0echo\0") && !arguments.contains("\0supervise\0");
        let server =
            || self.processes().into_iter().find(|(_, arguments)| is_server(arguments) && arguments.contains("\0-l\0"));
        poll("a server", server).0
    }

    fn signal(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.child), signal).unwrap();
    }
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
fn server_script(folder: &Path, before: &str) -> String {
    let test = std::env::current_exe().unwrap();
    let serve = format!("exec env {OPTIONS}=\"$*\" '{}' --exact serves_if_there_are_options", test.display());
    script(folder, &format!("{before}\n{serve}"))
}

/// A server is replaced while it is tested. No reply is wrong, and the last successor ends with the
/// run.
#[test]
fn an_interrupted_soak_with_successors_reports_what_it_has_done() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_script(folder.path(), "");
    // The code of this program takes most of the memory that soak allows for other things than
    // items. So the limit is one that the items do not reach.
    for options in ["--unix --exec 'SERVER -m 64 -I 100k'", "--exec 'SERVER -m 64 -I 100k'"] {
        let options = options.replace("SERVER", &server);
        let mut run = Run::begin(&format!("soak {options} --hand-over 0.2 --clients 4 --keys 300 --seconds 300"));
        let mut successors = BTreeSet::new();
        wait_until("successors", || {
            let found = run.processes().into_iter().filter(|(_, arguments)| arguments.contains("\0--take-over\0"));
            successors.extend(found.map(|(process, _)| process));
            assert!(run.child.try_wait().unwrap().is_none(), "{}", run.read("stderr"));
            // Each successor has a supervisor.
            successors.len() > 8
        });
        run.signal(Signal::INT);
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
    let server = server_script(folder.path(), "case \"$*\" in *--take-over*) set -- \"$@\" -I 20k;; esac");
    let mut run = Run::begin(&format!("soak --exec '{server} -m 64 -I 100k' --hand-over 1 --clients 4 --seconds 100"));
    let (status, stderr) = (run.status(), run.read("stderr"));
    // Or a value that is too large now is refused.
    let is_noticed =
        stderr.contains("are missing that were not evicted") || stderr.contains("refused for a wrong reason");
    assert!(status.code() == Some(1) && is_noticed, "{stderr}");
}

/// Kills the processes that a failed test leaves behind.
impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for (process, _) in self.processes() {
            let _ = kill_process(Pid::from_raw(process).unwrap(), Signal::KILL);
        }
    }
}

#[test]
fn an_interrupted_measurement_is_reported() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let echo =
            "--exec 'relativist-bench echo --value-size 100' --vs 'relativist-bench echo' --no-preload --unchecked";
        let mut run = Run::begin(&format!("load {echo} --rounds 200 --seconds 2 --json samples.json"));
        run.wait_for_server();
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

#[test]
fn interrupted_figures_are_drawn() {
    let mut run =
        Run::begin("figures --out out --entries 64 --shift1 3 --shift2 5 --readers 1 --seconds 0.2 --runs 20");
    wait_until("two samples", || run.read("out/samples.jsonl").lines().count() > 1);
    run.signal(Signal::INT);
    assert_eq!(run.status().code(), Some(130), "{}", run.read("stderr"));
    assert!(run.read("stderr").contains("interrupted: the same command measures the rest"));
    assert!(run.read("out/report.html").contains("<svg"));
}

/// Writes a script to `folder` that starts the echo server.
fn script(folder: &Path, text: &str) -> String {
    let path = folder.join("server");
    // Like a server, the script handles `-V`.
    let text = format!("#!/bin/sh\n[ \"$1\" != -V ] || exec ECHO\n{text}\n")
        .replace("ECHO", &format!("'{RELATIVIST}' echo \"$@\""));
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// The workbench starts the server directly, through a script, in a new session, or as a daemon,
/// whose parent has ended.
#[test]
fn no_server_outlives_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let scripts = ["exec ECHO", "ECHO\ntrue", "setsid ECHO &\nwait", "(setsid ECHO &)\nexec sleep 1000"];
    let ends: [&[Signal]; 4] =
        [&[Signal::INT, Signal::INT], &[Signal::TERM, Signal::INT], &[Signal::HUP], &[Signal::KILL]];
    for text in scripts {
        let server = script(folder.path(), text);
        for signals in ends {
            let mut run =
                Run::begin(&format!("load --exec {server} --no-preload --unchecked --rounds 20 --seconds 60"));
            run.wait_for_server();
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
    let server = script(folder.path(), "(setsid ECHO &)\nexec sleep 1000");
    let mut run = Run::begin(&format!("load --exec {server} --no-preload --unchecked --rounds 1 --seconds 2"));
    assert!(run.status().success(), "{}", run.read("stderr"));
    // The run ends only after all servers.
    assert_eq!(run.processes(), []);
}

/// A server ends when its supervisor is killed.
#[test]
fn no_server_outlives_its_supervisor() {
    let mut run = Run::begin("load --exec 'relativist-bench echo' --no-preload --unchecked --rounds 20 --seconds 3");
    let server = run.wait_for_server();
    let is_supervisor = |(_, arguments): &(i32, String)| arguments.contains("\0supervise\0");
    let (supervisor, _) = run.processes().into_iter().find(is_supervisor).unwrap();
    kill_process(Pid::from_raw(supervisor).unwrap(), Signal::KILL).unwrap();
    wait_until("the end of the server", || !run.processes().iter().any(|&(process, _)| process == server));
    assert_eq!(run.status().code(), Some(1), "{}", run.read("stderr"));
}
