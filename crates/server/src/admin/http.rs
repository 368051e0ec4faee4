//! The part of HTTP/1.1 that a browser and a scraper need: one request without a body, and one
//! response.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum length of a request's head.
pub(super) const MAX_HEAD: usize = 8 << 10;

/// Maximum number of headers.
const MAX_HEADERS: usize = 64;

/// A request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Request<'h> {
    /// The path without the query.
    pub(super) path: &'h str,
    /// The media types that the client wants: the header `Accept`, or empty.
    pub(super) accept: &'h str,
    /// The host that the client has connected to, by its name for it: the header `Host`. None in
    /// HTTP/1.0.
    host: Option<&'h str>,
    /// Whether only the head of the response is wanted.
    pub(super) is_head: bool,
}

/// The host names by which clients may address the server, besides IP addresses and `localhost`.
///
/// A web page can make its own host name mean another address, such as that of this server
/// (DNS rebinding). Its scripts could then read what the server answers. But the browser still
/// names the page's host.
#[derive(Debug)]
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    pub(super) fn new(names: &[String]) -> Hosts {
        Hosts(names.to_vec())
    }

    /// Whether the request is for this server. Clients that name no host are no browsers.
    pub(super) fn allow(&self, request: Request<'_>) -> bool {
        let Some(host) = request.host else { return true };
        let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let name = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
        let in_brackets = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let names = self.0.iter().map(String::as_str).chain(["localhost"]);
        name.parse::<Ipv4Addr>().is_ok()
            || in_brackets.is_some_and(|name| name.parse::<Ipv6Addr>().is_ok())
            || names.into_iter().any(|own| name.eq_ignore_ascii_case(own))
    }
}

/// A response.
#[derive(Debug)]
pub(super) struct Response {
    status: &'static str,
    content_type: &'static str,
    body: Cow<'static, str>,
}

impl Response {
    pub(super) fn ok(content_type: &'static str, body: impl Into<Cow<'static, str>>) -> Response {
        Response { status: "200 OK", content_type, body: body.into() }
    }

    pub(super) fn misdirected() -> Response {
        Response::plain(
            "421 Misdirected Request",
            "this server is addressed by an IP address, localhost, or a name given by --admin-host\n",
        )
    }

    pub(super) fn not_found() -> Response {
        Response::plain("404 Not Found", "not found; the paths are /, /healthz, /metrics, /readyz and /stats.json\n")
    }

    pub(super) fn unavailable(why: &'static str) -> Response {
        Response::plain("503 Service Unavailable", why)
    }

    fn plain(status: &'static str, text: &'static str) -> Response {
        Response { status, content_type: "text/plain; charset=utf-8", body: text.into() }
    }

    /// The bytes to send: all, or only the head.
    pub(super) fn bytes(&self, is_head: bool) -> Vec<u8> {
        let Response { status, content_type, body } = self;
        // The page is self-contained, so it may load nothing, and no other page may frame it.
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; \
             script-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n\r\n",
            body.len()
        );
        let body = if is_head { "" } else { body };
        [head.as_bytes(), body.as_bytes()].concat()
    }
}

/// The state of a request of which some bytes have arrived.
pub(super) enum Progress<'h> {
    Incomplete,
    Complete(Request<'h>),
    Refused(Response),
}

/// Parses the bytes that have arrived, [`MAX_HEAD`] at most.
pub(super) fn parse(bytes: &[u8]) -> Progress<'_> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => (),
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Progress::Incomplete,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Progress::Refused(Response::plain(
                "431 Request Header Fields Too Large",
                "the request is too long\n",
            ));
        }
        Err(_) => return Progress::Refused(Response::plain("400 Bad Request", "the request is not HTTP\n")),
    }
    let target = request.path.unwrap_or_default();
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    match request.method {
        Some(method @ ("GET" | "HEAD")) => {
            let header = |name: &str| {
                let header = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
                Some(str::from_utf8(header.value).unwrap_or_default())
            };
            let (accept, host) = (header("accept").unwrap_or_default(), header("host"));
            Progress::Complete(Request { path, accept, host, is_head: method == "HEAD" })
        }
        _ => Progress::Refused(Response::plain("405 Method Not Allowed", "the methods are GET and HEAD\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &[u8]) -> &'static str {
        match parse(request) {
            Progress::Incomplete => "incomplete",
            Progress::Complete(_) => "complete",
            Progress::Refused(response) => response.status,
        }
    }

    #[test]
    fn requests_are_bounded_and_read_only() {
        assert_eq!(status(b"GET / HTTP/1.1\r\nHost: a\r\n"), "incomplete");
        assert_eq!(status(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "complete");
        assert_eq!(status(b"POST / HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
        assert_eq!(status(b"get stats\r\n\0"), "400 Bad Request");
        let endless = [b"GET /".as_slice(), &[b'a'; MAX_HEAD]].concat();
        assert_eq!(status(&endless[..MAX_HEAD - 1]), "incomplete");
        assert_eq!(status(&endless[..MAX_HEAD]), "431 Request Header Fields Too Large");
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS + 1));
        assert_eq!(status(many.as_bytes()), "431 Request Header Fields Too Large");
    }

    #[test]
    fn a_response_has_its_status_and_its_length() {
        let response = Response::unavailable("starting\n");
        let whole = String::from_utf8(response.bytes(false)).unwrap();
        assert!(whole.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{whole}");
        assert!(whole.contains("\r\nContent-Length: 9\r\n") && whole.ends_with("\r\n\r\nstarting\n"), "{whole}");
        assert_eq!(whole.strip_suffix("starting\n").unwrap().as_bytes(), response.bytes(true));
    }

    #[test]
    fn queries_are_ignored() {
        let Progress::Complete(request) = parse(b"HEAD /metrics?a=b HTTP/1.0\r\naccept: c/d\r\n\r\n") else {
            panic!("not complete")
        };
        assert_eq!(request, Request { path: "/metrics", accept: "c/d", host: None, is_head: true });
    }

    #[test]
    fn other_hosts_are_not_served() {
        let hosts = Hosts::new(&["cache.example.com".into()]);
        let is_allowed = |host: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost:{host}\r\n\r\n");
            let Progress::Complete(request) = parse(text.as_bytes()) else { panic!("not complete") };
            hosts.allow(request)
        };
        for host in
            ["127.0.0.1", " 10.0.0.1:9150", "[::1]", "[fe80::1]:80", "localhost:1", "LocalHost", "Cache.Example.COM:9"]
        {
            assert!(is_allowed(host), "{host}");
        }
        for host in
            ["", ":9150", "evil.example.com", "evil.example.com:9150", "localhost.example.com", "127.0.0.1.nip.io"]
        {
            assert!(!is_allowed(host), "{host}");
        }
    }
}
