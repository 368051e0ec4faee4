//! The part of HTTP/1.1 that a browser and a scraper need: one request without a body, and one
//! response.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// The time in which a client must send its request and read the response.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum length of a request's head.
const MAX_HEAD: usize = 8 << 10;

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
    is_head: bool,
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
        Response::plain("503 SharedState Unavailable", why)
    }

    fn plain(status: &'static str, text: &'static str) -> Response {
        Response { status, content_type: "text/plain; charset=utf-8", body: text.into() }
    }

    fn write(&self, is_head: bool, out: &mut impl Write) -> io::Result<()> {
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
        out.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice())
    }
}

/// The state of a request of which some bytes have arrived.
enum Progress<'h> {
    Incomplete,
    Complete(Request<'h>),
    Refused(Response),
}

fn parse(bytes: &[u8]) -> Progress<'_> {
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

/// Reads a request and answers it, all within `timeout`.
///
/// # Errors
/// When the client is gone or too slow.
pub(super) fn answer(
    mut stream: TcpStream,
    timeout: Duration,
    respond: impl FnOnce(Request<'_>) -> Response,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let end = Instant::now() + timeout;
    let mut head = Vec::new();
    let (response, is_head) = loop {
        match parse(&head) {
            Progress::Complete(request) => break (respond(request), request.is_head),
            Progress::Refused(response) => break (response, false),
            Progress::Incomplete => read_some(&mut stream, &mut head, end)?,
        }
    };
    response.write(is_head, &mut Until { stream: &stream, end })?;
    stream.shutdown(Shutdown::Write)
}

/// A stream to which writing fails after `end`, however slowly the client reads.
struct Until<'s> {
    stream: &'s TcpStream,
    end: Instant,
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left_until(self.end)?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The time until `end`, or an error if it has passed.
fn left_until(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn read_some(stream: &mut TcpStream, head: &mut Vec<u8>, end: Instant) -> io::Result<()> {
    stream.set_read_timeout(Some(left_until(end)?))?;
    let mut room = [0; 1024];
    let most = room.len().min(MAX_HEAD - head.len());
    match stream.read(&mut room[..most]) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => {
            head.extend_from_slice(&room[..count]);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        Err(error) => Err(error),
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
    fn queries_are_ignored() {
        let Progress::Complete(request) = parse(b"HEAD /metrics?a=b HTTP/1.0\r\naccept: c/d\r\n\r\n") else {
            panic!("not complete")
        };
        assert_eq!(request, Request { path: "/metrics", accept: "c/d", is_head: true });
    }
}
