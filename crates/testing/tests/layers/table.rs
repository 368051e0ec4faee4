//! The table of layers.
//!
//! **A crate** may use the crates of this workspace that its entry names. They come before it in
//! the table. Tests of every crate may also use relativist-testing.
//!
//! **Modules** are in layers, the lowest first. Each string is one layer, in which blanks separate
//! the modules. A module imports only from layers below its own. `self` is the code of the crate's
//! root itself. If the table lacks it, it is above all modules: it may import everything, and no
//! module may import an item that the root defines. (An item that the root only offers by `pub use`
//! belongs to the module that it comes from.)
//!
//! `inside` has the layers of the children of a module, where `self` is the code of that module
//! itself. The children of modules that `inside` does not name may import each other.
//!
//! Parentheses mark an import cycle that is still to be broken. The test fails when the modules in
//! them form no cycle any more.
//!
//! **To add a module**, put it into a layer above those that it imports from, and run the test.

/// The rules for a crate.
pub struct Crate {
    pub name: &'static str,
    /// The folder in `crates/`.
    pub folder: &'static str,
    /// The crates of this workspace that its code uses.
    pub uses: &'static [&'static str],
    /// More crates of this workspace that only its tests use, apart from relativist-testing.
    pub tests_use: &'static [&'static str],
    /// The layers of its modules.
    pub layers: &'static [&'static str],
    pub inside: &'static [Inside],
    pub forbidden: &'static [Forbidden],
}

/// The layers of the children of one module.
pub struct Inside {
    /// The module, such as `net::connection`.
    pub module: &'static str,
    pub layers: &'static [&'static str],
}

/// Names of other crates that the code must not use.
pub struct Forbidden {
    /// Names, with all that is in them. Those of macros end with `!`; `std` includes `core`.
    pub names: &'static [&'static str],
    /// The modules that may use them, with all modules in them.
    pub except: &'static [&'static str],
    pub why: &'static str,
}

const CRATE: Crate =
    Crate { name: "", folder: "", uses: &[], tests_use: &[], layers: &[], inside: &[], forbidden: &[] };

/// Loom can replace the atomics only if they come from one module. Workers don't run under loom.
const ATOMICS: Forbidden = Forbidden {
    names: &["std::sync::atomic"],
    except: &["sync", "worker"],
    why: "atomics come from the module sync, so that loom can replace them",
};

