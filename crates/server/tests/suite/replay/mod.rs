//! Replays transcripts: text files with bytes to send and bytes to expect.
//!
//! | line | meaning |
//! |---|---|
//! | `> text`, `>x 80 0a` | bytes to send, as text or hexadecimal; adjacent lines are sent together |
//! | `< text`, `<x 80 0a` | bytes to expect; adjacent lines are one expectation |
//! | `@split` | between lines to send: send the lines before, wait a little, continue |
//! | `@sleep S` | wait for S seconds |
//! | `@silent` | nothing may arrive for a moment |
//! | `@closed` | the server must close the connection |
//! | `@new`, `@new NAME` | continue with a new connection, or with the connection of this name, which stays open |
//! | `@udp` | continue with datagrams: adjacent lines are one datagram |
//! | `@close`, `@shutdown` | close the connection, half-close it for writing |
//! | `@signal NAME`, `@write FILE text` | signal the server, change one of its files |
//! | `@args`, `@env`, `@file NAME text` | the server's arguments, environment and files; `{file:NAME}` and `{dir}` are paths |
//! | `@needs WORD` | a feature that the server needs, for readers only |
//! | `# text` | a comment, which ends a group of lines as an empty line does |
//!
//! In texts, `\r \n \t \0 \\ \" \{ \} \xHH` stand for bytes, `{rep:x:300}` for 300 times `x`,
//! `{any}` for anything on the line, `{num}` for decimal digits, `{num:NAME}` for digits that are
//! stored under a name, `{b8:NAME}` for eight bytes that are stored, and `{=NAME}` for the bytes
//! stored under a name.

mod player;
mod script;
mod server;

pub use player::play;
