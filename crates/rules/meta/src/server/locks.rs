//! Locks of programs (`fcntl`, `flock`). Volatile: clients reclaim what they hold after a restart. See
//! `docs/design/locks.md`.

mod deadlock;
mod given;
mod orders;
mod outcomes;
mod range;
mod requests;
mod table;
#[cfg(test)]
mod tests;

pub use table::Table;
