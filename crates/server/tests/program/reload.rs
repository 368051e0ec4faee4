//! Tests of SIGHUP: options that change while the server runs, and options that cannot.

use super::{Daemon, converse, expect, poll, ports, program, serve, wait_until};
use crate::certificates::Authority;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::{ClientConnection, Stream};
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tempfile::TempDir;

/// A server with a file of options, all in one folder.
pub(super) struct Reloadable {
    pub(super) daemon: Daemon,
    pub(super) port: u16,
    folder: TempDir,
    /// How often it was reloaded.
    reloads: usize,
}

impl Reloadable {
    /// Starts a server with this file and command line.
    pub(super) fn start(text: &str, line: &str) -> Reloadable {
        Reloadable::start_in(tempfile::tempdir().unwrap(), text, line)
    }

    pub(super) fn start_in(folder: TempDir, text: &str, line: &str) -> Reloadable {
        // The user of -u reads it again.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        fs::write(folder.path().join("options.toml"), text).unwrap();
        let mut command = program();
        command.current_dir(folder.path()).args(["-t", "2", "--config", "options.toml"]);
        command.args(line.split_whitespace()).stderr(File::create(folder.path().join("log")).unwrap());
        let (daemon, port) = serve(&mut command);
        Reloadable { daemon, port, folder, reloads: 0 }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    /// Replaces the file as editors do, and reloads it.
    pub(super) fn reload(&mut self, text: &str) {
        fs::write(self.path("draft"), text).unwrap();
        fs::rename(self.path("draft"), self.path("options.toml")).unwrap();
        self.hang_up();
    }

    /// Sends SIGHUP, and waits until it is handled.
    pub(super) fn hang_up(&mut self) {
        kill(Pid::from_raw(self.daemon.0.id() as i32), Signal::SIGHUP).unwrap();
        self.reloads += 1;
        let is_end = |line: &&str| line.contains("nothing was reloaded") || line.contains("were reloaded");
        wait_until("the end of a reload", || self.log().lines().filter(is_end).count() >= self.reloads);
    }

    pub(super) fn ask(&self, requests: &str) -> String {
        converse(self.port, requests)
    }

    fn setting(&self, name: &str) -> String {
        let settings = self.ask("stats settings\r\n");
        settings.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} "))).expect(name).into()
    }

    pub(super) fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).unwrap()
    }

    fn can_log_in(&self, user: &str) -> bool {
        let (mut client, mut reply) = (self.connect(), [0; 6]);
        write!(client, "set a 0 0 {}\r\n{user}\r\n", user.len()).unwrap();
        client.read_exact(&mut reply).unwrap();
        reply == *b"STORED"
    }
}

/// Whether a client is served, and not refused.
fn is_served(mut client: &TcpStream) -> bool {
    let mut reply = [0; 4];
    let _ = client.write_all(b"mn\r\n");
    client.read_exact(&mut reply).is_ok() && reply == *b"MN\r\n"
}

/// The sandbox hides the files from which the share follows.
#[test]
#[cfg(target_os = "linux")]
fn memory_can_become_a_share_of_what_there_is() {
    let mut server = Reloadable::start("memory-limit = 'auto'\nverbose = 1\n", "-o drop_privileges");
    let share = server.setting("maxbytes");
    server.reload("memory-limit = 16\nverbose = 1\n");
    assert_eq!(server.setting("maxbytes"), (16 << 20).to_string());
    server.reload("memory-limit = 'auto'\nverbose = 1\n");
    assert_eq!(server.setting("maxbytes"), share);
}

#[test]
fn memory_can_shrink_and_grow() {
    let mut server = Reloadable::start("memory-limit = 64\nverbose = 1\n", "-o drop_privileges");
    let value = "x".repeat(100_000);
    let fill = |server: &Reloadable| {
        let sets: String = (0..400).map(|n| format!("set k{n} 0 0 100000 noreply\r\n{value}\r\n")).collect();
        server.ask(&sets);
        let gets: String = (0..400).map(|n| format!("mg k{n}\r\n")).collect();
        server.ask(&gets).matches("HD").count()
    };
    assert_eq!(fill(&server), 400);
    server.reload("memory-limit = 16\nverbose = 1\n");
    wait_until("fewer items in 16 MiB", || fill(&server) < 170);
    assert_eq!(server.setting("maxbytes"), (16 << 20).to_string());
    server.reload("memory-limit = 64\nverbose = 1\n");
    assert_eq!(fill(&server), 400);
    let log = server.log();
    assert!(log.contains("--memory-limit was 64, and is now 16") && log.contains("is now 64"), "{log}");
}

