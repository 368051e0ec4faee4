//! Files generated from the definition of the options: the man page, and shell completions. They
//! are committed in `doc/`, for packages to install.

use super::{AFTER_HELP, Generated, Options};
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::{self, Write};

/// Sections of the man page that clap cannot generate.
const MAN_TAIL: &str = "\
.SH EXIT STATUS
0 after an orderly end, 1 for an invalid command line, 64 for options that contradict each other, 67 for an unknown user, 70 when a
thread failed, 71 when the operating system refused something.
.SH FILES
The unit for systemd uses these files:
.TP
.I /etc/relativistd/relativistd.toml
options, for \\-\\-config
.TP
.I /etc/default/relativistd
further command line arguments, in the variable RELATIVISTD_OPTIONS, and other variables of the environment
.TP
.I /var/lib/relativistd/items
the snapshot, for \\-\\-snapshot
.TP
.I /run/relativistd
a folder for Unix sockets
.SH SEE ALSO
.BR memcached (1),
whose options, protocols and statistics these are
";

impl Generated {
    /// Writes the file to `out`.
    ///
    /// # Errors
    /// When writing to `out` fails.
    pub fn write(self, out: &mut dyn Write) -> io::Result<()> {
        let shell = match self {
            Generated::Man => return write_man_page(out),
            Generated::Bash => Shell::Bash,
            Generated::Zsh => Shell::Zsh,
            Generated::Fish => Shell::Fish,
        };
        let mut command = Options::command();
        let name = command.get_name().to_owned();
        // Into a buffer, because the generator panics if it cannot write.
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, name, &mut script);
        out.write_all(&script)
    }
}

fn write_man_page(out: &mut dyn Write) -> io::Result<()> {
    let page = Man::new(Options::command()).source(concat!("relativistd ", env!("CARGO_PKG_VERSION")));
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_options_section(out)?;
    // clap would join the lines of this section.
    write!(out, ".SH EXTENDED OPTIONS, ENVIRONMENT, SIGNALS\n.nf\n{}\n.fi\n", AFTER_HELP.replace('-', "\\-"))?;
    out.write_all(MAN_TAIL.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generated(kind: Generated) -> String {
        let mut text = Vec::new();
        kind.write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// Completions have hidden options, too.
    #[test]
    #[cfg(not(feature = "global-lock"))]
    fn the_committed_files_are_up_to_date() {
        for (kind, name, committed) in [
            (Generated::Man, "man", include_str!("../../doc/relativistd.1")),
            (Generated::Bash, "bash", include_str!("../../doc/relativistd.bash")),
            (Generated::Zsh, "zsh", include_str!("../../doc/_relativistd")),
            (Generated::Fish, "fish", include_str!("../../doc/relativistd.fish")),
        ] {
            assert!(generated(kind) == committed, "write it again: relativistd --generate {name}");
        }
    }

    #[test]
    fn the_man_page_has_every_option_that_the_help_has() {
        let page = generated(Generated::Man);
        for arg in Options::command().get_arguments().filter(|arg| !arg.is_hide_set()) {
            let name = format!("\\-\\-{}", arg.get_long().expect("every option has a long name").replace('-', "\\-"));
            assert!(page.contains(&name), "{name} is missing");
        }
    }
}
