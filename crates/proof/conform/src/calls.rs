//! The verbs of the table: the calls under test, the preparation helpers and the assertions.

mod attributes;
mod checks;
mod data;
pub mod locks;
mod names;
mod prepare;

use crate::scene::{Done, Scene};
use crate::step::Step;

/// What carries out a verb.
pub type Handler = fn(&mut Scene, &Step) -> Done;

/// All verbs, a list per file.
const LISTS: &[&[(&str, Handler)]] =
    &[names::VERBS, attributes::VERBS, data::VERBS, prepare::VERBS, checks::VERBS, locks::VERBS];

/// The handler of a verb.
pub fn find(verb: &str) -> Option<Handler> {
    LISTS.iter().flat_map(|list| list.iter()).find(|(name, _)| *name == verb).map(|&(_, handler)| handler)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Goal: no verb hides another one of the same name.
    #[test]
    fn verbs_are_unique() {
        let mut seen = BTreeSet::new();
        for (name, _) in LISTS.iter().flat_map(|l| l.iter()) {
            assert!(seen.insert(name), "{name} stands twice");
        }
        assert!(find("chmod").is_some() && find("chmood").is_none());
    }
}