/// Clients of Amazon ElastiCache find the nodes by `config get cluster`, and notice changes by a
/// higher version.
#[test]
fn the_nodes_of_the_cluster_can_change() {
    let mut server = Reloadable::start("verbose = 1\ncluster-node = ['a|10.0.0.1|11211', 'b||11212']\n", "");
    let ask = |server: &Reloadable| {
        let reply = server.ask("config get cluster\r\n");
        let (head, list) = reply.split_once("\r\n").expect("a head");
        let length: usize = head.strip_prefix("CONFIG cluster 0 ").expect(head).parse().unwrap();
        let (version, nodes) = list[..length].split_once('\n').expect("a version");
        (version.parse::<u64>().unwrap(), nodes.to_owned())
    };
    let (first, nodes) = ask(&server);
    assert_eq!(nodes, "a|10.0.0.1|11211 b||11212\n");
    assert_eq!(server.ask("config get other\r\n").lines().next(), Some("ERROR"));
    server.reload("verbose = 1\ncluster-node = ['c|10.0.0.3|11211']\n");
    let (second, nodes) = ask(&server);
    assert_eq!(nodes, "c|10.0.0.3|11211\n");
    assert!(second > first, "{second} after {first}");
    server.reload("verbose = 1\n");
    assert_eq!(server.ask("config get cluster\r\n").lines().next(), Some("ERROR"));
}

/// Large items come after small ones, and nothing is requested.
#[test]
fn eviction_can_be_for_requests_or_for_bytes() {
    const SMALL: usize = 5_000;
    let mut server = Reloadable::start("memory-limit = 16\nverbose = 1\n", "");
    let value = "x".repeat(100_000);
    let remaining = |server: &Reloadable| {
        let small: String = (0..SMALL).map(|n| format!("set s{n} 0 0 2 noreply\r\nxx\r\n")).collect();
        let large: String = (0..400).map(|n| format!("set k{n} 0 0 100000 noreply\r\n{value}\r\n")).collect();
        server.ask("flush_all\r\n");
        server.ask(&(small + &large));
        let gets: String = (0..SMALL).map(|n| format!("mg s{n}\r\n")).collect();
        server.ask(&gets).matches("HD").count()
    };
    assert_eq!((server.setting("evict_for").as_str(), remaining(&server)), ("requests", SMALL));
    server.reload("memory-limit = 16\nverbose = 1\nextended = ['evict_for=bytes']\n");
    assert_eq!(server.setting("evict_for"), "bytes");
    let remaining_for_bytes = remaining(&server);
    assert!(remaining_for_bytes < SMALL / 2, "{remaining_for_bytes}: only those of an open block stay");
    server.reload("memory-limit = 16\nverbose = 1\nextended = ['evict_for=requests']\n");
    assert_eq!((server.setting("evict_for").as_str(), remaining(&server)), ("requests", SMALL));
}

#[test]
fn what_a_client_has_set_stays_until_the_file_changes_it() {
    let mut server = Reloadable::start("memory-limit = 64\nverbose = 1\n", "");
    server.ask("cache_memlimit 100\r\nlru_crawler disable\r\n");
    server.reload("memory-limit = 64\nverbose = 1\nconn-limit = 100\n");
    assert_eq!((server.setting("maxbytes"), server.setting("lru_crawler")), ((100 << 20).to_string(), "no".into()));
    server.reload("memory-limit = 32\nverbose = 1\nextended = ['no_lru_crawler']\n");
    server.reload("memory-limit = 32\nverbose = 1\n");
    assert_eq!((server.setting("maxbytes"), server.setting("lru_crawler")), ((32 << 20).to_string(), "yes".into()));
}

