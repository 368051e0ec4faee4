//! Counts instructions by running this program again under valgrind's callgrind.

use std::env;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Runs this program again, with these arguments, under callgrind, which counts inside of the
/// function `counted`. Returns the content of callgrind's output file.
pub fn callgrind(counted: &str, options: &[&str], arguments: &[String]) -> Result<String> {
    let file = env::temp_dir().join(format!("relativist-callgrind-{}.out", std::process::id()));
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--collect-atstart=no", "--quiet"]).args(options);
    command.arg(format!("--toggle-collect={counted}")).arg(format!("--callgrind-out-file={}", file.display()));
    command.arg(env::current_exe()?).args(arguments);
    #[cfg(target_os = "linux")]
    relativist_check::supervisor::tie(&mut command);
    let output = command.output().context("cannot run valgrind (apt install valgrind)")?;
    ensure!(output.status.success(), "valgrind: {}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    Ok(text)
}

/// Returns the total of `event` in callgrind's output file.
pub fn total(text: &str, event: &str) -> Result<f64> {
    let words = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().split_whitespace();
    let (mut events, sums) = (words("events:"), words("totals:"));
    match events.position(|name| name == event).and_then(|place| sums.clone().nth(place)?.parse().ok()) {
        Some(sum) => Ok(sum),
        None => bail!("callgrind has not counted {event}"),
    }
}
