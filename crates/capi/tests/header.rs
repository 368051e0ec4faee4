//! Checks that the committed header is the one that cbindgen generates from the source. If
//! RELATIVIST_WRITE_HEADER is set, the test writes the header instead.

use relativist_testing as _;

use std::path::Path;

#[test]
fn the_header_is_that_of_the_source() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let sources = ["rcu.rs", "table.rs"].map(|file| here.join("src").join(file));
    let builder = sources.into_iter().fold(cbindgen::Builder::new().with_config(config), |b, file| b.with_src(file));
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = here.join("include/relativist.h");
    if std::env::var_os("RELATIVIST_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(found == made, "run RELATIVIST_WRITE_HEADER=1 cargo test -p relativist-capi");
}
