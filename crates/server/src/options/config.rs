//! The file of `--config`: the long names of options are its keys, in TOML.
//!
//! ```toml
//! memory-limit = 1024
//! listen = ["10.0.0.1", "[::1]:11311"]
//! disable-cas = true
//! verbose = 2                            # as -vv
//! extended = ["idle_timeout=300"]        # as -o
//! ```
//!
//! The options are defined only once, for clap: the file is converted to arguments of a command
//! line, so the same checks apply. The real command line takes precedence over the file. `extended`
//! is the exception: both count, in this order.

use super::Options;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory};
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Options that only the command line may have: they name the file, or the server to take over
/// from, or make the program do something other than serve.
const NOT_IN_A_FILE: [&str; 5] = ["config", "take_over", "only_check", "license", "generate"];

/// Returns a command line with the options of both `file`, relative to `folder`, and `args`.
/// `given` has the options of `args`.
pub(super) fn join(
    folder: &Path,
    file: &Path,
    args: &[OsString],
    given: &ArgMatches,
) -> Result<Vec<OsString>, clap::Error> {
    let mut command = Options::command();
    let text = fs::read_to_string(folder.join(file))
        .map_err(|error| command.error(ErrorKind::Io, format!("cannot read {}: {error}", file.display())))?;
    let is_given = |id: &str| id != "extended_words" && given.value_source(id) == Some(ValueSource::CommandLine);
    let words = words(&text, &command, is_given).map_err(|Problem { at, what }| {
        let line = text[..at].matches('\n').count() + 1;
        command.error(ErrorKind::InvalidValue, format!("{}:{line}: {what}", file.display()))
    })?;
    let (program, rest) = args.split_at(args.len().min(1));
    Ok(program.iter().cloned().chain(words.into_iter().map(Into::into)).chain(rest.iter().cloned()).collect())
}

/// An error in the file, and its position.
struct Problem {
    at: usize,
    what: String,
}

impl Problem {
    fn new(span: Range<usize>, what: impl Into<String>) -> Problem {
        Problem { at: span.start, what: what.into() }
    }
}

/// The arguments for the options of a file, except those that the command line has, too. All
/// options of the file are checked.
fn words(text: &str, command: &Command, is_given: impl Fn(&str) -> bool) -> Result<Vec<String>, Problem> {
    let table = DeTable::parse(text)
        .map_err(|error| Problem::new(error.span().unwrap_or_default(), error.message()))?
        .into_inner();
    let mut entries: Vec<_> = table.into_iter().collect();
    // In the order of the file, so that the first error is reported first.
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut all = Vec::new();
    for (key, value) in &entries {
        let name = key.get_ref().as_ref();
        let arg = command
            .get_arguments()
            .find(|arg| arg.get_long() == Some(name) && !NOT_IN_A_FILE.contains(&arg.get_id().as_str()))
            .ok_or_else(|| Problem::new(key.span(), format!("there is no option {name:?}")))?;
        let words = words_of(arg, name, value)?;
        check(command, &words).map_err(|what| Problem::new(value.span(), what))?;
        if !is_given(arg.get_id().as_str()) {
            all.extend(words);
        }
    }
    Ok(all)
}

