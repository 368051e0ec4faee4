//! A workload that `strace` recorded, instead of a generated one.
//!
//! `strace -f -y -e trace=%file,read,pread64,write,pwrite64,mmap,lseek -o FILE COMMAND` writes a
//! line per system call. With `-y` it prints the path of each file descriptor, so this module does
//! not track descriptors through `dup` and `fork`. It tracks their offsets. Relative paths are
//! taken as relative to the root.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, ensure};

use super::workload::{Operation, Request, Workload};

/// Parses the output of `strace`. Unknown lines are skipped.
pub fn parse(text: &str) -> Result<Workload> {
    let mut recording = Recording::default();
    let mut unfinished: HashMap<&str, &str> = HashMap::new();
    for line in text.lines() {
        let (process, call) = split_process(line);
        if let Some(begun) = call.strip_suffix("<unfinished ...>") {
            unfinished.insert(process, begun.trim_end());
        } else if let Some((_, rest)) = call.strip_prefix("<... ").and_then(|call| call.split_once(" resumed>")) {
            if let Some(begun) = unfinished.remove(process) {
                recording.call(process, &format!("{begun}{rest}"));
            }
        } else {
            recording.call(process, call);
        }
    }
    let mut workload = recording.workload;
    ensure!(
        !workload.operations.is_empty(),
        "no system call in the recording names a file (was it made by strace -f -y?)"
    );
    workload.work = workload.operations.len();
    Ok(workload)
}

/// Splits off the process id. `-f` writes it before the call: `123 call`, or `[pid 123] call` on a
/// terminal.
fn split_process(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    if let Some((process, call)) = line.strip_prefix("[pid ").and_then(|line| line.split_once("] ")) {
        return (process.trim(), call);
    }
    match line.split_once(char::is_whitespace) {
        Some((process, call)) if process.bytes().all(|byte| byte.is_ascii_digit()) => (process, call.trim_start()),
        _ => ("", line),
    }
}

#[derive(Default)]
struct Recording {
    workload: Workload,
    /// Files known to exist at this time.
    existing: HashSet<u32>,
    /// File offsets by process and by descriptor, which includes its path.
    offsets: HashMap<(String, String), u64>,
}

impl Recording {
    fn call(&mut self, process: &str, call: &str) {
        let Some((name, rest)) = call.split_once('(') else { return };
        let Some((arguments, result)) = rest.rsplit_once(") = ").or_else(|| rest.rsplit_once(')')) else { return };
        // The result has one of the forms `5`, `5</path>`, and `-1 ENOENT (No such file or
        // directory)`.
        let result = result.trim_start_matches([' ', '=']);
        let number = leading_number(result);
        let succeeded = number.is_some_and(|number| number >= 0);
        let arguments = split_arguments(arguments);
        let path = |index: usize| arguments.get(index).and_then(|argument| quoted(argument));
        match name {
            "open" | "openat" | "creat" => {
                let at = usize::from(name == "openat");
                let Some(path) = path(at) else { return };
                let flags =
                    if name == "creat" { "O_CREAT|O_TRUNC" } else { arguments.get(at + 1).copied().unwrap_or("") };
                self.open(&path, flags, succeeded);
                self.offsets.remove(&(process.to_owned(), descriptor(result).to_owned()));
            }
            "mkdir" => _ = path(0).map(|path| self.open(&path, "O_CREAT", succeeded)),
            "mkdirat" => _ = path(1).map(|path| self.open(&path, "O_CREAT", succeeded)),
            "execve" | "stat" | "lstat" | "access" | "readlink" | "chdir" | "statfs" | "chmod" | "utime" => {
                _ = path(0).map(|path| self.open(&path, "", succeeded));
            }
            "newfstatat" | "fstatat64" | "statx" | "faccessat" | "faccessat2" | "readlinkat" | "utimensat" => {
                // An empty path refers to the descriptor itself.
                _ = path(1).filter(|path| !path.is_empty()).map(|path| self.open(&path, "", succeeded));
            }
            "unlink" | "rmdir" if succeeded => _ = path(0).map(|path| self.remove(&path)),
            "unlinkat" if succeeded => _ = path(1).map(|path| self.remove(&path)),
            "rename" if succeeded => _ = path(0).zip(path(1)).map(|(from, to)| self.rename(&from, &to)),
            "renameat" | "renameat2" if succeeded => _ = path(1).zip(path(3)).map(|(from, to)| self.rename(&from, &to)),
            "read" | "write" | "pread64" | "pwrite64" | "lseek" | "mmap" => {
                self.transfer(process, name, &arguments, number.unwrap_or(-1));
            }
            _ => {}
        }
    }

