//! Use in async code: pin the map between two `.await`s, and keep clones or copies across them.
//!
//! Operations on entries can be called from a task directly. Handles and guards can't be held
//! across an `.await` of a task that tokio may move: the compiler checks that. `shrink_to_fit`
//! waits for readers, so it belongs into `spawn_blocking`.
//!
//! `cargo run -p relativist --example tokio`

use std::sync::Arc;

use relativist::HashMap;
use tokio::runtime::Builder;
use tokio::task::{spawn, spawn_blocking, yield_now};

type Pages = HashMap<String, Arc<str>>;

/// Stands for something that takes time.
async fn fetch(url: &str) -> Arc<str> {
    yield_now().await;
    format!("the page at {url}").into()
}

async fn page(pages: &Pages, url: &str) -> Arc<str> {
    // An `Arc` leaves the read section, which ends with the call.
    if let Some(page) = pages.get_cloned(url) {
        return page;
    }
    let fetched = fetch(url).await;
    Arc::clone(pages.pin().get_or_insert(url.into(), fetched))
}

async fn serve() {
    let pages = Arc::new(Pages::new());
    let tasks: Vec<_> = (0..100)
        .map(|n| {
            let pages = Arc::clone(&pages);
            spawn(async move { page(&pages, &format!("/{}", n % 10)).await })
        })
        .collect();
    for (n, task) in tasks.into_iter().enumerate() {
        assert_eq!(*task.await.unwrap(), *format!("the page at /{}", n % 10));
    }
    println!("{} pages", pages.len());
    assert_eq!(pages.len(), 10);

    let shared = Arc::clone(&pages);
    spawn_blocking(move || shared.shrink_to_fit()).await.unwrap().expect("memory for a smaller map");
}

fn main() {
    Builder::new_multi_thread().worker_threads(2).build().unwrap().block_on(serve());
}
