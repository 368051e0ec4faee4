//! Users, encryption, and restrictions of the process itself.

pub mod auth;
pub(crate) mod privileges;
pub(crate) mod sandbox;
pub mod tls;
