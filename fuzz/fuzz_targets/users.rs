//! Parses arbitrary files of users, and checks the properties that all files have.
#![no_main]

use libfuzzer_sys::fuzz_target;

// Not the whole server, whose dependencies would take minutes to build.
#[path = "../../crates/server/src/security/auth"]
mod auth {
    #[allow(dead_code)]
    mod file;
    #[path = "file/properties.rs"]
    mod properties;

    use file::{MAX_NAME, MAX_PREFIX, MAX_TENANTS, Memory, OPENING, TenantLine, UserFile, UserLine};

    pub fn check(text: &[u8]) {
        // As for `-Y`, and as for SASL, which has no limit.
        properties::check(text, 8);
        properties::check(text, usize::MAX);
    }
}

fuzz_target!(|text: &[u8]| auth::check(text));
