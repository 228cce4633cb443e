//! What is recommended: one file for each group of settings, each a table. A new setting is one more entry.

mod geometry;
mod limits;
mod memory;
mod mounts;
mod network;
mod numa;
mod own;
mod processor;
mod queue;
mod sources;
#[cfg(test)]
mod verdicts;

pub use own::{META_CONNECTIONS_PER_CLIENT, STORAGE_CONNECTIONS_PER_CLIENT};

use crate::host::Role;
use crate::rule::Rule;

/// Those that keep data.
const SERVERS: &[Role] = &[Role::Meta, Role::Storage];
/// Those that serve others.
const SERVICES: &[Role] = &[Role::Mgmt, Role::Meta, Role::Storage];
const EVERYBODY: &[Role] = &[Role::Mgmt, Role::Meta, Role::Storage, Role::Client];

/// Every rule, area by area.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    let tables: [&'static [Rule]; 9] = [
        queue::RULES,
        memory::RULES,
        processor::RULES,
        mounts::RULES,
        geometry::RULES,
        numa::RULES,
        network::RULES,
        limits::RULES,
        own::RULES,
    ];
    tables.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Goal: every rule says why, what comes of it and who says so; where sources say different things, which was
    /// taken; names are unique.
    #[test]
    fn every_rule_is_complete() {
        let mut names = BTreeSet::new();
        for rule in all() {
            assert!(names.insert((rule.area, rule.setting)), "{} twice", rule.setting);
            assert!(!rule.roles.is_empty() && !rule.sources.is_empty(), "{}", rule.setting);
            assert!(rule.reason.len() > 20 && rule.effect.len() > 10, "{}", rule.setting);
            let said: BTreeSet<&str> = rule.sources.iter().map(|source| source.says).collect();
            assert!(
                said.len() == 1 || !rule.choice.is_empty(),
                "{}: sources differ, no choice",
                rule.setting
            );
        }
        assert!(names.len() > 40, "{}", names.len());
    }
}
