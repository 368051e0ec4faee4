//! Tests of the decoders and the reply encoders through the public interface.

use relativist_testing as _;

mod admin;
mod binary;
mod event;
mod fetch;
mod framing;
mod login;
mod meta;
mod properties;
mod reply;
mod request;
mod store;
mod transcripts;
mod update;
