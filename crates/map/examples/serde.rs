//! Maps and sets as JSON (feature `serde`).
//!
//! `cargo run -p relativist --features serde --example serde`

use relativist::{HashMap, HashSet};

fn main() -> serde_json::Result<()> {
    let ports: HashMap<String, HashSet<u16>> = serde_json::from_str(r#"{"http": [80, 8080], "memcached": [11211]}"#)?;
    assert!(ports.pin().get("http").is_some_and(|ports| ports.pin().contains(&8080)));

    ports.pin().insert("https".into(), HashSet::from([443]));
    let json = serde_json::to_string(&ports)?;
    println!("{json}");
    assert!(json.contains(r#""https":[443]"#));
    let back: HashMap<String, HashSet<u16>> = serde_json::from_str(&json)?;
    assert!(back == ports);
    Ok(())
}
