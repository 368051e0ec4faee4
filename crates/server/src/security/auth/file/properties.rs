//! Properties of the parser that hold for all files. The tests check random files, and the fuzz
//! target `users` looks for others.

use super::{MAX_NAME, MAX_PREFIX, MAX_TENANTS, Memory, OPENING, TenantLine, UserFile, UserLine};

/// Checks the properties with this file, and returns what it means, if it is right.
pub(super) fn check(text: &[u8], most: usize) -> Option<UserFile<'_>> {
    let parsed = UserFile::parse(text, most);
    if is_plain(text) {
        let users = parsed.as_ref().ok().map(|file| file.users.iter().map(|user| (user.name, user.password)).collect());
        assert_eq!(users, plain(text, most), "{}", text.escape_ascii());
        let problem =
            parsed.as_ref().err().map(|problem| problem.to_string().replace(|c: char| c.is_ascii_digit(), ""));
        let problems = ["there is no user", "line  has no colon", "line : there are more than  users"];
        assert!(
            problem.iter().all(|problem| problems.contains(&problem.as_str())),
            "it may have a password: {problem:?}"
        );
    }
    let file = parsed.ok()?;
    assert!(!file.users.is_empty() && file.tenants.len() <= MAX_TENANTS);
    assert!(file.users.iter().all(|user| user.tenant.is_none_or(|it| (it as usize) < file.tenants.len())));
    for tenant in &file.tenants {
        // Metrics show names without escaping them.
        let is_shown = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        assert!((1..=MAX_NAME).contains(&tenant.name.len()) && tenant.name.bytes().all(is_shown), "{tenant:?}");
        assert!(tenant.prefix.len() <= MAX_PREFIX && tenant.memory.of(1 << 40) > 0, "{tenant:?}");
    }
    assert_eq!(UserFile::parse(&written(&file), most).expect("it is right"), file);
    Some(file)
}

/// Whether the file cannot have tenants, so that it means what it means to memcached.
pub(super) fn is_plain(text: &[u8]) -> bool {
    !text.windows(OPENING.len()).any(|part| part == OPENING)
}

/// memcached's files, by a parser that knows nothing of tenants.
fn plain(text: &[u8], most: usize) -> Option<Vec<(&[u8], &[u8])>> {
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let users: Option<Vec<_>> = lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((&line[..colon], &line[colon + 1..]))
        })
        .collect();
    users.filter(|users| (1..=most).contains(&users.len()))
}

/// A file that means the same.
fn written(file: &UserFile<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    let write_users = |tenant: Option<u32>, text: &mut Vec<u8>| {
        for UserLine { name, password, .. } in file.users.iter().filter(|user| user.tenant == tenant) {
            // The end of a line takes one `\r` only, so passwords may end with others.
            text.extend([name, &b":"[..], password, b"\r\n"].concat());
        }
    };
    write_users(None, &mut text);
    for (number, TenantLine { name, memory, prefix }) in (0..).zip(&file.tenants) {
        let memory = match memory {
            Memory::Bytes(bytes) => format!("{}k", bytes / 1024),
            Memory::Percent(percent) => format!("{percent}%"),
        };
        text.extend([OPENING, name.as_bytes(), b" memory=", memory.as_bytes()].concat());
        if !prefix.is_empty() {
            text.extend([b" prefix=", &prefix[..]].concat());
        }
        text.extend(b"]\r\n");
        write_users(Some(number), &mut text);
    }
    text
}