#[test]
fn the_connection_limit_can_change() {
    let mut server = Reloadable::start("conn-limit = 2\nverbose = 1\n", "");
    let mut clients: Vec<_> = (0..2).map(|_| server.connect()).collect();
    assert!(clients.iter().all(is_served) && !is_served(&server.connect()));
    server.reload("conn-limit = 3\nverbose = 1\n");
    clients.push(server.connect());
    assert!(clients.iter().all(is_served) && !is_served(&server.connect()));
    server.reload("conn-limit = 1\nverbose = 1\n");
    assert!(clients.iter().all(is_served), "open connections stay");
    drop(clients);
    // The server needs a moment to notice that they are closed.
    let last = poll("room", || Some(server.connect()).filter(is_served));
    assert!(is_served(&last) && !is_served(&server.connect()));
    server.reload("conn-limit = 1\nverbose = 1\nextended = ['no_maxconns_fast']\n");
    let mut waiting = server.connect();
    waiting.write_all(b"mn\r\n").unwrap();
    drop(last);
    waiting.read_exact(&mut [0; 4]).expect("it had to wait, and was not refused");
}

/// Whether a client may watch the log. A client that does is not served otherwise.
fn may_watch(server: &Reloadable) -> bool {
    let mut client = server.connect();
    client.write_all(b"watch\r\n").unwrap();
    let mut reply = [0; 4];
    client.read_exact(&mut reply).unwrap();
    reply == *b"OK\r\n"
}

#[test]
fn commands_can_be_forbidden_and_allowed() {
    let mut server = Reloadable::start("verbose = 1\n", "-o drop_privileges");
    assert_eq!(server.ask("flush_all\r\nstats detail on\r\n"), "OK\r\nOK\r\n");
    assert!(server.ask("lru_crawler metadump all\r\n").contains("END"));
    assert!(may_watch(&server));
    assert!(server.ask("shutdown\r\n").contains("not enabled"));
    assert_eq!(server.ask("verbosity 1\r\n"), "OK\r\n");
    let flags = ["flush-all", "dumping", "watch", "verbosity"].map(|name| format!("disable-{name} = true\n"));
    server.reload(&format!("verbose = 1\n{}", flags.concat()));
    assert_eq!(server.ask("verbosity 2\r\n"), "CLIENT_ERROR verbosity not allowed\r\n");
    assert!(server.ask("flush_all\r\n").contains("not allowed"));
    assert!(server.ask("lru_crawler metadump all\r\n").contains("not allowed"));
    assert!(!may_watch(&server));
    server.reload("verbose = 1\nextended = ['no_lru_crawler']\n");
    assert_eq!(server.ask("flush_all\r\n"), "OK\r\n");
    assert!(server.ask("lru_crawler metadump all\r\n").contains("disabled"));
    server.reload("verbose = 1\nenable-shutdown = true\n");
    server.ask("shutdown\r\n");
    assert_eq!(server.daemon.0.wait().unwrap().code(), Some(0));
}

#[test]
fn verbosity_idle_timeout_and_drain_can_change() {
    let mut server = Reloadable::start("verbose = 1\n", "-o drop_privileges");
    let mut idle = server.connect();
    assert!(is_served(&idle));
    server.reload("verbose = 2\ndrain = 600\nextended = ['idle_timeout=1']\n");
    assert_eq!(idle.read(&mut [0]).unwrap(), 0, "closed after a second without requests");
    server.ask("get loudly\r\n");
    wait_until("a request in the log", || server.log().contains("get loudly"));
    server.reload("verbose = 1\ndrain = 600\n");
    server.ask("get quietly\r\n");
    let open = server.connect();
    assert!(is_served(&open));
    kill(Pid::from_raw(server.daemon.0.id() as i32), Signal::SIGTERM).unwrap();
    poll("a refused connection", || TcpStream::connect(("127.0.0.1", server.port)).err());
    assert!(is_served(&open), "served while the server drains");
    drop(open);
    assert_eq!(server.daemon.0.wait().unwrap().code(), Some(0));
    assert!(!server.log().contains("get quietly"));
}

