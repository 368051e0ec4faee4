//! The Rust snippets of the book and of the README, as doctests: `cargo test --doc -p
//! relativist-bench`.

macro_rules! pages {
    ($($name:ident: $file:literal,)*) => {
        $(#[doc = include_str!(concat!("../../../", $file))] mod $name {})*
    };
}

pages! {
    readme: "README.md",
    in_async_tasks: "docs/src/async.md",
    cache_in_rust: "docs/src/cache-in-rust.md",
    choosing_a_map: "docs/src/choosing-a-map.md",
    from_moka: "docs/src/from-moka.md",
    from_other_maps: "docs/src/from-other-maps.md",
    resizing: "docs/src/resizing.md",
    tutorial_map: "docs/src/tutorial-map.md",
}
