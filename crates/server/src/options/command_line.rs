//! A command line with the file of its `--config`, which can be read again.

use super::{Extended, Options, config};
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Options that the running server can change, by their long names.
const CHANGEABLE: [&str; 11] = [
    "memory-limit",
    "conn-limit",
    "verbose",
    "drain",
    "cluster-node",
    "disable-flush-all",
    "disable-dumping",
    "disable-watch",
    "disable-verbosity",
    "enable-shutdown",
    "auth-file",
];

/// Options of `-o` that the running server can change. Those of TLS hold for new connections.
const CHANGEABLE_EXTENDED: [&str; 12] = [
    "maxconns_fast",
    "idle_timeout",
    "lru_crawler",
    "read_buf_mem_limit",
    "evict_for",
    "ssl_chain_cert",
    "ssl_key",
    "ssl_keyformat",
    "ssl_ca_cert",
    "ssl_ciphers",
    "ssl_min_version",
    "ssl_wbuf_size",
];

/// A parsed command line.
#[derive(Clone, Debug)]
pub struct CommandLine {
    args: Vec<OsString>,
    /// The folder to which its paths are relative.
    folder: PathBuf,
    /// The options of the command line and of its file.
    pub options: Options,
    texts: Texts,
}

/// The value of each option, as text. An option of `-o` has `-o` in front of its name.
type Texts = BTreeMap<String, String>;

/// An option that has one value now and another one in the file.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Difference {
    /// The option, as on a command line.
    pub(crate) option: String,
    pub(crate) now: String,
    pub(crate) file: String,
    /// Whether the running server can change it.
    pub(crate) is_changeable: bool,
}

impl CommandLine {
    /// Parses a command line, program name first, and the file that its `--config` names. Relative
    /// paths start at `folder`, which may be empty for the working directory.
    ///
    /// # Errors
    /// A message of clap if an option or the file is invalid. Requests for help or version are
    /// errors with kinds of their own.
    pub fn parse<T: Into<OsString>>(
        args: impl IntoIterator<Item = T>,
        folder: PathBuf,
    ) -> Result<CommandLine, clap::Error> {
        let args: Vec<OsString> = args.into_iter().map(|arg| without_blanks(arg.into())).collect();
        let mut matches = Options::command().try_get_matches_from(&args)?;
        if let Some(file) = matches.get_one::<PathBuf>("config") {
            matches = Options::command().try_get_matches_from(config::join(&folder, file, &args, &matches)?)?;
        }
        let mut options = Options::from_arg_matches(&matches)?;
        for word in &options.extended_words {
            let invalid = |problem| Options::command().error(ErrorKind::InvalidValue, problem);
            options.extended.apply(word).map_err(invalid)?;
        }
        options.fix_paths(&folder);
        Ok(CommandLine { texts: texts(&matches, &options.extended_words), args, folder, options })
    }

    /// Parses the same command line, and reads its file again.
    ///
    /// # Errors
    /// As [`CommandLine::parse`].
    pub(crate) fn again(&self) -> Result<CommandLine, clap::Error> {
        let mut line = CommandLine::parse(self.args.iter().cloned(), self.folder.clone())?;
        line.options.owns_process = self.options.owns_process;
        Ok(line)
    }

    /// The options in which `other`, with the same command line and a changed file, differs.
    pub(crate) fn differences(&self, other: &CommandLine) -> Vec<Difference> {
        let names = self.texts.keys().chain(other.texts.keys().filter(|name| !self.texts.contains_key(*name)));
        let mut differences: Vec<_> = names
            .filter_map(|name| {
                let (now, file) = (self.texts.get(name), other.texts.get(name));
                let show = |text: Option<&String>| text.map_or("not set".into(), Clone::clone);
                let option = if name.starts_with("-o ") { name.clone() } else { format!("--{name}") };
                let is_changeable = is_changeable(name, &self.options, &other.options);
                (now != file && !is_same_word(name, now, file)).then(|| Difference {
                    option,
                    now: show(now),
                    file: show(file),
                    is_changeable,
                })
            })
            .collect();
        differences.sort_by(|one, next| one.option.cmp(&next.option));
        differences
    }
}

