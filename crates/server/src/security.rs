//! Who may do what: users, encryption, and what the process itself may do.

pub mod auth;
pub(crate) mod privileges;
pub(crate) mod sandbox;
pub mod tls;
