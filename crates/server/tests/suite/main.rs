//! Tests of whole servers, each in this process, over real sockets.

mod client;
mod connections;
mod harness;
mod replay;
mod statistics;
mod transcripts;
