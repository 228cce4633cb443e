//! Capacity classes: how full a target is, compared with the limits of its pool.
//!
//! A target is *low* or in *emergency* when its free bytes or its free inodes are below a limit. With
//! dynamic limits the limit rises while the targets of a class differ much in free space, so that new
//! files go to the emptier ones. Classes are computed from reports, move by commands only, and come
//! back with hysteresis: the map moves when a class does, and a class does not flutter.

use crate::command::SetClass;
use crate::limits::{
    BYTES_EMERGENCY, BYTES_LOW, DYNAMIC_FACTOR, EMERGENCY_SHARE, INODES_EMERGENCY, INODES_LOW, LOW_SHARE,
    RETURN_SHARE,
};
use crate::registry::{Output, Registry};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use skep_types::{Capacity, CapacityClass, Consistency, PoolId, Reachability, TargetId};
use skep_wire::mgmt::{CapacityLimits, SpaceLimits};

/// The limits that hold for one target: what is set, else the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effective {
    /// Below it: low.
    pub low: u64,
    /// Below it: emergency.
    pub emergency: u64,
    /// As `low` while the normal targets differ much.
    pub low_dynamic: u64,
    /// As `emergency` while the low targets differ much.
    pub emergency_dynamic: u64,
    /// What "much" is among the normal ones.
    pub normal_spread: u64,
    /// What "much" is among the low ones.
    pub low_spread: u64,
}

impl Effective {
    fn new(set: &SpaceLimits, total: u64, low: u64, emergency: u64) -> Self {
        let low = set.low.unwrap_or(low.min(total / LOW_SHARE));
        let emergency = set.emergency.unwrap_or(emergency.min(total / EMERGENCY_SHARE).min(low));
        Self {
            low,
            emergency,
            low_dynamic: set.low_dynamic.unwrap_or(low.saturating_mul(DYNAMIC_FACTOR)),
            emergency_dynamic: set.emergency_dynamic.unwrap_or(emergency.saturating_mul(DYNAMIC_FACTOR)),
            normal_spread: set.normal_spread.unwrap_or(low),
            low_spread: set.low_spread.unwrap_or(emergency),
        }
    }

    fn class(&self, free: u64, was: CapacityClass) -> CapacityClass {
        let back = |limit: u64, from: CapacityClass| match was >= from {
            true => limit.saturating_add(limit / RETURN_SHARE),
            false => limit,
        };
        if free < back(self.emergency, CapacityClass::Emergency) {
            CapacityClass::Emergency
        } else if free < back(self.low, CapacityClass::Low) {
            CapacityClass::Low
        } else {
            CapacityClass::Normal
        }
    }
}

/// The limits of (bytes, inodes) of a target of this size in a pool with these limits.
pub fn effective(limits: &CapacityLimits, capacity: &Capacity) -> (Effective, Effective) {
    let bytes = Effective::new(&limits.bytes, capacity.bytes, BYTES_LOW, BYTES_EMERGENCY);
    (bytes, Effective::new(&limits.inodes, capacity.inodes, INODES_LOW, INODES_EMERGENCY))
}

/// One target of a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    /// Its class so far.
    pub was: CapacityClass,
    /// As last reported.
    pub capacity: Capacity,
    /// Does it take part when differences are measured? (One that nobody can reach does not.)
    pub counts: bool,
}

/// What is measured: bytes or inodes.
#[derive(Debug, Clone, Copy)]
struct Measured {
    free: u64,
    limits: Effective,
}

fn measure(limits: &CapacityLimits, capacity: &Capacity) -> Vec<Measured> {
    let (bytes, inodes) = effective(limits, capacity);
    let mut measured = Vec::from([Measured { free: capacity.bytes_free, limits: bytes }]);
    // File systems that make inodes as they are needed report none at all.
    if capacity.inodes != 0 {
        measured.push(Measured { free: capacity.inodes_free, limits: inodes });
    }
    measured
}

/// The fuller of what bytes and inodes say.
fn worst(measured: &[Measured], was: CapacityClass) -> CapacityClass {
    measured.iter().map(|m| m.limits.class(m.free, was)).max().unwrap_or(CapacityClass::Normal)
}

