//! Locks of programs (`fcntl`, `flock`). Volatile: clients reclaim what they hold after a restart. See
//! `docs/design/locks.md`.

mod deadlock;
mod given;
mod orders;
mod range;
mod requests;
mod table;
#[cfg(test)]
mod tests;

pub use deadlock::is_circle_over;
pub use table::Table;
