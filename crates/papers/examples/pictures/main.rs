//! Draws tables while they are resized: the book's pictures, after figures 1 and 2 of Triplett,
//! McKenney and Walpole (USENIX ATC 2011).
//!
//! Each picture shows where the heads and links of a real table lead at a moment of a resize. The
//! colours are computed from these links. So the pictures would show an error of the table, and the
//! program fails if a lookup could miss.
//!
//! ```sh
//! cargo run -p relativist-papers --example pictures -- docs/src/pictures
//! ```

mod draw;
mod film;
mod sorted;
mod unzip;

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = env::args().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    fs::create_dir_all(&folder)?;
    for (name, film) in [
        ("unzip-shrink", unzip::shrink()),
        ("unzip-grow", unzip::grow()),
        ("sorted-shrink", sorted::shrink()),
        ("sorted-grow", sorted::grow()),
    ] {
        fs::write(folder.join(name).with_extension("svg"), draw::svg(&film))?;
    }
    Ok(())
}