#[test]
fn users_and_their_file_can_change() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("users"), "old:a\n").unwrap();
    fs::write(folder.path().join("others"), "new:a\n").unwrap();
    let mut server = Reloadable::start_in(folder, "verbose = 1\nauth-file = 'users'\n", "-o drop_privileges");
    assert!(server.can_log_in("old a") && !server.can_log_in("new a"));
    let mut early = server.connect();
    expect(&mut early, "set a 0 0 5\r\nold a\r\n", "STORED\r\n");
    server.reload("verbose = 1\nauth-file = 'others'\n");
    assert!(server.can_log_in("new a") && !server.can_log_in("old a"));
    assert!(is_served(&early), "a client that is logged in stays");
    // A file that is wrong changes nothing, neither here nor elsewhere.
    fs::write(server.path("others"), "ann:b\nnobody\n").unwrap();
    server.reload("verbose = 1\nauth-file = 'others'\nmemory-limit = 99\n");
    assert!(server.log().contains("nothing was reloaded: cannot read the users in others: line 2 has no colon"));
    assert!(server.can_log_in("new a"));
    fs::write(server.path("others"), "ann:b\n").unwrap();
    server.reload("verbose = 1\nmemory-limit = 99\n");
    assert!(server.log().contains(
        "--auth-file cannot change without a restart: it was users at the start, and is not set in the file"
    ));
    assert!(!server.can_log_in("no one"), "a login is still required");
}

#[test]
fn certificates_and_their_files_can_change() {
    let (old, new) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let copy = |from: &Authority, name: &str| {
        fs::copy(from.path("server.crt"), path.join(format!("{name}.crt"))).unwrap();
        fs::copy(from.path("server.key"), path.join(format!("{name}.key"))).unwrap();
    };
    copy(&old, "old");
    copy(&new, "new");
    let text = |name| {
        format!(
            "verbose = 1\nenable-ssl = true\nextended = ['ssl_chain_cert={name}.crt', 'ssl_key={name}.key', \
             'drop_privileges']\n"
        )
    };
    let mut server = Reloadable::start_in(folder, &text("old"), "");
    let port = server.port;
    let serves = |authority: &Authority| {
        let mut session = ClientConnection::new(authority.client(), "localhost".try_into().unwrap()).unwrap();
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut stream = Stream::new(&mut session, &mut socket);
        stream.write_all(b"mn\r\n").and_then(|()| stream.read_exact(&mut [0; 4])).is_ok()
    };
    assert!(serves(&old) && !serves(&new));
    server.reload(&text("new"));
    assert!(serves(&new) && !serves(&old), "{}", server.log());
    server.reload(&text("missing"));
    assert!(server.log().contains("nothing was reloaded: cannot read missing.crt: No such file"), "{}", server.log());
    assert!(serves(&new));
    // The same files, with other contents.
    server.reload(&text("new"));
    copy(&old, "new");
    server.hang_up();
    assert!(serves(&old) && !serves(&new), "{}", server.log());
    fs::write(server.path("new.crt"), "nothing").unwrap();
    server.hang_up();
    assert!(server.log().contains("nothing was reloaded: there is no certificate in "), "{}", server.log());
    assert!(serves(&old));
}

#[test]
fn what_cannot_change_is_named_and_the_rest_changes() {
    let mut server = Reloadable::start("verbose = 1\nthreads = 2\n", "-t 2 -I 64k");
    server.reload(
        "verbose = 1\nthreads = 9\nport = 9\nlisten = ['127.0.0.9']\ndisable-cas = true\nmemory-limit = 99\nsnapshot = 's'\n\
         admin = '127.0.0.1:9'\nenable-ssl = true\nextended = ['ssl_chain_cert=c', 'ssl_key=k', 'track_sizes', 'hashpower=20']\n",
    );
    let log = server.log();
    for line in [
        "--listen cannot change without a restart: it was not set at the start, and is 127.0.0.9 in the file",
        "--disable-cas cannot change without a restart: it was false at the start, and is true in the file",
        "--snapshot cannot change without a restart: it was not set at the start, and is s in the file",
        "--admin cannot change without a restart: it was not set at the start, and is 127.0.0.1:9 in the file",
        "--enable-ssl cannot change without a restart: it was false at the start, and is true in the file",
        "-o track_sizes cannot change without a restart: it was not set at the start, and is on in the file",
        "-o hashpower cannot change without a restart: it was not set at the start, and is 20 in the file",
    ] {
        assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
    }
    assert!(!log.contains("--threads") && !log.contains("--port"), "the command line has them: {log}");
    assert_eq!(server.setting("maxbytes"), (99 << 20).to_string());
    assert_eq!(server.setting("cas_enabled"), "yes");
    // They are named at each reload.
    server.hang_up();
    assert_eq!(server.log().matches("--disable-cas cannot change").count(), 2);
}

