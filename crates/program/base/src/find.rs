//! Nodes, targets and pools by alias or number, as people name them.

use crate::config::nearest::nearest;
use crate::{Failure, Outcome};
use skep_types::PoolId;
use skep_wire::mgmt::{NodeStatus, PoolStatus, StatusReply, TargetEntry};

/// What `pool assign` takes for no pool at all.
pub const NO_POOL: &str = "none";

/// The one of `all` that is called `text` or has this number.
fn find<'a, T>(
    kind: &str,
    text: &str,
    all: &'a [T],
    names: impl Fn(&'a T) -> (&'a str, u32),
) -> Outcome<&'a T> {
    let number = text.parse::<u32>().ok();
    let called = |one: &&'a T| names(one).0 == text || Some(names(one).1) == number;
    all.iter().find(called).ok_or_else(|| {
        let hint = match nearest(text, all.iter().map(|one| names(one).0)) {
            Some(near) => format!("did you mean \"{near}\"? See"),
            None => "see".to_owned(),
        };
        Failure::new(format!("there is no {kind} \"{text}\"; {hint} `skep {kind} list`"))
    })
}

/// A daemon.
pub fn node<'a>(status: &'a StatusReply, text: &str) -> Outcome<&'a NodeStatus> {
    find("node", text, &status.nodes, |one| (one.node.alias.as_str(), one.node.node.0))
}

pub fn target<'a>(status: &'a StatusReply, text: &str) -> Outcome<&'a TargetEntry> {
    find("target", text, &status.targets, |one| (one.alias.as_str(), one.target.0))
}

/// Several targets, each once, in the order given.
pub fn targets<'a>(status: &'a StatusReply, texts: &[String]) -> Outcome<Vec<&'a TargetEntry>> {
    let mut found: Vec<&TargetEntry> = Vec::new();
    for text in texts {
        let one = target(status, text)?;
        if found.iter().all(|known| known.target != one.target) {
            found.push(one);
        }
    }
    Ok(found)
}

pub fn pool<'a>(status: &'a StatusReply, text: &str) -> Outcome<&'a PoolStatus> {
    find("pool", text, &status.pools, |one| (one.pool.alias.as_str(), one.pool.pool.0))
}

/// A pool's alias; `none` for no pool.
pub fn pool_alias(status: &StatusReply, pool: PoolId) -> String {
    let found = status.pools.iter().find(|one| one.pool.pool == pool);
    match found {
        Some(one) => one.pool.alias.clone(),
        None if pool == PoolId(0) => NO_POOL.to_owned(),
        None => format!("pool {pool}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::samples;
    use skep_types::{NodeId, TargetId};

    /// Goal: all three are found by alias and by number; a slip is told what was meant, nonsense where to
    /// look.
    #[test]
    fn by_alias_and_number() {
        let status = samples::status();
        assert_eq!(target(&status, "target-101").unwrap().target, TargetId(101));
        assert_eq!(target(&status, "101").unwrap().target, TargetId(101));
        assert_eq!(node(&status, "storaged-2").unwrap().node.node, NodeId(2));
        assert_eq!(pool(&status, "1").unwrap().pool.alias, "default");
        let slip = target(&status, "target-110").unwrap_err().to_string();
        assert!(slip.contains("did you mean \"target-101\"") && slip.contains("skep target list"), "{slip}");
        let nonsense = pool(&status, "zzz").unwrap_err().to_string();
        assert!(!nonsense.contains("did you mean") && nonsense.contains("skep pool list"), "{nonsense}");
        assert!(node(&status, "101").is_err(), "a target's number is no node's");
    }

    /// Goal: a list names every target once, however often and in whichever form it was given.
    #[test]
    fn lists_have_each_once() {
        let status = samples::status();
        let twice = ["101".to_owned(), "target-101".to_owned()];
        assert_eq!(targets(&status, &twice).unwrap().len(), 1);
        assert_eq!(
            (pool_alias(&status, PoolId(1)), pool_alias(&status, PoolId(0))),
            ("default".into(), "none".into())
        );
    }
}
