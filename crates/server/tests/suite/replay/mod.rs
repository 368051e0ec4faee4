//! Replays transcripts: text files with bytes to send and bytes to expect.
//!
//! | line | meaning |
//! |---|---|
//! | `> text`, `>x 80 0a` | bytes to send, as text or hexadecimal; adjacent lines are sent together |
//! | `< text`, `<x 80 0a` | bytes to expect; adjacent lines are one expectation |
//! | `@split` | between lines to send: send what is there, wait a little, go on |
//! | `@sleep S` | wait so many seconds |
//! | `@silent` | nothing may arrive for a moment |
//! | `@closed` | the server must close the connection |
//! | `@new`, `@new NAME` | go on with a fresh connection, or with one of this name, which stays open |
//! | `@udp` | go on with datagrams: what is sent together is one |
//! | `@close`, `@shutdown` | close the connection, half-close it for writing |
//! | `@signal NAME`, `@write FILE text` | signal the server, change one of its files |
//! | `@args`, `@env`, `@file NAME text` | what the server is started with; `{file:NAME}` and `{dir}` are paths |
//! | `@needs WORD` | what the server must offer; told for the reader |
//! | `# text` | a comment, which ends a group of lines as an empty line does |
//!
//! In texts, `\r \n \t \0 \\ \" \{ \} \xHH` stand for bytes, `{rep:x:300}` for 300 times `x`,
//! `{any}` for anything on the line, `{num}` for decimal digits, `{num:NAME}` for digits that are
//! remembered, `{b8:NAME}` for eight bytes that are, and `{=NAME}` for what was remembered.

mod player;
mod script;
mod server;

pub use player::play;
