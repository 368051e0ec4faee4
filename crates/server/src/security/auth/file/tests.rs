//! Files of users: right ones, wrong ones, and random ones.

use super::*;

fn user<'t>(name: &'t str, password: &'t str, tenant: Option<u32>) -> UserLine<'t> {
    UserLine { name: name.as_bytes(), password: password.as_bytes(), tenant }
}

fn problem(text: &[u8]) -> String {
    UserFile::parse(text, 1).unwrap_err().to_string()
}

#[test]
fn names_end_at_the_first_colon() {
    let file = UserFile::parse(b"a:b\n\nother:x:y\r\nlast:", 8).unwrap();
    assert_eq!(file.users, [user("a", "b", None), user("other", "x:y", None), user("last", "", None)]);
    assert!(file.tenants.is_empty());
}

#[test]
fn users_belong_to_the_tenant_before_them() {
    let text =
        "a:b\n[tenant red memory=25%]\nc:d\n[tenant ok-1.x_ prefix=x:y memory=512M]\n[tenant 2 memory=1g]\r\ne:f]";
    let file = UserFile::parse(text.as_bytes(), 1).unwrap();
    assert_eq!(file.users, [user("a", "b", None), user("c", "d", Some(0)), user("e", "f]", Some(2))]);
    let tenant = |name: &str, memory, prefix: &str| TenantLine { name: name.into(), memory, prefix: prefix.into() };
    let tenants = [
        tenant("red", Memory::Percent(25), ""),
        tenant("ok-1.x_", Memory::Bytes(512 << 20), "x:y"),
        tenant("2", Memory::Bytes(1 << 30), ""),
    ];
    assert_eq!(file.tenants, tenants);
    assert_eq!(tenants.map(|tenant| tenant.memory.of(1001)), [250, 512 << 20, 1 << 30]);
    assert_eq!(Memory::Percent(100).of(usize::MAX), usize::MAX);
}

#[test]
fn bad_files_are_refused_with_the_line_and_no_password() {
    assert_eq!(problem(b""), "there is no user");
    assert_eq!(problem(b"[tenant a memory=1g]"), "there is no user");
    assert_eq!(problem(b"\nsecret\n"), "line 2 has no colon");
    assert_eq!(problem(b"a:b\nc:d\n"), "line 2: there are more than 1 users");
    assert_eq!(problem(b"[tenant a memory=1g]\na:b\nc:d\n"), "line 3: there are more than 1 users");
    let twice = "[tenant a memory=1g]\na:b\n[tenant b memory=1g]\na:b";
    assert!(problem(twice.as_bytes()).contains("the same user and password"));
    for (words, wanted) in [
        ("", "line 2: a tenant needs a name"),
        ("a/b memory=1g", "line 2: a tenant needs a name"),
        ("a", "line 2: tenant a needs memory="),
        ("a memory=1g memory=1g", "line 2: tenant a has a word twice: \"memory=1g\""),
        ("a prefix=x prefix=y memory=1g", "line 2: tenant a has a word twice: \"prefix=y\""),
        ("a memory=1g share=5", "line 2: tenant a has the unknown word \"share=5\""),
        ("a memory=1g x", "line 2: tenant a has the unknown word \"x\""),
        ("a prefix= memory=1g", "line 2: tenant a has a wrong \"prefix=\""),
        ("known memory=1g", "line 2: tenant known is there twice"),
    ] {
        let text = format!("[tenant known memory=1g]\n[tenant {words}]\na:b");
        assert!(problem(text.as_bytes()).starts_with(wanted), "{words}: {}", problem(text.as_bytes()));
    }
    for size in ["", "1", "1x", "0m", "-1m", "+1m", "1.5g", "0%", "101%", "%", "m", "99999999999999999999g", "1 m"] {
        let text = format!("[tenant a memory={size}]\na:b");
        assert!(problem(text.as_bytes()).starts_with("line 1: tenant a has "), "{size}");
    }
    let long = format!("[tenant a memory=1g prefix={}]\na:b", "x".repeat(MAX_PREFIX + 1));
    assert!(problem(long.as_bytes()).contains("wrong"));
    let named = |name: &str| format!("[tenant {name} memory=1g]\na:b");
    assert!(UserFile::parse(named(&"x".repeat(MAX_NAME)).as_bytes(), 1).is_ok());
    assert!(problem(named(&"x".repeat(MAX_NAME + 1)).as_bytes()).contains("a name of at most"));
    let many: String = (0..=MAX_TENANTS).map(|n| format!("[tenant t{n} memory=1g]\n")).collect();
    assert_eq!(problem(many.as_bytes()), format!("line {}: there are more than 32 tenants", MAX_TENANTS + 1));
    assert_eq!(problem(b"[tenant a memory=1g \xff]\na:b"), "line 1: the line of a tenant is not UTF-8");
}

#[test]
fn random_files_have_the_properties_of_all_files() {
    const PIECES: [&[u8]; 14] = [
        b"a",
        b":",
        b"\n",
        b"\r\n",
        b" ",
        b"[",
        b"]",
        b"[tenant ",
        b"memory=25%",
        b"memory=1g",
        b"prefix=x",
        b"\xff",
        b"tenant",
        b"[tenant t memory=1g]\n",
    ];
    let mut random = fastrand::Rng::with_seed(20);
    let (mut plain_ones, mut with_tenants) = (0, 0);
    for _ in 0..50_000 {
        let pieces = (0..random.usize(..16)).map(|_| PIECES[random.usize(..PIECES.len())]);
        let text = pieces.collect::<Vec<_>>().concat();
        let file = properties::check(&text, 8);
        with_tenants += usize::from(file.is_some_and(|file| file.users.iter().any(|user| user.tenant.is_some())));
        plain_ones += usize::from(properties::is_plain(&text));
    }
    assert!(plain_ones > 10_000 && with_tenants > 300, "{plain_ones} {with_tenants}");
}