#[test]
fn a_wrong_or_missing_file_changes_nothing() {
    let mut server = Reloadable::start("verbose = 1\nmemory-limit = 64\n", "-o drop_privileges");
    for (text, problem) in [
        ("memory-limit = 99\n\nnonsense = 1\n", "options.toml:3: there is no option \"nonsense\""),
        ("memory-limit = 99\nthreads = 0\n", "options.toml:2: invalid value '0' for '--threads <N>'"),
        ("memory-limit = ", "options.toml:1: "),
        ("memory-limit = 99\nextended = ['hot_lru_pct=50,warm_lru_pct=50']\n", "cannot exceed 80 together"),
        ("memory-limit = 99\nextended = ['nonsense=1']\n", "Illegal suboption \"nonsense\""),
        // Right in itself, but not with the item size of the running server.
        ("memory-limit = 1\nmax-item-size = '2k'\n", "items (-I) cannot be larger than half of the memory (-m)"),
    ] {
        server.reload(text);
        let log = server.log();
        let last = log.lines().last().unwrap();
        assert!(last.contains("nothing was reloaded: ") && last.contains(problem), "{text:?}: {last}");
        assert_eq!(server.setting("maxbytes"), (64 << 20).to_string(), "{text:?}");
    }
    fs::remove_file(server.path("options.toml")).unwrap();
    server.hang_up();
    assert!(server.log().contains("nothing was reloaded: cannot read options.toml: No such file"), "{}", server.log());
    assert!(is_served(&server.connect()));
    server.reload("verbose = 1\nmemory-limit = 99\n");
    assert_eq!(server.setting("maxbytes"), (99 << 20).to_string(), "a good file is read after bad ones");
}

#[test]
fn the_user_that_root_becomes_reads_the_file() {
    if !nix::unistd::Uid::effective().is_root() {
        return eprintln!("not tested: only root can become another user");
    }
    let mut server = Reloadable::start("verbose = 1\n", "-u nobody");
    server.reload("verbose = 1\nmemory-limit = 99\n");
    assert_eq!(server.setting("maxbytes"), (99 << 20).to_string());
    fs::set_permissions(server.path("options.toml"), Permissions::from_mode(0o600)).unwrap();
    server.hang_up();
    assert!(server.log().contains("nothing was reloaded: cannot read options.toml: Permission denied"));
    assert!(is_served(&server.connect()));
}

#[test]
fn a_daemon_reloads_the_file_of_the_folder_in_which_it_was_started() {
    let folder = tempfile::tempdir().unwrap();
    let [file, pid_file] = ["options.toml", "pid"].map(|name| folder.path().join(name));
    fs::write(&file, "memory-limit = 64\n").unwrap();
    let mut command = program();
    command.current_dir(folder.path()).args(["-d", "-p", "-1", "-P", "pid", "--config", "options.toml"]);
    command.env("MEMCACHED_PORT_FILENAME", "ports");
    assert_eq!(command.output().unwrap().status.code(), Some(0));
    let pid = Pid::from_raw(fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap());
    let port = ports(&folder.path().join("ports"))[0];
    fs::write(&file, "memory-limit = 99\n").unwrap();
    kill(pid, Signal::SIGHUP).unwrap();
    wait_until("the new limit", || converse(port, "stats settings\r\n").contains("maxbytes 103809024"));
    kill(pid, Signal::SIGTERM).unwrap();
    wait_until("the end of the daemon", || !pid_file.exists());
}

#[test]
fn reloads_under_load_lose_no_connection() {
    let mut server = Reloadable::start("verbose = 1\n", "-o drop_privileges");
    let (port, is_over) = (server.port, &AtomicBool::new(false));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                scope.spawn(move || {
                    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                    let request = format!("set k{client} 0 0 1\r\nv\r\nmg k{client} v\r\n");
                    let mut turns = 0;
                    // Relaxed: nothing else depends on it.
                    while turns == 0 || !is_over.load(Ordering::Relaxed) {
                        expect(&mut stream, &request, "STORED\r\nVA 1\r\nv\r\n");
                        turns += 1;
                    }
                    turns
                })
            })
            .collect();
        for round in 0..20 {
            server.reload(&format!("verbose = 1\nmemory-limit = {}\nconn-limit = {}\n", 64 + round % 2, 100 + round));
        }
        // Relaxed: as above.
        is_over.store(true, Ordering::Relaxed);
        assert!(clients.into_iter().all(|client| client.join().unwrap() > 0));
    });
}
