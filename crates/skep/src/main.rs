//! The `skep` program.
#[macro_use]
mod log;
mod daemon;
#[allow(dead_code, unused_imports, reason = "the daemons read these; drop this line with the first that does")]
mod config;
#[allow(dead_code, reason = "used by config; drop this line with the first daemon that reads one")]
mod units;

fn main() {}