/// The arguments for one entry.
fn words_of(arg: &Arg, name: &str, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, Problem> {
    let flag = format!("--{name}");
    let wrong = |what: &str| Err(Problem::new(value.span(), format!("{name} must be {what}")));
    match (arg.get_action(), value.get_ref()) {
        (ArgAction::SetTrue, DeValue::Boolean(is_on)) => Ok(is_on.then_some(flag).into_iter().collect()),
        (ArgAction::SetTrue, _) => wrong("true or false"),
        (ArgAction::Count, DeValue::Integer(count)) => match u8::from_str_radix(count.as_str(), count.radix()) {
            Ok(count) => Ok(vec![flag; count.into()]),
            Err(_) => wrong("a number from 0 to 255"),
        },
        (ArgAction::Count, _) => wrong("a number from 0 to 255"),
        (ArgAction::Append, DeValue::Array(values)) => values.iter().map(|value| word(&flag, name, value)).collect(),
        _ => Ok(vec![word(&flag, name, value)?]),
    }
}

fn word(flag: &str, name: &str, value: &Spanned<DeValue<'_>>) -> Result<String, Problem> {
    match value.get_ref() {
        DeValue::String(text) => Ok(format!("{flag}={text}")),
        DeValue::Integer(number) => Ok(format!("{flag}={number}")),
        DeValue::Float(number) => Ok(format!("{flag}={number}")),
        _ => Err(Problem::new(value.span(), format!("{name} must be a string or a number"))),
    }
}

/// The error that clap reports for the arguments of one entry.
fn check(command: &Command, words: &[String]) -> Result<(), String> {
    let line = std::iter::once(command.get_name()).chain(words.iter().map(String::as_str));
    command.clone().try_get_matches_from(line).map(drop).map_err(|error| problem(&error))
}

/// The first line of a message of clap, which has the problem.
pub(crate) fn problem(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// The options of a file with this text and of this command line, or the error message.
    fn parse(text: &str, line: &str) -> Result<Options, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let path = file.path().display().to_string();
        Options::parse_from_args(["r", "--config", &path].into_iter().chain(line.split_whitespace()))
            .map(|options| Options { config: None, ..options })
            .map_err(|error| error.to_string().replace(&path, "FILE"))
    }

    #[test]
    fn a_file_has_the_same_options_as_a_command_line() {
        let text = "port = -1\nlisten = ['a', 'b:1']\nmemory-limit = 3\ndisable-cas = true\nlock-memory = false\nverbose = 2\n\
                    slab-growth-factor = 1.5\nmax-item-size = '2k'\nextended = ['idle_timeout=5', 'track_sizes']\n\
                    delimiter = '/'\n";
        let line = "r -p -1 -l a -l b:1 -m 3 -C -vv -f 1.5 -I 2k -o idle_timeout=5,track_sizes -D /";
        assert_eq!(parse(text, ""), Ok(Options::parse_from_args(line.split_whitespace()).unwrap()));
    }

    #[test]
    fn the_command_line_takes_precedence() {
        let text = "port = 1\nlisten = ['a', 'b']\nverbose = 2\nextended = ['idle_timeout=5', 'track_sizes']\n";
        let line = "-p 2 -l c -v -o idle_timeout=6";
        let wanted = Options::parse_from_args("r -p 2 -l c -v -o idle_timeout=5,track_sizes,idle_timeout=6".split(' '));
        assert_eq!(parse(text, line), Ok(wanted.unwrap()));
    }

    #[test]
    fn errors_are_reported_with_their_line() {
        for (text, message) in [
            ("port = 1\n\nprot = 2\n", "FILE:3: there is no option \"prot\""),
            ("threads = 2\nport = 'http'\n", "FILE:2: invalid value 'http' for '--port <PORT>'"),
            ("threads = 0\n", "FILE:1: invalid value '0' for '--threads <N>'"),
            ("disable-cas = 1\n", "FILE:1: disable-cas must be true or false"),
            ("verbose = true\n", "FILE:1: verbose must be a number"),
            ("port = 1\nport = 2\n", "FILE:2: duplicate key"),
            ("port = [1]\n", "FILE:1: port must be a string or a number"),
            ("\n[server]\nport = 1\n", "FILE:2: there is no option \"server\""),
            ("port = \n", "FILE:1: "),
            ("config = 'other'\n", "FILE:1: there is no option \"config\""),
            ("check = true\n", "FILE:1: there is no option \"check\""),
        ] {
            let told = parse(text, "").expect_err(text);
            assert!(told.contains(message), "{text:?}: {told}");
        }
        assert!(parse("threads = 0", "-t 1").is_err(), "also where the command line says otherwise");
        let missing = Options::parse_from_args(["r", "--config", "/nonexistent/file"]).unwrap_err().to_string();
        assert!(missing.contains("cannot read /nonexistent/file"), "{missing}");
    }
}
