//! Entries with lifetimes of their own: `Builder::expire_after`.
//!
//! `cargo run -p relativist-cache --example lifetimes`

use std::sync::Arc;
use std::time::Duration;

use relativist_cache::Cache;

/// What an identity provider returns.
struct Token {
    secret: String,
    valid_for: Duration,
}

/// Asks for a token. Those of administrators are short-lived.
fn request_token(user: &str) -> Arc<Token> {
    let valid_for = Duration::from_secs(if user == "admin" { 60 } else { 3600 });
    Arc::new(Token { secret: format!("token of {user}"), valid_for })
}

fn main() {
    const MARGIN: Duration = Duration::from_secs(5);
    // A token leaves some seconds before the provider refuses it. Two of the same user are never
    // requested at the same time.
    let tokens: Cache<String, Arc<Token>> = Cache::builder()
        .capacity(10_000)
        .expire_after(|_, token: &Arc<Token>| Some(token.valid_for.saturating_sub(MARGIN)))
        .build();

    for user in ["admin", "guest"] {
        let token = tokens.get_or_insert_with(user.into(), || request_token(user));
        let left = tokens.remaining_lifetime(user).unwrap();
        println!("{} for another {left:.0?}", token.secret);
        assert!(left <= token.valid_for - MARGIN);
    }
    // Used again until it expires.
    tokens.get_or_insert_with("admin".into(), || unreachable!("it is in the cache"));
}
