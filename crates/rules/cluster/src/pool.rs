//! Storage pools: made, given targets and limits, deleted.

use crate::alias::unknown;
use crate::command::{DropPool, MoveTargets, Pool, SetPool};
use crate::registry::{Output, Registry};
use crate::state::DEFAULT_POOL;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::{Errno, PoolId, TargetId};
use skep_wire::mgmt::{
    AssignTargets, CapacityLimits, CreatePool, CreatePoolReply, DeletePool, SetCapacityLimits, SpaceLimits,
};
use skep_wire::{Empty, Refusal, Status};

/// Targets that a text names; more are counted.
const NAMED_MAX: usize = 8;

impl Registry {
    pub(crate) fn create_pool(&mut self, to: u64, m: CreatePool, out: &mut Output) -> Result<(), Refusal> {
        self.wished_alias(&m.alias)?;
        self.known_targets(&m.targets)?;
        check_limits(&m.limits)?;
        let max = self.config.max_pools;
        if self.state.pools.len() >= max {
            let text = format!("there are {max} pools, the limit; delete one, or raise max_pools of mgmtd");
            return Err(Refusal::with(Status::errno(Errno::ENOSPC), text));
        }
        let id = PoolId(self.state.last_pool.0 + 1);
        out.notes.push(format!("pool {id} made: {}", m.alias));
        self.commit(SetPool { pool: Pool { id, alias: m.alias, limits: m.limits } }, out);
        if !m.targets.is_empty() {
            self.commit(MoveTargets { pool: id, targets: m.targets }, out);
        }
        self.reclassify(out);
        self.map_changed();
        out.body(to, &CreatePoolReply { pool: id });
        Ok(())
    }

    pub(crate) fn delete_pool(&mut self, to: u64, m: DeletePool, out: &mut Output) -> Result<(), Refusal> {
        let Some(pool) = self.state.pools.get(&m.pool) else {
            return Err(unknown("pool", m.pool.0, "pool"));
        };
        if m.pool == DEFAULT_POOL {
            let text = format!("{} is the default pool: it can be renamed, not deleted", pool.alias);
            return Err(Refusal::with(Status::errno(Errno::EBUSY), text));
        }
        let members = self.state.targets.values().filter(|target| target.pool == m.pool);
        let names: Vec<&str> = members.map(|target| target.alias.as_str()).collect();
        if !names.is_empty() {
            let text = format!(
                "{} has {} targets ({}): move them first, `skep pool assign POOL TARGET...`",
                pool.alias,
                names.len(),
                some(&names)
            );
            return Err(Refusal::with(Status::errno(Errno::EBUSY), text));
        }
        out.notes.push(format!("pool {} deleted: {}", m.pool, pool.alias));
        self.commit(DropPool { pool: m.pool }, out);
        self.map_changed();
        out.body(to, &Empty {});
        Ok(())
    }

    pub(crate) fn assign_targets(
        &mut self,
        to: u64,
        m: AssignTargets,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        let place = match self.state.pools.get(&m.pool) {
            Some(pool) => format!("in pool {}", pool.alias),
            None if m.pool == PoolId(0) => String::from("in no pool"),
            None => return Err(unknown("pool", m.pool.0, "pool")),
        };
        self.known_targets(&m.targets)?;
        let elsewhere = |id: &TargetId| self.state.targets.get(id).is_some_and(|t| t.pool != m.pool);
        let moved: Vec<_> = m.targets.iter().copied().filter(elsewhere).collect();
        if !moved.is_empty() {
            for id in &moved {
                out.notes.push(format!("target {id} is {place} from now on"));
            }
            self.commit(MoveTargets { pool: m.pool, targets: moved }, out);
            self.reclassify(out);
            self.map_changed();
        }
        out.body(to, &Empty {});
        Ok(())
    }

    pub(crate) fn set_capacity_limits(
        &mut self,
        to: u64,
        m: SetCapacityLimits,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        let Some(mut pool) = self.state.pools.get(&m.pool).cloned() else {
            return Err(unknown("pool", m.pool.0, "pool"));
        };
        check_limits(&m.limits)?;
        if pool.limits != m.limits {
            out.notes.push(format!("pool {} has other limits of free space from now on", pool.alias));
            pool.limits = m.limits;
            self.commit(SetPool { pool }, out);
            self.reclassify(out);
            self.map_changed();
        }
        out.body(to, &Empty {});
        Ok(())
    }

    fn known_targets(&self, targets: &[TargetId]) -> Result<(), Refusal> {
        match targets.iter().find(|id| !self.state.targets.contains_key(*id)) {
            Some(id) => Err(unknown("target", id.0, "target")),
            None => Ok(()),
        }
    }
}

/// Some names of a list, and how many more there are.
pub(crate) fn some(names: &[&str]) -> String {
    let shown = names[..names.len().min(NAMED_MAX)].join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// An emergency that comes before low would leave the class low out.
fn check_limits(limits: &CapacityLimits) -> Result<(), Refusal> {
    let wrong = |what: &str, a: &str, b: &str| {
        let text = format!("{what}: {a} is above {b}; set it lower");
        Err(Refusal::with(Status::errno(Errno::EINVAL), text))
    };
    let above = |a: Option<u64>, b: Option<u64>| a.zip(b).is_some_and(|(a, b)| a > b);
    for (what, set) in [("bytes", &limits.bytes), ("inodes", &limits.inodes)] {
        let SpaceLimits { low, emergency, low_dynamic, emergency_dynamic, .. } = *set;
        if above(emergency, low) {
            return wrong(what, "emergency", "low");
        }
        if above(emergency_dynamic, low_dynamic) {
            return wrong(what, "emergency_dynamic", "low_dynamic");
        }
        if above(low, low_dynamic) {
            return wrong(what, "low", "low_dynamic");
        }
        if above(emergency, emergency_dynamic) {
            return wrong(what, "emergency", "emergency_dynamic");
        }
    }
    Ok(())
}