impl Options {
    /// Parses a command line, program name first, and the file that its `--config` names.
    ///
    /// # Errors
    /// A message of clap if an option or the file is invalid. Requests for help or version are
    /// errors with kinds of their own.
    pub fn parse_from_args<T: Into<OsString>>(args: impl IntoIterator<Item = T>) -> Result<Options, clap::Error> {
        CommandLine::parse(args, PathBuf::new()).map(|line| line.options)
    }

    /// These options, with those of `new` that a running server can change.
    pub(crate) fn with_changes(&self, new: &Options) -> Options {
        let ssl = super::Ssl {
            verify_mode: self.extended.ssl.verify_mode,
            session_cache: self.extended.ssl.session_cache,
            kernel_tls: self.extended.ssl.kernel_tls,
            ..new.extended.ssl.clone()
        };
        let extended = Extended {
            maxconns_fast: new.extended.maxconns_fast,
            idle_timeout: new.extended.idle_timeout,
            lru_crawler: new.extended.lru_crawler,
            read_buf_mem_limit: new.extended.read_buf_mem_limit,
            evict_for: new.extended.evict_for,
            ssl,
            ..self.extended.clone()
        };
        Options {
            memory_limit: new.memory_limit.clone(),
            conn_limit: new.conn_limit,
            verbose: new.verbose,
            drain: new.drain,
            cluster_node: new.cluster_node.clone(),
            disable_flush_all: new.disable_flush_all,
            disable_dumping: new.disable_dumping,
            disable_watch: new.disable_watch,
            disable_verbosity: new.disable_verbosity,
            enable_shutdown: new.enable_shutdown,
            // Whether clients must log in is fixed.
            auth_file: self.auth_file.as_ref().map(|old| new.auth_file.as_ref().unwrap_or(old).clone()),
            extended,
            ..self.clone()
        }
    }

    /// Makes paths absolute if a daemon uses them after it has left its working directory.
    fn fix_paths(&mut self, folder: &Path) {
        if !self.daemon {
            return;
        }
        let ssl = &mut self.extended.ssl;
        let later = [
            &mut self.config,
            &mut self.pidfile,
            &mut self.auth_file,
            &mut self.snapshot,
            &mut ssl.chain_cert,
            &mut ssl.key,
            &mut ssl.ca_cert,
        ];
        for path in later.into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }
}

/// Removes the blanks before an option's value. Like memcached, the command line may have some, in
/// the same argument as the option (`'-l 127.0.0.1'`) or in the next one.
fn without_blanks(arg: OsString) -> OsString {
    let bytes = arg.as_bytes();
    let front = match bytes {
        [b'-', b'-', ..] => bytes.iter().position(|byte| *byte == b'=').map_or(bytes.len(), |at| at + 1),
        [b'-', _, ..] => 2,
        _ => 0,
    };
    let (option, value) = bytes.split_at(front);
    match value.trim_ascii_start() {
        // A blank can be a value (`-D`).
        b"" => arg,
        value => OsString::from_vec([option, value].concat()),
    }
}

fn texts(matches: &ArgMatches, extended: &[String]) -> Texts {
    let mut texts = Texts::new();
    for arg in Options::command().get_arguments().filter(|arg| arg.get_id() != "extended_words") {
        let values = matches.get_raw(arg.get_id().as_str()).into_iter().flatten();
        let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
        if let Some(name) = arg.get_long().filter(|_| !values.is_empty()) {
            texts.insert(name.into(), values.join(","));
        }
    }
    // The number of occurrences is no raw value.
    texts.insert("verbose".into(), matches.get_count("verbose").to_string());
    for word in extended {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, value),
            None => word.strip_prefix("no_").map_or((word.as_str(), "on"), |name| (name, "off")),
        };
        texts.insert(format!("-o {name}"), value.into());
    }
    texts
}

fn is_changeable(name: &str, now: &Options, file: &Options) -> bool {
    match name.strip_prefix("-o ") {
        Some(name) => CHANGEABLE_EXTENDED.contains(&name),
        None => {
            CHANGEABLE.contains(&name) && (name != "auth-file" || now.auth_file.is_some() == file.auth_file.is_some())
        }
    }
}

