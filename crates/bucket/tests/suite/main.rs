//! The table against a model, and under threads, in each form.
#![cfg(not(relativist_loom))]

mod destructors;
mod model;
mod scene;
mod threads;
