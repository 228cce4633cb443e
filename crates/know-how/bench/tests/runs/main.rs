//! Jobs that run on a directory of this machine.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod ends;
mod engine;
mod figures;
mod kept;
mod safety;
mod stage;
