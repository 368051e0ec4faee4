//! The watchdog aborts programs that hang.
#![cfg(target_os = "linux")]

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::sync::mpsc::channel;
use std::thread::{self, park};
use std::time::Duration;

use relativist_testing::own_program;
use relativist_testing::watchdog::watch;

const VARIABLE: &str = "RELATIVIST_HANG";
const SIGABRT: i32 = 6;

fn run(test: &str, bound: &str) -> (Output, String) {
    let mut command = own_program();
    command.args(["--exact", test, "--test-threads", "2"]).env(VARIABLE, test).env("RELATIVIST_TEST_SECONDS", bound);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, stderr)
}

fn is_asked_to_hang(test: &str) -> bool {
    env::var(VARIABLE).is_ok_and(|asked| asked == test)
}

#[inline(never)]
fn waits_for_ever() {
    loop {
        park();
    }
}

#[test]
fn hangs() {
    if is_asked_to_hang("hangs") {
        waits_for_ever();
    }
}

#[test]
fn hangs_in_two_threads() {
    if is_asked_to_hang("hangs_in_two_threads") {
        let (sender, receiver) = channel();
        let body = move || {
            sender.send(()).unwrap();
            waits_for_ever();
        };
        thread::Builder::new().name("another thread".into()).spawn(body).unwrap();
        receiver.recv().unwrap();
        watch(Duration::from_millis(100));
        waits_for_ever();
    }
}

#[test]
fn programs_that_exceed_the_bound_are_aborted() {
    let (output, stderr) = run("hangs", "1");
    assert_eq!(output.status.signal(), Some(SIGABRT), "{stderr}");
    assert!(stderr.contains("did not end within 1s"), "{stderr}");
}

#[test]
fn all_stacks_are_printed() {
    let (output, stderr) = run("hangs_in_two_threads", "600");
    assert_eq!(output.status.signal(), Some(SIGABRT), "{stderr}");
    let stacks: Vec<&str> = stderr.split("watchdog: thread ").skip(1).collect();
    for name in ["hangs_in_two_threads:", "another thread:"] {
        let stack = stacks.iter().find(|stack| stack.lines().next().unwrap().ends_with(name));
        // This test is in both stacks, wherever the threads are when the timer expires.
        assert!(stack.is_some_and(|stack| stack.contains("watchdog::hangs_in_two_threads")), "{name} in {stderr}");
    }
    assert!(stacks.iter().any(|stack| stack.lines().next().unwrap().ends_with(" main:")), "{stderr}");
}