    fn number(&mut self, path: &str) -> u32 {
        self.workload.paths.number(path.as_bytes())
    }

    fn push(&mut self, path: u32, request: Request) {
        self.workload.operations.push(Operation { path, request });
    }

    fn open(&mut self, path: &str, flags: &str, succeeded: bool) {
        let path = self.number(path);
        if !succeeded {
            return self.push(path, Request::Look);
        }
        if self.existing.insert(path) {
            if flags.contains("O_CREAT") {
                return self.push(path, Request::Create);
            }
            self.workload.files.push((path, 0));
        }
        self.push(path, if flags.contains("O_TRUNC") { Request::Truncate } else { Request::Look });
    }

    fn remove(&mut self, path: &str) {
        let path = self.number(path);
        if !self.existing.remove(&path) {
            self.workload.files.push((path, 0));
        }
        self.push(path, Request::Remove);
    }

    fn rename(&mut self, from: &str, to: &str) {
        let (from, to) = (self.number(from), self.number(to));
        if !self.existing.remove(&from) {
            self.workload.files.push((from, 0));
        }
        self.existing.insert(to);
        self.push(from, Request::Rename(to));
    }

    fn transfer(&mut self, process: &str, name: &str, arguments: &[&str], result: i64) {
        let at = if name == "mmap" { 4 } else { 0 };
        let Some(&argument) = arguments.get(at) else { return };
        let Some(path) = descriptor_path(argument) else { return };
        let argument_number = |index: usize| arguments.get(index).and_then(|text| leading_number(text));
        let key = (process.to_owned(), descriptor(argument).to_owned());
        let here = self.offsets.get(&key).copied().unwrap_or(0);
        let done = u64::try_from(result).unwrap_or(0);
        let (offset, bytes) = match name {
            "lseek" => {
                self.offsets.insert(key, done);
                return;
            }
            "mmap" => {
                let failed = result < 0;
                let bytes = argument_number(1).filter(|_| !failed).unwrap_or(0);
                (argument_number(5).unwrap_or(0) as u64, bytes as u64)
            }
            "pread64" | "pwrite64" => (argument_number(3).unwrap_or(0) as u64, done),
            _ => {
                self.offsets.insert(key, here + done);
                (here, done)
            }
        };
        if bytes == 0 {
            return;
        }
        let number = self.number(path);
        if self.existing.insert(number) {
            self.workload.files.push((number, 0));
        }
        let writes = name.contains("write");
        self.push(number, if writes { Request::Write(offset, bytes) } else { Request::Read(offset, bytes) });
    }
}

