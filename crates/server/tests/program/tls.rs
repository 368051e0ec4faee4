//! Tests of certificates that cannot be used.

use super::run;
use crate::certificates::Authority;
use rcgen::date_time_ymd;
use std::fs;

#[test]
fn unusable_certificates_are_reported_before_the_start() {
    let (authority, other) = (Authority::new(), Authority::new());
    fs::write(authority.path("torn.crt"), "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n").unwrap();
    let path = |file: &str| authority.path(file).display().to_string();
    let (chain, key, torn) = (path("server.crt"), path("server.key"), path("torn.crt"));
    let foreign = other.path("server.key").display().to_string();
    let files = format!("-Z -o ssl_chain_cert={chain},ssl_key={key}");
    for (flags, message) in [
        ("-Z".into(), "TLS (-Z) needs a certificate"),
        ("-Z -o ssl_chain_cert=/nonexistent/chain,ssl_key=/nonexistent/key".into(), "cannot read /nonexistent/chain"),
        (format!("-Z -o ssl_chain_cert={chain},ssl_key=/nonexistent/key"), "cannot read /nonexistent/key"),
        (format!("-Z -o ssl_chain_cert={key},ssl_key={key}"), "there is no certificate in"),
        (format!("-Z -o ssl_chain_cert={chain},ssl_key={chain}"), "there is no key in"),
        (format!("-Z -o ssl_chain_cert={torn},ssl_key={key}"), "torn.crt"),
        (format!("-Z -o ssl_chain_cert={chain},ssl_key={foreign}"), "is not that of the certificate in"),
        (format!("{files},ssl_keyformat=2"), "there is no key in"),
        (format!("{files},ssl_ca_cert={key}"), "there is no certificate in"),
        (format!("{files},ssl_ca_cert={torn}"), "torn.crt"),
        (format!("{files},ssl_ciphers=ECDHE-RSA-AES128-GCM-SHA256:HIGH"), "unknown cipher suite \"HIGH\""),
        (format!("{files},ssl_verify_mode=2"), "need an authority"),
    ] {
        for way in ["--check", "-p -1"] {
            let output = run(&format!("{way} {flags}"));
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(64), "{flags}: {stderr}");
            assert!(stderr.contains(message), "{flags}: {stderr}");
        }
    }
}

#[test]
fn certificates_outside_their_validity_are_used_with_a_warning() {
    let authority = Authority::new();
    for (from, to, message) in [(1990, 2020, "it expired "), (2900, 3000, "it is not valid for another ")] {
        authority.issue("server", |params| {
            (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        });
        let output = run(&format!("--check {}", authority.flags()));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(stderr.contains("WARN") && stderr.contains(message), "{stderr}");
    }
}
