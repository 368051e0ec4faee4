//! The part of HTTP/1.1 that a browser and a scraper need: one request without a body, and one
//! response.

use std::borrow::Cow;

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
    /// Whether only the head of the response is wanted.
    pub(super) is_head: bool,
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
            let accept = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("accept"));
            let accept = accept.and_then(|header| str::from_utf8(header.value).ok()).unwrap_or_default();
            Progress::Complete(Request { path, accept, is_head: method == "HEAD" })
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
        assert_eq!(request, Request { path: "/metrics", accept: "c/d", is_head: true });
    }
}