/// The class of a target by itself, that was in none so far.
pub(crate) fn first_class(limits: &CapacityLimits, capacity: &Capacity) -> CapacityClass {
    worst(&measure(limits, capacity), CapacityClass::Normal)
}

/// The classes of all targets of one pool, in order.
pub(crate) fn classes(limits: &CapacityLimits, members: &[Member]) -> Vec<CapacityClass> {
    let mut measured: Vec<_> = members.iter().map(|member| measure(limits, &member.capacity)).collect();
    let by_itself: Vec<_> = members.iter().zip(&measured).map(|(member, m)| worst(m, member.was)).collect();
    if !limits.dynamic {
        return by_itself;
    }
    let raised = members.iter().zip(&by_itself).any(|(member, class)| member.was > *class);
    for kind in 0..2 {
        for class in [CapacityClass::Normal, CapacityClass::Low] {
            let among = || {
                let all = members.iter().zip(&by_itself).zip(&measured);
                all.filter(|((member, is), _)| member.counts && **is == class)
                    .filter_map(|(_, m)| m.get(kind).copied())
            };
            if !differ_much(among, class, raised) {
                continue;
            }
            for m in measured.iter_mut().filter_map(|m| m.get_mut(kind)) {
                match class {
                    CapacityClass::Normal => m.limits.low = m.limits.low.max(m.limits.low_dynamic),
                    _ => m.limits.emergency = m.limits.emergency.max(m.limits.emergency_dynamic),
                }
            }
        }
    }
    members.iter().zip(&measured).map(|(member, m)| worst(m, member.was)).collect()
}

/// Is the difference between the emptiest and the fullest above the threshold (or still near it, when it
/// was above)?
fn differ_much<I: Iterator<Item = Measured>>(among: impl Fn() -> I, class: CapacityClass, was: bool) -> bool {
    let most = among().map(|m| m.free).max().unwrap_or(0);
    let least = among().map(|m| m.free).min().unwrap_or(0);
    let threshold = |m: Measured| match class {
        CapacityClass::Normal => m.limits.normal_spread,
        _ => m.limits.low_spread,
    };
    let threshold = among().map(threshold).max().unwrap_or(u64::MAX);
    let threshold = if was { threshold - threshold / RETURN_SHARE } else { threshold };
    most - least > threshold
}

impl Registry {
    /// Moves targets to the classes that their reports put them in.
    pub(crate) fn reclassify(&mut self, out: &mut Output) {
        self.unclassified = false;
        let mut pools: BTreeMap<PoolId, Vec<(TargetId, Member)>> = BTreeMap::new();
        for target in self.state.targets.values() {
            // Not heard since the start, or its disk cannot even be asked: it stays where it was.
            let capacity = self.capacities.get(&target.id).copied().unwrap_or_default();
            if !self.reported.contains(&target.id) || capacity.bytes == 0 {
                continue;
            }
            let pulse = self.nodes.get(&target.node);
            let offline = pulse.is_none_or(|pulse| pulse.reachability == Reachability::Offline)
                || self.unserved.contains(&target.id);
            let counts = target.consistency == Consistency::Good && !offline;
            let member = Member { was: target.class, capacity, counts };
            pools.entry(target.pool).or_default().push((target.id, member));
        }
        for (pool, targets) in pools {
            let limits = self.state.pools.get(&pool).map(|pool| pool.limits).unwrap_or_default();
            let members: Vec<_> = targets.iter().map(|(_, member)| *member).collect();
            for ((target, member), class) in targets.iter().zip(classes(&limits, &members)) {
                if class != member.was {
                    self.set_class(*target, class, out);
                }
            }
        }
    }

    fn set_class(&mut self, target: TargetId, class: CapacityClass, out: &mut Output) {
        let alias = self.state.targets.get(&target).map_or("?", |target| target.alias.as_str());
        out.notes.push(format!("{alias}: capacity class {} from now on", class.as_str()));
        self.commit(SetClass { target, class }, out);
        self.map_changed();
    }
}

#[cfg(test)]
mod tests;
