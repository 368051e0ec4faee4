//! Runs a test in its own process.

use std::any::type_name;
use std::env;
use std::process::Command;

#[cfg(target_os = "linux")]
use crate::watchdog;

/// The environment variable that is set in the new process.
const VARIABLE: &str = "RELATIVIST_TEST_ALONE";

/// The environment variable that names the emulator, and its arguments, for programs of another
/// architecture.
const RUNNER: &str = "RELATIVIST_TEST_RUNNER";

/// Returns a command that starts this program again.
pub fn own_program() -> Command {
    let program = env::current_exe().expect("a test knows its program");
    let runner = env::var(RUNNER).unwrap_or_default();
    let mut words = runner.split_whitespace();
    match words.next() {
        None => Command::new(program),
        Some(emulator) => {
            let mut command = Command::new(emulator);
            command.args(words).arg(program);
            command
        }
    }
}

/// Runs `body` in a process of its own. Tests of process-wide state need this, because other tests
/// would change that state.
///
/// `body` must be a closure that is written in the test function itself: the name of its type is
/// the name of the test that the new process runs.
///
/// # Panics
///
/// If the test fails in its process, or if no test has this name.
pub fn alone<F: FnOnce()>(body: F) {
    let path = type_name::<F>();
    let test = path.split_once("::").map_or(path, |(_crate, test)| test).replace("::{{closure}}", "");
    if env::var_os(VARIABLE).is_some_and(|running| running == *test) {
        return body();
    }
    let mut command = own_program();
    command.args(["--exact", &test, "--include-ignored", "--nocapture"]).env(VARIABLE, &test);
    // The new process gets half the time of this one. With the same limit, the watchdog could end
    // this process first, and leave the new one running.
    #[cfg(target_os = "linux")]
    command.env(watchdog::VARIABLE, (watchdog::bound().as_secs() / 2).to_string());
    let output = command.output().expect("a test can start its program");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test} alone: {}\n{stdout}{stderr}", output.status);
    assert!(stdout.contains("running 1 test"), "{test} is no test of this program\n{stdout}{stderr}");
}
