//! Tests of encrypted connections.

use crate::certificates::Authority;
use crate::harness::{Client, Io, Running, connect_to, on_each_backend, stat};
use crate::large::{assert_becomes, metric};
use rcgen::date_time_ymd;
use relativist_testing::wait_until;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, HandshakeKind, StreamOwned};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

on_each_backend! {
    a_conversation_survives_any_split
    many_requests_at_once_are_answered_in_order
    large_values_are_stored_and_fetched
    a_slow_reader_has_little_encrypted_for_it
    large_values_are_encrypted_as_the_client_reads
    a_client_that_leaves_within_a_large_value_frees_it
    a_client_that_sends_close_notify_gets_its_replies
    a_server_that_stops_sends_close_notify
    clients_without_tls_are_closed_and_disturb_no_other_client
    a_broken_handshake_is_counted
    a_handshake_has_a_time_limit
}

type Encrypted<S = TcpStream> = Client<StreamOwned<ClientConnection, S>>;

fn session(config: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(Arc::clone(config), "localhost".try_into().unwrap()).unwrap()
}

fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Encrypted {
    Client(StreamOwned::new(session(config), connect_to(address)))
}

/// Returns the TLS error of a refused connection.
fn refusal(address: SocketAddr, config: &Arc<ClientConfig>) -> Error {
    let error = connect(address, config).0.read_exact(&mut [0]).expect_err("the connection is refused");
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(inner) => inner.clone(),
        None => panic!("lost without a TLS error: {error}"),
    }
}

/// A connection that sends one byte at a time.
struct Drip(TcpStream);