/// Whether two values of an option of `-o` mean the same: one may be the default, and the other one
/// missing.
fn is_same_word(name: &str, one: Option<&String>, other: Option<&String>) -> bool {
    let Some(name) = name.strip_prefix("-o ") else { return false };
    let effect = |value: Option<&String>| {
        let mut extended = Extended::default();
        let word = match value.map(String::as_str) {
            None => return extended,
            Some("on") => name.into(),
            Some("off") => format!("no_{name}"),
            Some(value) => format!("{name}={value}"),
        };
        // The word was checked when it was parsed.
        let _ = extended.apply(&word);
        extended
    };
    effect(one) == effect(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> CommandLine {
        CommandLine::parse(line.split_whitespace(), PathBuf::new()).expect(line)
    }

    /// A value of the option, other than its default.
    fn value_of(name: &str) -> &'static str {
        match name {
            "hot-keys" => "=off",
            "cluster-node" => "=a||1",
            #[cfg(feature = "global-lock")]
            "engine" => "=global-lock",
            "io" => "=epoll",
            "log-format" => "=json",
            "protocol" => "=ascii",
            "generate" => "=man",
            "listen" => "=192.0.2.1",
            "slab-growth-factor" => "=2.5",
            "max-item-size" => "=2k",
            "delimiter" => "=/",
            _ => "=7",
        }
    }

    #[test]
    fn exactly_the_changeable_options_change() {
        let start = parse("r -Y old");
        for arg in Options::command().get_arguments() {
            let name = arg.get_long().unwrap();
            if ["help", "version", "config", "extended"].contains(&name) {
                continue;
            }
            let value = if arg.get_action().takes_values() { value_of(name) } else { "" };
            let other = parse(&format!("r -Y old --{name}{value}"));
            let found: Vec<_> = start.differences(&other).into_iter().map(|it| (it.option, it.is_changeable)).collect();
            let is_changeable = CHANGEABLE.contains(&name);
            assert_eq!(found, [(format!("--{name}"), is_changeable)], "{name}");
            let wanted = if is_changeable { &other.options } else { &start.options };
            assert_eq!(start.options.with_changes(&other.options), *wanted, "{name}");
        }
    }

    #[test]
    fn exactly_the_changeable_extended_options_change() {
        let start = parse("r");
        for word in [
            "no_maxconns_fast",
            "idle_timeout=5",
            "no_lru_crawler",
            "read_buf_mem_limit=9",
            "evict_for=bytes",
            "ssl_chain_cert=c",
            "ssl_key=k",
            "ssl_keyformat=2",
            "ssl_ca_cert=c",
            "ssl_ciphers=c",
            "ssl_min_version=3",
            "ssl_wbuf_size=3",
            "track_sizes",
            "watcher_logbuf_size=9",
            "drop_privileges",
            "no_drop_privileges",
            "ssl_verify_mode=2",
            "ssl_session_cache",
            "ssl_kernel_tls",
            "hashpower=20",
            "slab_chunk_max=8",
        ] {
            let mut other = parse(&format!("r -o {word}"));
            other.options.extended_words.clear();
            let name = word.split('=').next().unwrap();
            let name = name.strip_prefix("no_").unwrap_or(name);
            let is_changeable = CHANGEABLE_EXTENDED.contains(&name);
            let found: Vec<_> = start.differences(&other).into_iter().map(|it| (it.option, it.is_changeable)).collect();
            assert_eq!(found, [(format!("-o {name}"), is_changeable)], "{word}");
            let wanted = if is_changeable { &other.options } else { &start.options };
            assert_eq!(start.options.with_changes(&other.options), *wanted, "{word}");
        }
    }

    #[test]
    fn a_default_that_is_written_out_is_no_difference() {
        let start = parse("r");
        let other = parse("r -t 4 -m 64 -o lru_crawler,maxconns_fast,idle_timeout=0,ssl_verify_mode=0");
        assert_eq!(start.differences(&other), []);
    }

    #[test]
    fn logins_cannot_begin_or_end() {
        for (now, file) in [("r", "r -Y users"), ("r -Y users", "r")] {
            let (now, file) = (parse(now), parse(file));
            let differences = now.differences(&file);
            assert!(differences.len() == 1 && !differences[0].is_changeable, "{differences:?}");
            assert_eq!(now.options.with_changes(&file.options), now.options);
        }
    }
}
