//! An HTTP handler with a cache and one loader per key: requests for the same page that arrive
//! while it is rendered wait for it.
//!
//! `cargo run -p relativist-bench --example cache_axum`

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use relativist_cache::Cache;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, yield_now};

type Pages = Cache<String, Arc<str>>;

async fn page(State(pages): State<Pages>, Path(name): Path<String>) -> Result<String, StatusCode> {
    let page = pages.get_or_try_insert_async(name.clone(), || render(name)).await.map_err(|status| *status)?;
    Ok(page.to_string())
}

/// Stands for something that takes time, and may fail. If the client goes away, axum drops the
/// future. Then a request that waits for it renders the page.
async fn render(name: String) -> Result<Arc<str>, StatusCode> {
    yield_now().await;
    if name == "secret" { Err(StatusCode::FORBIDDEN) } else { Ok(format!("the page {name}").into()) }
}

fn pages() -> Pages {
    Cache::builder()
        .capacity(64 << 20)
        .weigher(|name: &String, page: &Arc<str>| (name.len() + page.len()) as u64)
        .time_to_live(Duration::from_secs(60))
        .record_stats()
        .build()
}

/// Sends a request, and returns the whole response.
async fn fetch(server: SocketAddr, name: &str) -> io::Result<String> {
    let mut connection = TcpStream::connect(server).await?;
    let request = format!("GET /{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    connection.read_to_string(&mut response).await?;
    Ok(response)
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let pages = pages();
    let router = Router::new().route("/{name}", get(page)).with_state(pages.clone());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });

    let mut clients = JoinSet::new();
    for n in 0..100 {
        clients.spawn(async move { (n, fetch(address, &format!("page-{}", n % 10)).await) });
    }
    while let Some(client) = clients.join_next().await {
        let (n, response) = client?;
        assert!(response?.ends_with(&format!("the page page-{}", n % 10)));
    }
    println!("100 requests, {} pages rendered", pages.stats().loads);
    assert_eq!(pages.stats().loads, 10);

    // An error is returned to the client, and not cached.
    assert!(fetch(address, "secret").await?.starts_with("HTTP/1.1 403"));
    assert!(fetch(address, "secret").await?.starts_with("HTTP/1.1 403"));
    assert_eq!((pages.stats().failed_loads, pages.contains_key("secret")), (2, false));
    Ok(())
}