impl Read for Drip {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Drip {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Yield, so that the server may read the parts separately.
        std::thread::yield_now();
        self.0.write(&bytes[..bytes.len().min(1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn a_conversation_survives_any_split(io: Io) {
    let authority = Authority::new();
    let server = io.start(&format!("-t 1 {}", authority.flags()));
    let mut client: Encrypted<Drip> =
        Client(StreamOwned::new(session(&authority.client()), Drip(connect_to(server.address))));
    let (request, reply) = ("set k 5 0 3\r\nx\ry\r\nget k none\r\n", "STORED\r\nVALUE k 5 3\r\nx\ry\r\nEND\r\n");
    client.ask(request, reply);
    // Send the same with a record for each byte.
    for byte in request.bytes() {
        client.send([byte]);
    }
    client.ask("quit\r\n", reply);
    client.expect_close();
}

fn many_requests_at_once_are_answered_in_order(io: Io) {
    let authority = Authority::new();
    let server = io.start(&format!("-t 1 {}", authority.flags()));
    let (mut request, mut reply) = (String::new(), String::new());
    for i in 0..1_500 {
        write!(request, "set k{i} 0 0 6\r\n{i:06}\r\nget k{i} k{}\r\n", i + 1).unwrap();
        write!(reply, "STORED\r\nVALUE k{i} 0 6\r\n{i:06}\r\nEND\r\n").unwrap();
    }
    connect(server.address, &authority.client()).ask(request, reply);
}

fn large_values_are_stored_and_fetched(io: Io) {
    let authority = Authority::new();
    let server = io.start(&format!("-t 1 {}", authority.flags()));
    let value: String = (0..1_000_000_u32).map(|i| char::from(b' ' + (i % 89) as u8)).collect();
    let mut client = connect(server.address, &authority.client());
    client.ask(format!("set big 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    client.ask("get big\r\nget big\r\n", format!("VALUE big 0 1000000\r\n{value}\r\nEND\r\n").repeat(2));
    client.ask(format!("set big 0 0 2000000\r\n{value}{value}\r\n"), "SERVER_ERROR object too large for cache\r\n");
    client.ask("get big\r\n", "END\r\n");
}

/// The client requests 16 MB, more than the sockets can buffer, and reads nothing for a while.
fn a_slow_reader_has_little_encrypted_for_it(io: Io) {
    let authority = Authority::new();
    let server = io.start(&format!("-t 1 {}", authority.flags()));
    let value = "v".repeat(250_000);
    let mut client = connect(server.address, &authority.client());
    client.ask(format!("set big 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    client.send("get big\r\n".repeat(64));
    let mut other = connect(server.address, &authority.client());
    for _ in 0..50 {
        let held = stat(&mut other, "response_obj_bytes");
        assert!(held <= 2 << 20, "{held}");
    }
    for _ in 0..64 {
        client.expect(format!("VALUE big 0 {}\r\n{value}\r\nEND\r\n", value.len()));
    }
}

/// Starts a server with one thread, and a value of 5 MB under the key `big`.
fn with_large_value(io: Io, authority: &Authority) -> (Running, Vec<u8>) {
    let server = io.start(&format!("-t 1 -m 128 -I 8m --admin 0 {}", authority.flags()));
    let value: Vec<u8> = (0..5_000_000_u32).map(|i| b' ' + (i % 89) as u8).collect();
    let set = [format!("set big 0 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    connect(server.address, &authority.client()).ask(set, "STORED\r\n");
    (server, value)
}

/// The client requests 25 MB, more than the sockets can buffer, and reads the beginning while
/// another client is served.
fn large_values_are_encrypted_as_the_client_reads(io: Io) {
    let authority = Authority::new();
    let (server, value) = with_large_value(io, &authority);
    let mut slow = connect(server.address, &authority.client());
    slow.send("get big\r\n".repeat(5));
    slow.expect("V");
    let mut other = connect(server.address, &authority.client());
    let reply = [format!("VALUE big 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\nEND\r\n"].concat();
    let mut rest = &reply.repeat(5)[1..];
    for _ in 0..50 {
        let held = stat(&mut other, "response_obj_bytes");
        assert!(held <= 1 << 20, "{held}");
        let (step, after) = rest.split_at(20_000);
        slow.expect(step);
        rest = after;
    }
    assert!(metric(&server, "memory_pinned_bytes") >= value.len() as u64, "the value is pinned until it is sent");
    rest.chunks(500_000).for_each(|step| slow.expect(step));
    assert_becomes(&server, "memory_pinned_bytes", |bytes| bytes == 0);
}

fn a_client_that_leaves_within_a_large_value_frees_it(io: Io) {
    let authority = Authority::new();
    let (server, _) = with_large_value(io, &authority);
    for _ in 0..3 {
        let mut clients = [(); 4].map(|()| connect(server.address, &authority.client()));
        for (index, client) in clients.iter_mut().enumerate() {
            client.send("get big\r\n".repeat(5));
            (0..index).for_each(|_| client.0.read_exact(&mut [0; 100_000]).unwrap());
        }
        drop(clients);
    }
    assert_becomes(&server, "memory_pinned_bytes", |bytes| bytes == 0);
    connect(server.address, &authority.client()).ask("flush_all\r\n", "OK\r\n");
}

fn a_client_that_sends_close_notify_gets_its_replies(io: Io) {
    let authority = Authority::new();
    let server = io.start(&format!("-t 1 {}", authority.flags()));
    let mut client = connect(server.address, &authority.client());
    client.send("set k 0 0 1\r\nx\r\nget k\r\nget unfinished");
    client.0.conn.send_close_notify();
    client.expect("STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    // The close is clean only if the server sends close_notify, too.
    client.expect_close();
}

/// The server does not wait for clients that do not read.
fn a_server_that_stops_sends_close_notify(io: Io) {
    let authority = Authority::new();
    let (mut server, _) = with_large_value(io, &authority);
    let mut stuck = connect(server.address, &authority.client());
    stuck.send("get big\r\n".repeat(5));
    stuck.expect("V");
    let mut clients = [(); 20].map(|()| connect(server.address, &authority.client()));
    clients.iter_mut().for_each(|client| client.ask("mn\r\n", "MN\r\n"));
    server.stop().expect("the server was running").expect("the server stops without an error");
    for client in &mut clients {
        assert_eq!(client.0.read(&mut [0]).expect("the server sends close_notify"), 0);
    }
    let cut = stuck.0.read_to_end(&mut Vec::new()).expect_err("the reply is incomplete");
    assert!(matches!(cut.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset), "{cut}");
}

fn clients_without_tls_are_closed_and_disturb_no_other_client(io: Io) {
    let authority = Authority::new();
    let server = io.start(&format!("-t 1 {}", authority.flags()));
    let mut other = connect(server.address, &authority.client());
    other.ask("mn\r\n", "MN\r\n");
    for (errors, bytes) in (1..).zip([&b"get key\r\n"[..], b"\x80\x0a\0\0\0\0\0\0", b"GET / HTTP/1.1\r\n\r\n"]) {
        let mut plain = server.connect();
        plain.send(bytes);
        let mut reply = Vec::new();
        plain.0.read_to_end(&mut reply).expect("the server closes the connection without a reset");
        assert!(matches!(reply[..], [21, 3, _, 0, 2, 2, _]), "not a fatal alert: {reply:?}");
        other.ask("mn\r\n", "MN\r\n");
        assert_eq!(stat(&mut other, "ssl_proto_errors"), errors);
    }
    assert_eq!(stat(&mut other, "ssl_handshake_errors"), 0);
}

/// Returns the first message of a client.
fn hello(authority: &Authority) -> Vec<u8> {
    let mut hello = Vec::new();
    session(&authority.client()).write_tls(&mut hello).unwrap();
    hello
}

fn a_broken_handshake_is_counted(io: Io) {
    let authority = Authority::new();
    let server = io.start(&format!("-t 1 {}", authority.flags()));
    let hello = hello(&authority);
    // A connection that sends nothing is not an error: it may be a check whether the server runs.
    drop(server.connect());
    for end in [1, hello.len() / 2, hello.len()] {
        server.connect().send(&hello[..end]);
    }
    let mut other = connect(server.address, &authority.client());
    wait_until("three errors", || stat(&mut other, "ssl_handshake_errors") == 3);
    wait_until("the end of all other connections", || stat(&mut other, "curr_connections") == 1);
    assert_eq!(stat(&mut other, "ssl_handshake_errors"), 3);
    assert_eq!(stat(&mut other, "ssl_proto_errors"), 0);
}

fn a_handshake_has_a_time_limit(io: Io) {
    let authority = Authority::new();
    let server = io.start(&format!("-t 1 --debug-time {}", authority.flags()));
    let hello = hello(&authority);
    let mut late: Vec<Client> = [0, 5, hello.len()]
        .map(|end| {
            let mut client = server.connect();
            client.send(&hello[..end]);
            client
        })
        .into();
    let mut other = connect(server.address, &authority.client());
    other.ask("debugtime p\r\ndebugtime 5\r\n", "OK\r\nOK\r\n");
    assert_eq!(stat(&mut other, "curr_connections"), 4);
    other.ask("debugtime 100\r\n", "OK\r\n");
    for client in &mut late {
        // Read to the end, because one of the clients has received the server's hello.
        client.0.read_to_end(&mut Vec::new()).expect("the server closes the connection");
    }
    other.ask("mn\r\n", "MN\r\n");
    assert_eq!(stat(&mut other, "curr_connections"), 1);
    assert_eq!(stat(&mut other, "ssl_handshake_errors"), 2);
}

#[test]
fn clients_need_a_certificate_where_it_is_required() {
    let (authority, other_authority) = (Authority::new(), Authority::new());
    for owner in [&authority, &other_authority] {
        owner.issue("client", |_| ());
    }
    authority.issue("expired", |params| params.not_after = date_time_ymd(2020, 1, 1));
    let (anonymous, friend) = (authority.client(), authority.client_as(&authority, "client"));
    let (expired, enemy) =
        (authority.client_as(&authority, "expired"), authority.client_as(&other_authority, "client"));
    let listeners = "-l mtls:127.0.0.1,btls:127.0.0.1,notls:127.0.0.1,127.0.0.1";
    let server = Running::start(&format!("-t 2 {},ssl_verify_mode=1 {listeners}", authority.flags()));
    let &[required, unasked, plain, welcome] = &server.addresses[..] else { panic!("not four listeners") };

    for (address, config) in
        [(required, &friend), (unasked, &anonymous), (unasked, &enemy), (welcome, &anonymous), (welcome, &friend)]
    {
        connect(address, config).ask("mn\r\n", "MN\r\n");
    }
    Client(connect_to(plain)).ask("mn\r\n", "MN\r\n");
    for (address, config, alert) in [
        (required, &anonymous, AlertDescription::CertificateRequired),
        (required, &enemy, AlertDescription::UnknownCA),
        (welcome, &enemy, AlertDescription::UnknownCA),
        (required, &expired, AlertDescription::CertificateExpired),
    ] {
        assert_eq!(refusal(address, config), Error::AlertReceived(alert));
    }
    // A session ticket from the first connection does not replace the certificate.
    let mut client = connect(required, &friend);
    client.ask("mn\r\n", "MN\r\n");
    assert_eq!(client.0.conn.handshake_kind(), Some(HandshakeKind::Full));
    assert_eq!(stat(&mut client, "ssl_handshake_errors"), 4);
    let settings = client.list("stats settings");
    for line in
        ["ssl_enabled yes", "ssl_verify_mode 1", "ssl_keyformat 1", "ssl_wbuf_size 16384", "ssl_min_version tlsv1.2"]
    {
        assert!(settings.contains(&format!("STAT {line}\r\n")), "{line}: {settings}");
    }
}

/// Connects, and returns the kind of handshake.
fn handshake(server: &Running, config: &Arc<ClientConfig>) -> Option<HandshakeKind> {
    let mut client = connect(server.address, config);
    client.ask("mn\r\n", "MN\r\n");
    client.0.conn.handshake_kind()
}

#[test]
fn sessions_are_resumed_until_the_certificates_change() {
    let authority = Authority::new();
    for version in [&TLS12, &TLS13] {
        let server = Running::start(&format!("-t 2 {},ssl_session_cache", authority.flags()));
        let config = ClientConfig::builder_with_protocol_versions(&[version])
            .with_root_certificates(authority.trusted())
            .with_no_client_auth();
        let config = Arc::new(config);
        let kinds = [(); 3].map(|()| handshake(&server, &config));
        assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed].map(Some));
        let refresh = || connect(server.address, &config).ask("refresh_certs\r\n".repeat(10), "OK\r\n".repeat(10));
        refresh();
        assert_eq!(handshake(&server, &config), Some(HandshakeKind::Resumed), "the files are the same");
        let mut chain = OpenOptions::new().append(true).open(authority.path("server.crt")).unwrap();
        chain.write_all(b"\n").unwrap();
        refresh();
        assert_eq!(handshake(&server, &config), Some(HandshakeKind::Full));
        assert_eq!(stat(&mut connect(server.address, &config), "ssl_new_sessions"), 2);
    }
}

/// A request that came before the handshake could be one that somebody else has recorded.
#[test]
fn a_resumed_session_takes_no_early_data() {
    let authority = Authority::new();
    let server = Running::start(&format!("-t 1 {}", authority.flags()));
    let mut config = ClientConfig::clone(&authority.client());
    config.enable_early_data = true;
    let config = Arc::new(config);
    assert_eq!(handshake(&server, &config), Some(HandshakeKind::Full));
    let mut client = connect(server.address, &config);
    assert!(client.0.conn.early_data().is_none());
    client.ask("mn\r\n", "MN\r\n");
    assert_eq!(client.0.conn.handshake_kind(), Some(HandshakeKind::Resumed));
}

#[test]
fn certificates_are_reloaded_while_connections_are_open() {
    let (old, new) = (Authority::new(), Authority::new());
    let server = Running::start(&format!("-t 2 {}", old.flags()));
    let mut client = connect(server.address, &old.client());
    client.ask("mn\r\n", "MN\r\n");
    let replace = |file: &str, source: &Authority| fs::copy(source.path(file), old.path(file)).unwrap();

    replace("server.crt", &new);
    for _ in 0..3 {
        client.send("refresh_certs\r\n");
        let problem = String::from_utf8(client.read_until(b"\r\n")).unwrap();
        assert!(problem.starts_with("SERVER_ERROR the key in ") && problem.contains("is not that of"), "{problem}");
    }
    connect(server.address, &old.client()).ask("mn\r\n", "MN\r\n");

    replace("server.key", &new);
    client.ask("refresh_certs\r\n", "OK\r\n");
    client.ask("mn\r\n", "MN\r\n");
    connect(server.address, &new.client()).ask("mn\r\n", "MN\r\n");
    assert_eq!(refusal(server.address, &old.client()), CertificateError::UnknownIssuer.into());
    assert!(stat(&mut client, "time_since_server_cert_refresh") < 1_000);
}

#[test]
fn an_expired_certificate_is_refused_by_the_client() {
    let authority = Authority::new();
    authority.issue("server", |params| params.not_after = date_time_ymd(2020, 1, 1));
    let server = Running::start(&authority.flags());
    let error = refusal(server.address, &authority.client());
    assert!(
        matches!(error, Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. })),
        "{error}"
    );
}

#[test]
fn versions_and_cipher_suites_can_be_limited() {
    let authority = Authority::new();
    let config = |version| {
        ClientConfig::builder_with_protocol_versions(&[version])
            .with_root_certificates(authority.trusted())
            .with_no_client_auth()
    };
    let (older, newer) = (Arc::new(config(&TLS12)), Arc::new(config(&TLS13)));
    let server = Running::start(&format!("-t 1 {},ssl_min_version=3", authority.flags()));
    assert_eq!(refusal(server.address, &older), Error::AlertReceived(AlertDescription::ProtocolVersion));
    assert_eq!(handshake(&server, &newer), Some(HandshakeKind::Full));

    let server = Running::start(&format!("-t 1 {},ssl_ciphers=ECDHE-ECDSA-CHACHA20-POLY1305", authority.flags()));
    for (config, suite) in
        [(&older, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"), (&newer, "TLS13_AES_256_GCM_SHA384")]
    {
        let mut client = connect(server.address, config);
        client.ask("mn\r\n", "MN\r\n");
        assert_eq!(format!("{:?}", client.0.conn.negotiated_cipher_suite().unwrap().suite()), suite);
    }
}

/// Tools detect a server with TLS by these statistics.
#[test]
fn there_are_three_more_statistics_with_tls() {
    let authority = Authority::new();
    let server = Running::start(&format!("-t 1 {},no_lru_crawler,no_lru_maintainer", authority.flags()));
    let stats = connect(server.address, &authority.client()).list("stats");
    assert_eq!(stats.matches("STAT ").count(), 87, "{stats}");
}

#[test]
fn a_key_can_be_in_der_and_records_can_be_small() {
    let authority = Authority::new();
    let key = PrivateKeyDer::from_pem_file(authority.path("server.key")).unwrap();
    fs::write(authority.path("server.key"), key.secret_der()).unwrap();
    let server = Running::start(&format!("-t 1 {},ssl_keyformat=2,ssl_wbuf_size=1", authority.flags()));
    let mut client = connect(server.address, &authority.client());
    client.ask("set k 0 0 5000\r\n".to_owned() + &"x".repeat(5_000) + "\r\n", "STORED\r\n");
    client.ask("get k\r\n", format!("VALUE k 0 5000\r\n{}\r\nEND\r\n", "x".repeat(5_000)));
}
