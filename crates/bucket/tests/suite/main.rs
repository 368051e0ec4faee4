//! The table against a model, and under threads, in each form.
#![cfg(not(relativist_loom))]

mod model;
mod scene;
mod threads;