/// Splits at commas that are neither in a string nor in brackets.
fn split_arguments(text: &str) -> Vec<&str> {
    let (mut arguments, mut start, mut depth, mut string, mut escaped) = (Vec::new(), 0, 0, false, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if string => escaped = true,
            b'"' => string = !string,
            b'[' | b'{' if !string => depth += 1,
            b']' | b'}' if !string => depth -= 1,
            b',' if !string && depth == 0 => {
                arguments.push(text[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    arguments.push(text[start..].trim());
    arguments
}

/// Returns the content of a quoted string. Escapes are kept, because they are the same for the same
/// path.
fn quoted(argument: &str) -> Option<String> {
    Some(argument.strip_prefix('"')?.rsplit_once('"')?.0.to_owned())
}

/// Returns the descriptor and its path in `3</path>`, without the `>`.
fn descriptor(text: &str) -> &str {
    text.split_once('>').map_or(text, |(descriptor, _)| descriptor)
}

/// Returns the path of a descriptor, if it is that of a file, not of a pipe, a socket or a
/// terminal.
fn descriptor_path(argument: &str) -> Option<&str> {
    let (_, path) = descriptor(argument).split_once('<')?;
    let path = path.split_once('<').map_or(path, |(path, _)| path);
    Some(path).filter(|path| path.starts_with('/') && !path.starts_with("/dev/") && !path.starts_with("/proc/"))
}

fn leading_number(text: &str) -> Option<i64> {
    let text = text.trim_start();
    if let Some(digits) = text.strip_prefix("0x") {
        let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        // Larger numbers are addresses, not offsets.
        return Some(i64::from_str_radix(&digits[..end], 16).unwrap_or(i64::MAX));
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output in the format of strace 6.
    const TEXT: &str = r#"100 execve("/bin/cc", ["cc", "a,b.c"], 0x7ffd /* 20 vars */) = 0
100 openat(AT_FDCWD</home/u>, "/lib/libc.so", O_RDONLY|O_CLOEXEC) = 3</lib/libc.so>
100 read(3</lib/libc.so>, "\177ELF\"(, "..., 832) = 832
100 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, 3</lib/libc.so>, 0x1000) = 0x7f1234567000
100 read(0</dev/pts/0>, "x", 1) = 1
101 openat(AT_FDCWD</home/u>, "/no/such.h", O_RDONLY) = -1 ENOENT (No such file or directory)
100 openat(AT_FDCWD</home/u>, "/tmp/out", O_WRONLY|O_CREAT|O_TRUNC, 0600 <unfinished ...>
101 newfstatat(3</lib/libc.so>, "", {st_mode=S_IFREG|0644, st_size=9, ...}, AT_EMPTY_PATH) = 0
100 <... openat resumed>) = 4</tmp/out>
100 write(4</tmp/out>, "abc", 3) = 3
100 write(4</tmp/out>, "defgh", 5) = 5
100 lseek(4</tmp/out>, 0, SEEK_SET) = 0
100 write(4</tmp/out>, "z", 1) = 1
100 rename("/tmp/out", "/tmp/final") = 0
100 unlink("/tmp/final") = 0
100 +++ exited with 0 +++
"#;

    #[test]
    fn system_calls_become_operations() {
        let mut workload = parse(TEXT).unwrap();
        let mut number = |path: &str| workload.paths.number(path.as_bytes());
        let [cc, libc, header, out, last] =
            ["/bin/cc", "/lib/libc.so", "/no/such.h", "/tmp/out", "/tmp/final"].map(&mut number);
        let expected = [
            (cc, Request::Look),
            (libc, Request::Look),
            (libc, Request::Read(0, 832)),
            (libc, Request::Read(4096, 8192)),
            (header, Request::Look),
            (out, Request::Create),
            (out, Request::Write(0, 3)),
            (out, Request::Write(3, 5)),
            (out, Request::Write(0, 1)),
            (out, Request::Rename(last)),
            (last, Request::Remove),
        ];
        assert_eq!(workload.operations, expected.map(|(path, request)| Operation { path, request }));
        assert_eq!(workload.files, [(cc, 0), (libc, 0)]);
    }

    #[test]
    fn processes_are_parsed_in_both_forms() {
        assert_eq!(split_process("[pid  12] close(3)"), ("12", "close(3)"));
        assert_eq!(split_process("12    close(3)"), ("12", "close(3)"));
        assert_eq!(split_process("close(3)"), ("", "close(3)"));
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        for text in ["", "hello\n", "open(", "1 read(3<pipe:[7]>, \"x\", 1) = 1\n"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
