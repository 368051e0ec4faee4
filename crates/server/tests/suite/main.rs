//! Tests of whole servers in this process, over real sockets.

use relativist_testing as _;

mod admin;
#[path = "../support/certificates.rs"]
mod certificates;
mod connections;
mod harness;
mod large;
mod openmetrics;
mod parity;
mod replay;
mod sizing;
mod statistics;
mod tenants;
mod tls;
mod transcripts;
mod turns;
mod unauthenticated;
