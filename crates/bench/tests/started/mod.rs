//! Servers that the workbench starts. This test program itself serves, because relativistd may not
//! have been built.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use relativistd::{Options, Server};

/// An environment variable with the options of a server.
const OPTIONS: &str = "RELATIVIST_TEST_OPTIONS";

/// A part of the command line of a server.
pub const NAME: &str = "started::serves_if_there_are_options";

/// A server for the other tests, if that variable is set. Otherwise it does nothing.
#[test]
fn serves_if_there_are_options() {
    if let Ok(options) = std::env::var(OPTIONS) {
        let options = Options::parse_from_args(["relativistd"].into_iter().chain(options.split(' '))).unwrap();
        Server::bind(&options).unwrap().run().unwrap();
    }
}

/// Writes a script to `folder` that executes `text`, in which SERVE starts the server. Returns the
/// script's path.
pub fn script(folder: &Path, text: &str) -> String {
    let (path, test) = (folder.join("server"), std::env::current_exe().unwrap());
    let serve = format!("env {OPTIONS}=\"$*\" '{}' --exact {NAME}", test.display());
    let version = "[ \"$1\" != -V ] || { echo relativistd 1.2.3; exit; }";
    fs::write(&path, format!("#!/bin/sh\n{version}\n{}\n", text.replace("SERVE", &serve))).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}
