//! A cache of rendered pages, with a lifetime, a weigher and a listener. `moka_pages` is the same
//! program with moka. The page "Come from moka and quick_cache" of the book shows the difference.
//!
//! `cargo run -p relativist-bench --example cache_pages`

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use relativist_cache::{Cache, RemovalCause};

/// The pages of a site, kept for five minutes.
#[derive(Clone)]
struct Pages(Cache<String, Arc<str>>);

impl Pages {
    fn new() -> Self {
        let pages = Cache::builder()
            .capacity(64 << 20)
            .weigher(|url: &String, page: &Arc<str>| (url.len() + page.len()) as u64)
            .time_to_live(Duration::from_secs(300))
            .on_removal(|url, page, cause| {
                if cause == RemovalCause::Size {
                    eprintln!("no room for {url}: {} bytes", page.len());
                }
            })
            .build();
        Self(pages)
    }

    /// Returns a page. Requests that miss the same page at the same time render it once.
    fn get(&self, url: &str) -> Result<Arc<str>, Arc<Error>> {
        self.0.get_or_try_insert_with(url.to_owned(), || render(url))
    }

    /// Forgets a page because its author has changed it.
    fn forget(&self, url: &str) {
        self.0.invalidate(url);
    }

    fn log(&self) -> String {
        format!("{} pages, {} bytes", self.0.len(), self.0.weight())
    }
}

fn render(url: &str) -> Result<Arc<str>, Error> {
    if url == "/none" { Err(ErrorKind::NotFound.into()) } else { Ok(format!("the page at {url}").into()) }
}

fn main() {
    let pages = Pages::new();
    let requests = ["/", "/news", "/"].map(|url| {
        let pages = pages.clone();
        thread::spawn(move || pages.get(url))
    });
    let found = requests.map(|request| request.join().unwrap().unwrap());
    assert_eq!(&*found[1], "the page at /news");
    assert_eq!(pages.log(), "2 pages, 36 bytes");
    pages.forget("/");
    assert_eq!(pages.get("/none").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(pages.log(), "1 pages, 22 bytes");
}
