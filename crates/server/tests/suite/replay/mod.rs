//! Replays transcripts: text files with bytes to send and bytes to expect.
//!
//! | line | meaning |
//! |---|---|
//! | `> text` | bytes to send; adjacent lines are sent together |
//! | `< text` | bytes to expect; adjacent lines are one expectation |
//! | `@split` | between lines to send: send what is there, wait a little, go on |
//! | `@sleep S` | wait so many seconds |
//! | `@silent` | nothing may arrive for a moment |
//! | `@closed` | the server must close the connection |
//! | `@new` | go on with a fresh connection |
//! | `@close`, `@shutdown` | close the connection, half-close it for writing |
//! | `@needs WORD` | what the server must offer; told for the reader |
//! | `# text` | a comment, which ends a group of lines as an empty line does |
//!
//! In texts, `\r \n \t \0 \\ \" \{ \} \xHH` stand for bytes, `{rep:x:300}` for 300 times `x`, `{num}` for decimal digits,
//! `{num:NAME}` for digits that are remembered and `{=NAME}` for those remembered.

mod player;
mod script;

pub use player::play;