/// All crates, the lowest first.
pub const CRATES: &[Crate] = &[
    Crate {
        name: "relativist-testing",
        folder: "testing",
        layers: &["auto_traits patience random watchdog", "alone rendezvous run"],
        ..CRATE
    },
    Crate {
        name: "relativist-core",
        folder: "core",
        layers: &["eviction hint memory prefetch sync unwind", "counter recycle reentrancy sleepers"],
        forbidden: &[ATOMICS],
        ..CRATE
    },
    Crate {
        name: "relativist-rcu",
        folder: "rcu",
        uses: &["relativist-core"],
        layers: &[
            "contention design",
            "(barrier current defer domain fork guard queue registry stripes worker)",
            "clock grace private published",
        ],
        forbidden: &[ATOMICS],
        ..CRATE
    },
    Crate {
        name: "relativist-table",
        folder: "table",
        uses: &["relativist-core", "relativist-rcu"],
        layers: &[
            "design hash policy stats worker",
            "head link",
            "array node",
            "contents resizer",
            "inner",
            "group resize",
            "automatic",
            "table",
            "iter lookup update",
            "batch clear multimap",
        ],
        forbidden: &[ATOMICS],
        ..CRATE
    },
    Crate { name: "relativist-derive", folder: "derive", tests_use: &["relativist"], ..CRATE },
    Crate {
        name: "relativist-bucket",
        folder: "bucket",
        uses: &["relativist-core", "relativist-rcu"],
        tests_use: &["relativist"],
        layers: &["design relocate word", "form", "array", "table", "contents iter resize", "update"],
        forbidden: &[ATOMICS],
        ..CRATE
    },
    Crate {
        name: "relativist",
        folder: "map",
        uses: &["relativist-core", "relativist-rcu", "relativist-bucket", "relativist-derive"],
        layers: &["entry key results", "(builder iter map pinned)", "collect lock_map set", "hints parallel serialize"],
        forbidden: &[ATOMICS],
        ..CRATE
    },
    Crate {
        name: "relativist-cache",
        folder: "cache",
        uses: &["relativist-core", "relativist-rcu", "relativist-bucket"],
        layers: &[
            "array cause ghosts key limit node stats",
            "background table",
            "expiry flight queues",
            "shard",
            "(builder core iter update self)",
            "compute lead",
            "load",
        ],
        forbidden: &[ATOMICS],
        ..CRATE
    },
    Crate {
        name: "relativist-store",
        folder: "store",
        uses: &["relativist-core", "relativist-rcu", "relativist-table"],
        layers: &["clock expiry self usage work", "memory sizing", "item", "eviction", "cache"],
        inside: &[
            Inside {
                module: "eviction",
                layers: &["flush observer reclaim schedule self store_times", "item_store", "sweep"],
            },
            Inside {
                module: "sizing",
                layers: &["events simulation", "miniature", "working_set", "report", "estimator"],
            },
        ],
        forbidden: &[Forbidden {
            names: &["std::net", "std::os::unix::net", "mio", "socket2"],
            except: &[],
            why: "the store sees no sockets",
        }],
        ..CRATE
    },
    Crate {
        name: "relativist-memcache",
        folder: "memcache",
        layers: &[
            "number percent reply",
            "error",
            "words",
            "meta",
            "command",
            "parse",
            "decode",
            "login",
            "binary",
            "self",
            "peek",
        ],
        inside: &[
            Inside { module: "binary", layers: &["opcode self", "decode", "reply"] },
            Inside { module: "parse", layers: &["self", "admin fetch meta store update"] },
        ],
        forbidden: &[Forbidden {
            names: &[
                "std::net",
                "std::os::unix::net",
                "std::fs",
                "std::time",
                "std::io::stdin",
                "std::io::stdout",
                "std::io::stderr",
                "std::print!",
                "std::println!",
                "std::eprint!",
                "std::eprintln!",
            ],
            except: &[],
            why: "the codec does no I/O and has no clock",
        }],
        ..CRATE
    },
    Crate {
        name: "relativist-capi",
        folder: "capi",
        uses: &["relativist-rcu", "relativist-table"],
        layers: &["rcu table"],
        ..CRATE
    },
    Crate {
        name: "relativistd",
        folder: "server",
        uses: &["relativist-rcu", "relativist-store", "relativist-memcache"],
        layers: &[
            "error limits observability",
            "process",
            "options",
            "security",
            "tenants",
            "snapshot",
            "execute",
            "admin handover net reload",
            "server",
        ],
        inside: &[
            Inside { module: "admin", layers: &["history http", "clients panel", "tenants", "metrics report"] },
            Inside { module: "admin::metrics", layers: &["text", "sizing tenants"] },
            Inside {
                module: "execute",
                layers: &[
                    "prefixes replies report self survey",
                    "tuning watch",
                    "tenant",
                    "session",
                    "outcome shared",
                    "executor",
                    "dump login observe permission statistics trace",
                    "admin classic meta record sasl",
                    "binary text",
                ],
            },
            Inside { module: "execute::meta", layers: &["self", "arithmetic delete get set"] },
            Inside { module: "execute::statistics", layers: &["self", "settings sizing"] },
            Inside { module: "handover", layers: &["self wire", "offer take_over"] },
            Inside { module: "limits", layers: &["buffers connections long_turns slow_clients"] },
            Inside {
                module: "net",
                layers: &[
                    "buffer",
                    "stream",
                    "backend listener",
                    "connection epoll tls udp uring",
                    "worker",
                    "acceptor",
                ],
            },
            Inside { module: "net::connection", layers: &["step", "self", "requests"] },
            Inside { module: "net::uring", layers: &["buffers message"] },
            Inside { module: "observability", layers: &["counter log", "hot_keys latency", "stats"] },
            Inside { module: "observability::hot_keys", layers: &["report sketch", "storms window"] },
            Inside {
                module: "options",
                layers: &["memory ssl", "address extended", "self", "check config generate live", "command_line"],
            },
            Inside {
                module: "process",
                layers: &["allocator daemon files inherited memory resources stopper systemd", "gate"],
            },
            Inside { module: "security", layers: &["auth privileges sandbox tls"] },
            Inside { module: "security::auth", layers: &["failures file"] },
            Inside { module: "security::sandbox", layers: &["extent needs", "calls files"] },
            Inside { module: "server", layers: &["background sockets", "self", "signals"] },
            Inside { module: "snapshot", layers: &["moment record", "format"] },
            Inside { module: "tenants", layers: &["plan", "caches"] },
        ],
        ..CRATE
    },
    Crate {
        name: "relativist-check",
        folder: "check",
        uses: &["relativist-memcache"],
        tests_use: &["relativistd"],
        layers: &["client cores interruption options", "faulty supervisor", "server", "soak", "cli"],
        inside: &[Inside { module: "client", layers: &["self", "address reply"] }],
        ..CRATE
    },
    Crate {
        name: "relativist-bench",
        folder: "bench",
        uses: &[
            "relativist-rcu",
            "relativist-table",
            "relativist",
            "relativist-cache",
            "relativist-store",
            "relativist-memcache",
            "relativist-check",
        ],
        tests_use: &["relativistd"],
        layers: &["harness", "hashing memcached shortener tables", "tools", "cli"],
        inside: &[Inside {
            module: "tools::mirror",
            layers: &["keys link request", "report", "judge", "secondary", "connection", "self"],
        }],
        ..CRATE
    },
    Crate {
        name: "relativist-papers",
        folder: "papers",
        uses: &["relativist-core", "relativist-rcu", "relativist-table", "relativist-check", "relativist-bench"],
        layers: &["caches lever tables", "lookups xkernel", "figures instructions resize", "cli"],
        ..CRATE
    },
];
