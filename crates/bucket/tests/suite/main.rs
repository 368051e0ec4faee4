//! The table against a model, and under threads, in each form.
#![cfg(not(relativist_loom))]

use relativist_testing as _;

mod destructors;
mod model;
mod scene;
mod threads;
