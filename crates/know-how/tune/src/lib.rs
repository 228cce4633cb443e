//! Settings of a machine: what is set, what should be, and why; changes that can be undone.
//!
//! A [`Root`] is the machine, or a directory that looks like one; a [`Host`] is what was read from it. The
//! [`rules`] are a table: each names a setting, what it should be for a role and a kind of device, why, and
//! who says so. [`check`] lays the table over the host. [`apply`](change::apply) changes what can be taken
//! back and [`undo`](change::undo) takes it back. [`auto`] searches settings by measurement.

pub mod auto;
pub mod change;
pub mod finding;
pub mod host;
pub mod recording;
pub mod root;
pub mod rule;
pub mod rules;

pub use finding::{Finding, Severity, Source, Verdict};
pub use host::{ClusterFacts, Host, LookedAt, Role, Service};
pub use root::Root;
pub use rule::check;
pub use rules::{META_CONNECTIONS_PER_CLIENT, STORAGE_CONNECTIONS_PER_CLIENT};

#[cfg(test)]
mod testing;
